#include "allocators/caching_allocator.h"

#include <algorithm>
#include <utility>

namespace headroom {

CachingAllocator::CachingAllocator(Device& device, std::string name, std::optional<Limit> limit,
                                   CachingRules rules)
    : SegmentAllocator(device, std::move(name), limit), rules_(rules) {}

// PyTorch's malloc, in its order. Whoever calls goes on when this finds nothing: with a wait for blocks that
// other streams still use and another search, which PyTorch misses (#189504), and then with all idle segments
// given back and a third.
Allocator::Block CachingAllocator::do_allocate(int64_t bytes, Stream stream) {
  const int64_t block_bytes = rules_.block_bytes(bytes);
  const int32_t pool = pool_of(stream, is_small_block(block_bytes));
  Index block = find(pool, block_bytes);
  if (block == BlockStore::kNone) {
    if (collects_garbage()) collect_garbage();
    block = grow(pool, block_bytes);
  }
  if (block == BlockStore::kNone && release_oversize(pool, block_bytes)) {
    block = grow(pool, block_bytes);
  }
  if (block == BlockStore::kNone) return {};
  follow_user(store_.at(block).user, stream);
  const bool cuts = rules_.cuts(store_.at(block).bytes, block_bytes);
  return handed_out(cuts ? store_.take_head(block, block_bytes, bytes) : store_.take(block, bytes));
}

int64_t CachingAllocator::do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  const auto [block, block_bytes] = store_.give_back(pointer, bytes, user_of(stream));
  if (block == BlockStore::kNone) return 0;
  store_.at(block).stamp = pool(store_.at(block).list).searches;
  return block_bytes;
}

int32_t CachingAllocator::pool_of(Stream stream, bool small) {
  for (size_t i = 0; i < pools_.size(); i += 2) {
    if (pools_[i].stream == stream) return static_cast<int32_t>(i + (small ? 0 : 1));
  }
  const int32_t first = store_.add_list();
  store_.add_list();
  pools_.resize(pools_.size() + 2, {.stream = stream});
  return first + (small ? 0 : 1);
}

CachingAllocator::Index CachingAllocator::find(int32_t number, int64_t block_bytes) {
  ++pool(number).searches;
  const Index block = store_.best_fit(number, block_bytes);
  if (block == BlockStore::kNone || !rules_.serves(store_.at(block).bytes, block_bytes)) {
    return BlockStore::kNone;
  }
  return block;
}

CachingAllocator::Index CachingAllocator::grow(int32_t number, int64_t block_bytes) {
  const Index block = add_segment(caching_segment_bytes(block_bytes), number);
  if (block != BlockStore::kNone) store_.at(block).stamp = pool(number).searches;
  return block;
}

// Idle segments of large blocks go back, those first that were idle for longer than the average, until no
// more than the share is held.
void CachingAllocator::collect_garbage() {
  const int64_t allowed = segment_bytes() + reservable_bytes();
  const auto threshold = static_cast<int64_t>(rules_.gc_share * static_cast<double>(allowed));
  const int64_t target = segment_bytes() - threshold;
  if (target <= 0) return;
  std::vector<Index> idle;
  int64_t total_age = 0;
  for (size_t i = 1; i < pools_.size(); i += 2) {
    store_.list(static_cast<int32_t>(i)).for_each([&](const FreeList::Entry& entry) {
      if (!store_.covers_segment(entry.block)) return;
      idle.push_back(entry.block);
      total_age += idle_searches(entry.block);
    });
  }
  int64_t given_back = 0;
  for (bool found = true; found && given_back < target && !idle.empty();) {
    const double average = static_cast<double>(total_age) / static_cast<double>(idle.size());
    // One pass frees all that are old enough, past the target, as PyTorch's does.
    const auto young = std::stable_partition(idle.begin(), idle.end(), [&](Index block) {
      return static_cast<double>(idle_searches(block)) < average;
    });
    found = young != idle.end();
    for (auto old = young; old != idle.end(); ++old) {
      total_age -= idle_searches(*old);
      given_back += release(*old);
    }
    idle.erase(young, idle.end());
  }
}

// Room for a new segment from cached blocks that are too large to be cut: the smallest that is large enough,
// or else the largest ones, until their sum is.
bool CachingAllocator::release_oversize(int32_t number, int64_t block_bytes) noexcept {
  if (!rules_.limits_splits()) return false;
  const int64_t wanted = std::max(block_bytes, rules_.max_split_bytes);
  int64_t released = 0;
  const Index fitting = store_.best_fit(number, wanted);
  if (fitting != BlockStore::kNone) return store_.covers_segment(fitting) && release(fitting) > 0;
  while (released < wanted) {
    const FreeList::Entry* largest = store_.list(number).largest();
    if (largest == nullptr || largest->bytes < rules_.max_split_bytes) break;
    if (!store_.covers_segment(largest->block)) break;
    released += release(largest->block);
  }
  return released >= wanted;
}

// How often its pool was searched since the block became free.
int64_t CachingAllocator::idle_searches(Index block) const {
  const BlockStore::Block& record = store_.at(block);
  return pools_[static_cast<size_t>(record.list)].searches - record.stamp;
}

}  // namespace headroom
