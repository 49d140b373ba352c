#include "allocators/strategies/stream_ordered_allocator.h"

#include <algorithm>
#include <functional>
#include <utility>

namespace headroom {
namespace {

int64_t offset_of(const void* pointer) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer));
}

}  // namespace

StreamOrderedAllocator::StreamOrderedAllocator(Device& device, std::string name, std::optional<Limit> limit,
                                               int64_t release_threshold_bytes)
    : Allocator(device, std::move(name), limit) {
  pool_ = device.memory().make_stream_ordered_pool(
      {.release_threshold_bytes = release_threshold_bytes,
       .max_bytes = std::min(reservable_bytes(), device.memory().info().total)});
  if (pool_ == nullptr) {
    throw InvalidArgument("strategy stream-ordered: " + device.name() + " has no pool of its own");
  }
}

StreamOrderedAllocator::~StreamOrderedAllocator() {
  for (const Live& live : blocks_) {
    if (live.pointer != nullptr) pool_->release(live.pointer, live.bytes, live.stream);
  }
}

Allocator::Block StreamOrderedAllocator::do_allocate(int64_t bytes, Stream stream) {
  if (unused_ == OffsetTable::kNone) {
    blocks_.emplace_back();
    unused_ = static_cast<int32_t>(blocks_.size() - 1);
  }
  live_.prepare();
  void* pointer = pool_->try_allocate(bytes, stream);
  if (pointer == nullptr) return {};
  Live& live = blocks_[static_cast<size_t>(unused_)];
  live_.insert(offset_of(pointer), unused_);
  unused_ = live.next_unused;
  live = {pointer, bytes, stream};
  live_bytes_ += bytes;
  count_driver_call(DriverCall::kAllocation, pool_->reserved_bytes());
  return {pointer, bytes};
}

int64_t StreamOrderedAllocator::do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  const int32_t found = live_.find(offset_of(pointer));
  if (found == OffsetTable::kNone || blocks_[static_cast<size_t>(found)].bytes != bytes) return 0;
  live_.erase(offset_of(pointer));
  Live& unused = blocks_[static_cast<size_t>(found)] = Live{};
  unused.next_unused = std::exchange(unused_, found);
  live_bytes_ -= bytes;
  pool_->release(pointer, bytes, stream);
  count_driver_call(DriverCall::kRelease, pool_->reserved_bytes());
  return bytes;
}

int64_t StreamOrderedAllocator::do_trim() noexcept {
  const int64_t before = pool_->reserved_bytes();
  pool_->trim(0);
  const int64_t after = pool_->reserved_bytes();
  if (after != before) count_driver_call(DriverCall::kRelease, after);
  return before - after;
}

// The driver maps idle pages on demand, so they count as one block.
int64_t StreamOrderedAllocator::largest_free_block() const {
  const int64_t reserved = pool_->reserved_bytes();
  return std::max<int64_t>(0, std::min(reserved - pool_->used_bytes(), reserved - live_bytes_));
}

// Only the driver knows the pool's segments: they count as one, with idle memory after the blocks.
void StreamOrderedAllocator::do_snapshot(std::vector<SnapshotSegment>& segments) const {
  SnapshotSegment pool;
  pool.bytes = std::max(pool_->reserved_bytes(), live_bytes_);
  for (const Live& live : blocks_) {
    if (live.pointer == nullptr) continue;
    pool.blocks.push_back({live.pointer, live.bytes, live.bytes, SnapshotBlock::State::kActive, live.stream});
  }
  std::ranges::sort(pool.blocks,
                    [](const auto& a, const auto& b) { return std::less<>()(a.pointer, b.pointer); });
  if (pool.bytes > live_bytes_) pool.blocks.push_back({.bytes = pool.bytes - live_bytes_});
  if (pool.bytes > 0) segments.push_back(std::move(pool));
}

}  // namespace headroom
