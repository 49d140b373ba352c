#include "allocators/strategies/caching_allocator.h"

#include <algorithm>
#include <utility>

namespace headroom {
namespace {

constexpr int32_t kSmallPool = 0, kLargePool = 1;

int32_t pool_of(int64_t block_bytes) {
  return is_small_block(block_bytes) ? kSmallPool : kLargePool;
}

}  // namespace

CachingAllocator::CachingAllocator(Device& device, std::string name, std::optional<Limit> limit,
                                   CachingRules rules, std::optional<int64_t> kernels_after)
    : SegmentAllocator(device, std::move(name), limit), rules_(rules) {
  if (kernels_after) set_places(*kernels_after);
}

// The steps of PyTorch's malloc. When this finds nothing, the base class waits for blocks that other streams
// use and tries again, which PyTorch does not (#189504), then releases all idle segments and tries again.
Allocator::Block CachingAllocator::do_allocate(int64_t bytes, Stream stream) {
  Lane& lane = lane_of(stream);
  const int64_t block_bytes = rules_.block_bytes(bytes);
  const int32_t pool = pool_of(block_bytes);
  ++lane.searches[static_cast<size_t>(pool)];
  Index block = lane.find(pool, block_bytes);
  if (block == BlockStore::kNone) {
    if (collects_garbage()) collect_garbage();
    block = grow(lane, pool, block_bytes);
  }
  if (block == BlockStore::kNone && release_oversize(lane, pool, block_bytes)) {
    block = grow(lane, pool, block_bytes);
  }
  if (block == BlockStore::kNone) return {};
  follow_users(lane.store, block, stream);
  return lane.take_from(block, block_bytes, bytes);
}

// A block may be freed on another stream than it was allocated on.
int64_t CachingAllocator::do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  const int32_t user = user_of(stream);
  Lane* lane = lane_with(pointer);
  return lane == nullptr ? 0 : lane->give_back(pointer, bytes, user);
}

CachingAllocator::Lane* CachingAllocator::lane_with(const void* pointer) noexcept {
  if (own_lanes_.size() == 1) return own_lanes_.front();
  const auto found = lanes_by_store_.find(store_with(pointer));
  return found == lanes_by_store_.end() ? nullptr : found->second;
}

CachingAllocator::Lane& CachingAllocator::lane_of(Stream stream) {
  const int32_t number = streams_.find(stream);
  if (number != StreamNumbers::kNone) return *own_lanes_[static_cast<size_t>(number)];
  // PyTorch takes the lowest address among equal blocks, and drivers hand out mostly falling addresses.
  // Places do not depend on the device, so that a prediction holds on each.
  auto made =
      std::make_unique<Lane>(stream, user_of(stream), new_store(BlockStore::Order::kNewestFirst), rules_);
  Lane& lane = *made;
  lanes_by_store_[&lane.store] = &lane;
  add_lane(std::move(made));
  own_lanes_.push_back(&lane);
  streams_.number_of(stream);
  return lane;
}

CachingAllocator::Index CachingAllocator::grow(Lane& lane, int32_t pool, int64_t block_bytes) {
  int64_t allocations = 0;
  for (const Lane* each : own_lanes_) allocations += each->searches[kSmallPool] + each->searches[kLargePool];
  const Index block = add_segment(lane.store, rules_.segment_bytes(block_bytes), pool, allocations);
  if (block != BlockStore::kNone) lane.store.at(block).stamp = lane.searches[static_cast<size_t>(pool)];
  return block;
}

