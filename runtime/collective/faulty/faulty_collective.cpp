#include "runtime/collective/faulty/faulty_collective.h"

#include <utility>

#include "runtime/base/errors.h"

namespace headroom {

FaultyCollective::FaultyCollective(std::unique_ptr<Collective> upstream)
    : upstream_(std::move(upstream)), rank_(upstream_->rank()), size_(upstream_->size()) {}

void FaultyCollective::all_reduce_sum(std::span<float> values) {
  upstream_for("all_reduce_sum").all_reduce_sum(values);
}

void FaultyCollective::broadcast(std::span<std::byte> bytes, int root) {
  upstream_for("broadcast").broadcast(bytes, root);
}

void FaultyCollective::barrier() {
  upstream_for("barrier").barrier();
}

Collective& FaultyCollective::upstream_for(const char* call) {
  if (faults_.next_call_fails()) upstream_.reset();
  if (!upstream_) throw CollectiveError(rank_, call, "injected fault");
  return *upstream_;
}

}  // namespace headroom
