#include "allocators/strategies/pool_allocator.h"

#include <algorithm>
#include <utility>

#include "runtime/base/bytes.h"

namespace headroom {

PoolAllocator::PoolAllocator(Device& device, std::string name, std::optional<Limit> limit,
                             int64_t initial_bytes)
    : SegmentAllocator(device, std::move(name), limit) {
  const int64_t bytes = round_up(initial_bytes, kAlignment);
  if (bytes > 0 && add_segment(store_, bytes, list_of({})) == BlockStore::kNone) throw out_of_memory(bytes);
}

// In RMM's order: blocks that this stream freed, then those of other streams, both again after merging all
// lists, then the driver.
Allocator::Block PoolAllocator::do_allocate(int64_t bytes, Stream stream) {
  const int32_t list = list_of(stream);
  Index block = store_.best_fit(list, bytes);
  if (block == BlockStore::kNone) block = find_elsewhere(list, bytes);
  if (block == BlockStore::kNone) block = merge_lists(list, bytes);
  if (block == BlockStore::kNone) block = grow(list, bytes);
  if (block == BlockStore::kNone) return {};
  follow_user(store_.at(block).user, stream);
  const bool cuts = store_.at(block).bytes > bytes;
  return handed_out(store_, cuts ? store_.take_head(block, bytes, bytes) : store_.take(block, bytes),
                    user_of(stream));
}

int64_t PoolAllocator::do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  return store_.give_back(pointer, bytes, user_of(stream), list_of(stream)).bytes;
}

// Parts of a segment that different streams freed merge only in one list.
int64_t PoolAllocator::do_trim() noexcept {
  for (int32_t other = 1; other < static_cast<int32_t>(streams_.size()); ++other) store_.move_all(other, 0);
  return SegmentAllocator::do_trim();
}

int32_t PoolAllocator::list_of(Stream stream) {
  const auto found = std::find(streams_.begin(), streams_.end(), stream);
  if (found != streams_.end()) return static_cast<int32_t>(found - streams_.begin());
  streams_.push_back(stream);
  return store_.add_list();
}

PoolAllocator::Index PoolAllocator::find_elsewhere(int32_t list, int64_t bytes) {
  for (int32_t other = 0; other < static_cast<int32_t>(streams_.size()); ++other) {
    if (other == list) continue;
    const Index block = store_.best_fit(other, bytes);
    if (block != BlockStore::kNone) return block;
  }
  return BlockStore::kNone;
}

PoolAllocator::Index PoolAllocator::merge_lists(int32_t list, int64_t bytes) {
  for (int32_t other = 0; other < static_cast<int32_t>(streams_.size()); ++other) {
    if (other == list || store_.largest(other) == BlockStore::kNone) continue;
    store_.move_all(other, list);
    const Index block = store_.best_fit(list, bytes);
    if (block != BlockStore::kNone) return block;
  }
  return BlockStore::kNone;
}

// Without a limit the pool doubles; with one it takes half of what is left. If the driver refuses, asks for
// half, down to the request.
PoolAllocator::Index PoolAllocator::grow(int32_t list, int64_t bytes) {
  int64_t size = std::max(bytes, segment_bytes());
  if (limit_bytes()) {
    const int64_t left = reservable_bytes();
    if (bytes > left) return BlockStore::kNone;
    size = std::max(bytes, round_up(left / 2, kAlignment));
  }
  for (;;) {
    const Index block = add_segment(store_, size, list);
    if (block != BlockStore::kNone || size == bytes) return block;
    size = std::max(bytes, round_up(size / 2, kAlignment));
  }
}

}  // namespace headroom
