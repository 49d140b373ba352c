#include "allocators/strategies/direct_allocator.h"

namespace headroom {

DirectAllocator::~DirectAllocator() {
  for (const auto& [pointer, live] : live_) unreserve(pointer, live.bytes);
}

Allocator::Block DirectAllocator::do_allocate(int64_t bytes, Stream stream) {
  void* pointer = reserve(bytes);
  if (pointer == nullptr) return {};
  live_.emplace(pointer, Live{bytes, stream});
  return {pointer, bytes};
}

int64_t DirectAllocator::do_deallocate(void* pointer, int64_t bytes, Stream) noexcept {
  const auto found = live_.find(pointer);
  if (found == live_.end() || found->second.bytes != bytes) return 0;
  live_.erase(found);
  unreserve(pointer, bytes);
  return bytes;
}

void DirectAllocator::do_snapshot(std::vector<SnapshotSegment>& segments) const {
  for (const auto& [pointer, live] : live_) {
    segments.push_back({pointer,
                        live.bytes,
                        {{pointer, live.bytes, live.bytes, SnapshotBlock::State::kActive, live.stream}}});
  }
}

}  // namespace headroom
