#include "allocators/strategies/expandable_allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "base/bytes.h"
#include "base/errors.h"

namespace headroom {
namespace {

// PyTorch's: pages of the two pools, and the addresses of a range over the device's memory.
constexpr int64_t kSmallPageBytes = 2 * kMiB, kLargePageBytes = 20 * kMiB;
int64_t range_bytes_for(Device& device) {
  const int64_t total = device.memory().info().total;
  return total + total / 8;
}

VirtualMemory& virtual_memory_for_segments(Device& device) {
  VirtualMemory* memory = device.memory().virtual_memory();
  if (memory == nullptr) {
    throw InvalidArgument(
        fmt::format("expandable segments need virtual memory, which {} does not have", device.description()));
  }
  return *memory;
}

}  // namespace

ExpandableAllocator::ExpandableAllocator(Device& device, std::string name, std::optional<Limit> limit,
                                         CachingRules rules)
    : SegmentAllocator(device, std::move(name), limit),
      device_(device),
      memory_(virtual_memory_for_segments(device)),
      rules_(rules) {}

ExpandableAllocator::~ExpandableAllocator() {
  try {
    wait_for_streams();
  } catch (const Error&) {  // a device that has failed does no more work
  }
  // The base class, which counts driver calls, must still be there.
  for (Lane* lane : own_lanes_) {
    lane->small.clear();
    lane->large.clear();
  }
}

Allocator::Block ExpandableAllocator::do_allocate(int64_t bytes, Stream stream) {
  Lane& lane = lane_of(stream);
  const int64_t block_bytes = rules_.block_bytes(bytes);
  Index block = lane.find(block_bytes);
  if (block == BlockStore::kNone) {
    // PyTorch compares the size of a separate segment with the limit; the pages may be more.
    const int64_t reservable = reservable_bytes();
    if (rules_.segment_bytes(block_bytes) > reservable) return {};
    block = lane.pool_for(block_bytes).grow(block_bytes, reservable);
  }
  if (block == BlockStore::kNone) return {};
  follow_users(lane.pool_for(block_bytes).store, block, stream);
  return lane.take_from(block, block_bytes, bytes);
}

// A block may be freed on another stream than it was allocated on.
int64_t ExpandableAllocator::do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  const int32_t user = user_of(stream);
  Lane* lane = lane_with(pointer);
  return lane == nullptr ? 0 : lane->give_back_from(pointer, bytes, user);
}

int64_t ExpandableAllocator::do_trim() noexcept {
  int64_t released = 0;
  try {
    wait_for_streams();
    for (Lane* lane : own_lanes_) released += lane->large.release_idle() + lane->small.release_idle();
  } catch (const std::exception&) {  // a device that has failed keeps its pages
  }
  return released;
}

int64_t ExpandableAllocator::largest_free_block() const {
  int64_t largest = 0;
  for (const Lane* lane : own_lanes_) {
    for (const ExpandablePool* pool : {&lane->small, &lane->large}) {
      const Index block = pool->store.largest(ExpandablePool::kMapped);
      if (block != BlockStore::kNone) largest = std::max(largest, pool->store.at(block).bytes);
    }
  }
  return largest;
}

void ExpandableAllocator::do_snapshot(std::vector<SnapshotSegment>& segments) const {
  for (const Lane* lane : own_lanes_) {
    add_segments(lane->small, segments);
    add_segments(lane->large, segments);
  }
}

// Each run of mapped pages is a segment, as in PyTorch's snapshots.
void ExpandableAllocator::add_segments(const ExpandablePool& pool,
                                       std::vector<SnapshotSegment>& segments) const {
  pool.for_each_range([&](Index block) {
    bool is_new = true;
    for (; block != BlockStore::kNone; block = pool.store.at(block).next) {
      if (pool.store.is_free(block) && pool.store.at(block).list == ExpandablePool::kUnmapped) {
        is_new = true;
        continue;
      }
      if (is_new) segments.emplace_back().pointer = pool.store.at(block).pointer;
      is_new = false;
      segments.back().blocks.push_back(snapshot_of(pool.store, block));
      segments.back().bytes += pool.store.at(block).bytes;
    }
  });
}

ExpandableAllocator::Lane* ExpandableAllocator::lane_with(const void* pointer) noexcept {
  const auto found = ranges_.lower_bound(pointer);
  return found == ranges_.end() ? nullptr : found->second;
}

ExpandableAllocator::Lane& ExpandableAllocator::lane_of(Stream stream) {
  const int32_t number = streams_.find(stream);
  if (number != StreamNumbers::kNone) return *own_lanes_[static_cast<size_t>(number)];
  auto made = std::make_unique<Lane>(stream, user_of(stream), *this);
  Lane& lane = *made;
  add_lane(std::move(made));
  own_lanes_.push_back(&lane);
  streams_.number_of(stream);
  return lane;
}

void ExpandableAllocator::wait_for_streams() {
  for (const Lane* lane : own_lanes_) device_.streams().record_event(lane->stream())->wait();
}

ExpandableAllocator::Lane::Lane(Stream stream, int32_t user, ExpandableAllocator& owner)
    : StreamLane(stream),
      small(
          owner.memory_, range_bytes_for(owner.device_), kSmallPageBytes,
          [&owner](int64_t bytes, void* address) { owner.count_driver_call(bytes, address); },
          [&owner, this](const void* base) { owner.ranges_[base] = this; }),
      large(
          owner.memory_, range_bytes_for(owner.device_), kLargePageBytes,
          [&owner](int64_t bytes, void* address) { owner.count_driver_call(bytes, address); },
          [&owner, this](const void* base) { owner.ranges_[base] = this; }),
      user_(user),
      rules_(owner.rules_) {}

ExpandableAllocator::Index ExpandableAllocator::Lane::find(int64_t block_bytes) {
  ExpandablePool& pool = pool_for(block_bytes);
  const Index block = pool.find(block_bytes);
  const bool serves = block != BlockStore::kNone && rules_.serves(pool.store.at(block).bytes, block_bytes);
  return serves ? block : BlockStore::kNone;
}

// Unlike those of segments, blocks of all sizes are cut to 512 B, since free pages can always be released.
Allocator::Block ExpandableAllocator::Lane::take_from(Index block, int64_t block_bytes, int64_t bytes) {
  BlockStore& store = pool_for(block_bytes).store;
  const bool cuts = store.at(block).bytes - block_bytes >= CachingRules::kMinBlockBytes;
  return handed_out(store, cuts ? store.take_head(block, block_bytes, bytes) : store.take(block, bytes),
                    user_);
}

int64_t ExpandableAllocator::Lane::give_back_from(const void* pointer, int64_t bytes,
                                                  int32_t last_user) noexcept {
  return pool_for(rules_.block_bytes(bytes)).store.give_back(pointer, bytes, last_user).bytes;
}

Allocator::Block ExpandableAllocator::Lane::take(int64_t bytes) {
  const int64_t block_bytes = rules_.block_bytes(bytes);
  const Index block = find(block_bytes);
  if (block == BlockStore::kNone) return {};
  // A block that another stream used last needs a wait, which takes the slow path.
  const int32_t last_user = pool_for(block_bytes).store.at(block).user;
  if (last_user != user_ && last_user != BlockStore::kNobody) return {};
  return take_from(block, block_bytes, bytes);
}

}  // namespace headroom
