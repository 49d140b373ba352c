#include "allocators/strategies/pool_allocator.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"

namespace headroom {

PoolAllocator::PoolAllocator(Device& device, std::string name, std::optional<Limit> limit,
                             int64_t initial_bytes)
    : SegmentAllocator(device, std::move(name), limit) {
  const int64_t bytes = round_up(initial_bytes, kAlignment);
  if (bytes == 0) return;
  const int32_t owner = owner_of({});
  if (add_segment(store_, bytes, list_of(owner)) == BlockStore::kNone) throw out_of_memory(bytes);
  note_largest(owner);
}

// In RMM's order: blocks that this stream freed, then those of other streams, both again after merging all
// lists, then the driver.
Allocator::Block PoolAllocator::do_allocate(int64_t bytes, Stream stream) {
  const int32_t owner = owner_of(stream);
  Index block = store_.best_fit(list_of(owner), bytes);
  if (block == BlockStore::kNone) block = find_elsewhere(bytes);
  if (block == BlockStore::kNone) block = merge_lists(owner, bytes);
  if (block == BlockStore::kNone) block = grow(owner, bytes);
  if (block == BlockStore::kNone) return {};
  follow_users(store_, block, stream);
  const int32_t list = store_.at(block).list;
  const bool cuts = store_.at(block).bytes > bytes;
  const Block taken = handed_out(
      store_, cuts ? store_.take_head(block, bytes, bytes) : store_.take(block, bytes), user_of(stream));
  note_largest(owners_[static_cast<size_t>(list)]);
  return taken;
}

int64_t PoolAllocator::do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  const int32_t owner = owner_of(stream);
  const int64_t block_bytes = store_.give_back(pointer, bytes, user_of(stream), list_of(owner)).bytes;
  note_largest(owner);
  return block_bytes;
}

// Parts of a segment that different streams freed merge only in one list.
int64_t PoolAllocator::do_trim() noexcept {
  if (streams_.size() == 0) return 0;
  for (int32_t other = 1; other < streams_.size(); ++other) take_all(0, other);
  const int64_t given_back = SegmentAllocator::do_trim();
  note_largest(0);
  return given_back;
}

int32_t PoolAllocator::owner_of(Stream stream) {
  const int32_t known = streams_.find(stream);
  if (known != StreamNumbers::kNone) return known;
  const int32_t list = store_.add_list();
  largest_.set(list, 0);
  lists_.push_back(list);
  owners_.push_back(list);
  return streams_.number_of(stream);
}

void PoolAllocator::note_largest(int32_t owner) {
  const Index block = store_.largest(list_of(owner));
  largest_.set(owner, block == BlockStore::kNone ? 0 : store_.at(block).bytes);
}

// The best block of the first owner that has one; the stream itself has none.
PoolAllocator::Index PoolAllocator::find_elsewhere(int64_t bytes) {
  const int32_t other = largest_.find(0, bytes);
  return other == FirstWith::kNone ? BlockStore::kNone : store_.best_fit(list_of(other), bytes);
}

PoolAllocator::Index PoolAllocator::merge_lists(int32_t owner, int64_t bytes) {
  Index block = BlockStore::kNone;
  int32_t other = largest_.find(0, 1);
  for (; other != FirstWith::kNone && block == BlockStore::kNone; other = largest_.find(other + 1, 1)) {
    if (other == owner) continue;
    take_all(owner, other);
    block = store_.best_fit(list_of(owner), bytes);
  }
  note_largest(owner);
  return block;
}

// Gives one owner the blocks of another. The shorter list moves, and if that is the owner's, the two exchange
// their lists, so that blocks seldom move.
void PoolAllocator::take_all(int32_t owner, int32_t other) {
  if (store_.free_blocks(list_of(owner)) < store_.free_blocks(list_of(other))) {
    std::swap(list_of(owner), list_of(other));
    owners_[static_cast<size_t>(list_of(owner))] = owner;
    owners_[static_cast<size_t>(list_of(other))] = other;
  }
  store_.move_all(list_of(other), list_of(owner));
  note_largest(other);
}

// If there is no limit the pool doubles; with a limit it grows by half of the rest. If the driver refuses,
// asks for half as much, down to the request.
PoolAllocator::Index PoolAllocator::grow(int32_t owner, int64_t bytes) {
  int64_t size = std::max(bytes, segment_bytes());
  if (limit_bytes()) {
    const int64_t left = reservable_bytes();
    if (bytes > left) return BlockStore::kNone;
    size = std::max(bytes, round_up(left / 2, kAlignment));
  }
  for (;;) {
    const Index block = add_segment(store_, size, list_of(owner));
    if (block != BlockStore::kNone || size == bytes) return block;
    size = std::max(bytes, round_up(size / 2, kAlignment));
  }
}

}  // namespace headroom