// Releases idle segments of large blocks, first those idle for longer than the average, until at most the
// share is held.
void CachingAllocator::collect_garbage() {
  const int64_t allowed = segment_bytes() + reservable_bytes();
  const auto threshold = static_cast<int64_t>(rules_.gc_share * static_cast<double>(allowed));
  const int64_t target = segment_bytes() - threshold;
  if (target <= 0) return;
  struct Idle {
    Lane* lane;
    Index block;
    int64_t age() const { return lane->idle_searches(block); }
  };
  std::vector<Idle> idle;
  int64_t total_age = 0;
  for (Lane* lane : own_lanes_) {
    lane->store.for_each_free(kLargePool, [&](Index block) {
      if (!lane->store.covers_segment(block)) return;
      idle.push_back({lane, block});
      total_age += idle.back().age();
    });
  }
  int64_t given_back = 0;
  for (bool found = true; found && given_back < target && !idle.empty();) {
    const double average = static_cast<double>(total_age) / static_cast<double>(idle.size());
    // Like PyTorch's, one pass releases all that are old enough, even past the target.
    const auto young = std::stable_partition(idle.begin(), idle.end(), [&](const Idle& each) {
      return static_cast<double>(each.age()) < average;
    });
    found = young != idle.end();
    for (auto old = young; old != idle.end(); ++old) {
      total_age -= old->age();
      given_back += release(old->lane->store, old->block);
    }
    idle.erase(young, idle.end());
  }
}

// Makes room for a new segment by releasing blocks that are too large to be cut: the smallest that is large
// enough, otherwise the largest ones until their sum is.
bool CachingAllocator::release_oversize(Lane& lane, int32_t pool, int64_t block_bytes) noexcept {
  if (!rules_.limits_splits()) return false;
  BlockStore& store = lane.store;
  const int64_t wanted = std::max(block_bytes, rules_.max_split_bytes);
  int64_t released = 0;
  const Index fitting = store.best_fit(pool, wanted);
  if (fitting != BlockStore::kNone) return store.covers_segment(fitting) && release(store, fitting) > 0;
  while (released < wanted) {
    const Index largest = store.largest(pool);
    if (largest == BlockStore::kNone || store.at(largest).bytes < rules_.max_split_bytes) break;
    if (!store.covers_segment(largest)) break;
    released += release(store, largest);
  }
  return released >= wanted;
}

CachingAllocator::Lane::Lane(Stream stream, int32_t user, BlockStore& blocks, const CachingRules& rules)
    : StreamLane(stream), store(blocks), user_(user), rules_(rules) {
  store.add_list();
  store.add_list();
}

CachingAllocator::Index CachingAllocator::Lane::find(int32_t pool, int64_t block_bytes) {
  const Index block = store.best_fit(pool, block_bytes);
  return block != BlockStore::kNone && rules_.serves(store.at(block).bytes, block_bytes) ? block
                                                                                         : BlockStore::kNone;
}

Allocator::Block CachingAllocator::Lane::take_from(Index block, int64_t block_bytes, int64_t bytes) {
  const bool cuts = rules_.cuts(store.at(block).bytes, block_bytes);
  return handed_out(store, cuts ? store.take_head(block, block_bytes, bytes) : store.take(block, bytes),
                    user_);
}

int64_t CachingAllocator::Lane::give_back(const void* pointer, int64_t bytes, int32_t last_user) noexcept {
  const auto [block, block_bytes] = store.give_back(pointer, bytes, last_user);
  if (block == BlockStore::kNone) return 0;
  store.at(block).stamp = searches[static_cast<size_t>(store.at(block).list)];
  return block_bytes;
}

int64_t CachingAllocator::Lane::idle_searches(Index block) const {
  const BlockStore::Block& record = store.at(block);
  return searches[static_cast<size_t>(record.list)] - record.stamp;
}

// PyTorch would have searched for it.
void CachingAllocator::Lane::note_repeat(int64_t bytes) {
  ++searches[static_cast<size_t>(pool_of(rules_.block_bytes(bytes)))];
}

Allocator::Block CachingAllocator::Lane::take(int64_t bytes) {
  const int64_t block_bytes = rules_.block_bytes(bytes);
  const int32_t pool = pool_of(block_bytes);
  const Index block = store.take_best_fit(pool, block_bytes, bytes, [&](const BlockStore::Block& free) {
    // A block that another stream used last needs a wait, which takes the slow path.
    const bool follows = free.user != user_ && free.user != BlockStore::kNobody;
    if (follows || !rules_.serves(free.bytes, block_bytes)) return int64_t{0};
    return rules_.cuts(free.bytes, block_bytes) ? block_bytes : free.bytes;
  });
  if (block == BlockStore::kNone) return {};
  ++searches[static_cast<size_t>(pool)];
  return handed_out(store, block, user_);
}

}  // namespace headroom
