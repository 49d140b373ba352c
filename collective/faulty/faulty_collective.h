// Any collective with faults put in: the rank dies in its n-th call. For tests.
#pragma once

#include <memory>
#include <utility>

#include "base/errors.h"
#include "collective/collective.h"
#include "device/faulty/fault_injector.h"

namespace headroom {

class FaultyCollective final : public Collective {
 public:
  // No fault until one is armed. The failing call destroys `upstream` and throws, as does every later call.
  explicit FaultyCollective(std::unique_ptr<Collective> upstream)
      : upstream_(std::move(upstream)), rank_(upstream_->rank()), size_(upstream_->size()) {}

  FaultInjector& faults() { return faults_; }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce_sum(std::span<float> values) override { call("all_reduce_sum").all_reduce_sum(values); }
  void broadcast(std::span<std::byte> bytes, int root) override { call("broadcast").broadcast(bytes, root); }
  void barrier() override { call("barrier").barrier(); }

 private:
  // Counts one call and returns the upstream. Throws CollectiveError in a dead or dying rank.
  Collective& call(const char* name) {
    if (faults_.next_call_fails()) upstream_.reset();
    if (!upstream_) throw CollectiveError(rank_, name, "injected fault");
    return *upstream_;
  }

  std::unique_ptr<Collective> upstream_;  // null once dead
  const int rank_, size_;
  FaultInjector faults_;
};

}  // namespace headroom
