#include "allocators/direct_allocator.h"

namespace headroom {

DirectAllocator::~DirectAllocator() {
  for (const auto& [pointer, bytes] : live_) unreserve(pointer, bytes);
}

Allocator::Block DirectAllocator::do_allocate(int64_t bytes, Stream) {
  void* pointer = reserve(bytes);
  if (pointer == nullptr) return {};
  live_.emplace(pointer, bytes);
  return {pointer, bytes};
}

int64_t DirectAllocator::do_deallocate(void* pointer, int64_t bytes, Stream) noexcept {
  const auto found = live_.find(pointer);
  if (found == live_.end() || found->second != bytes) return 0;
  live_.erase(found);
  unreserve(pointer, bytes);
  return bytes;
}

}  // namespace headroom
