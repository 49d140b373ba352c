// Any collective with faults put in: the rank dies in its n-th call. For tests of what lies above.
#pragma once

#include <memory>

#include "runtime/collective/collective.h"
#include "runtime/device/faulty/fault_injector.h"

namespace headroom {

class FaultyCollective final : public Collective {
 public:
  // No fault until one is armed. The failing call destroys `upstream` and throws, as does every later call.
  explicit FaultyCollective(std::unique_ptr<Collective> upstream);

  FaultInjector& faults() { return faults_; }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  void all_reduce_sum(std::span<float> values) override;
  void broadcast(std::span<std::byte> bytes, int root) override;
  void barrier() override;

 private:
  // Counts one call and returns the upstream. Throws CollectiveError in a dead or dying rank.
  Collective& upstream_for(const char* call);

  std::unique_ptr<Collective> upstream_;  // null once dead
  const int rank_;
  const int size_;
  FaultInjector faults_;
};

}  // namespace headroom
