#include "allocators/stream_lanes.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace headroom {
namespace {

constexpr size_t kFirstSlots = 16;
constexpr int kAttemptsBeforeYield = 100;

// Fibonacci hashing (Knuth, vol. 3, 6.4).
size_t hash_of(Stream stream) {
  const auto handle = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(stream.handle));
  return static_cast<size_t>((handle * 0x9E3779B97F4A7C15u) >> 32);
}

}  // namespace

StreamLanes::Table::Table(size_t size) : mask(size - 1), slots(std::make_unique<Slot[]>(size)) {}

void StreamLanes::Table::insert(StreamLane& lane) noexcept {
  size_t at = hash_of(lane.stream_) & mask;
  while (slots[at].lane.load(std::memory_order_relaxed) != nullptr) at = (at + 1) & mask;
  slots[at].handle = lane.stream_.handle;
  slots[at].lane.store(&lane, std::memory_order_release);
}

StreamLane* StreamLanes::Table::find(Stream stream) const noexcept {
  for (size_t at = hash_of(stream) & mask;; at = (at + 1) & mask) {
    StreamLane* lane = slots[at].lane.load(std::memory_order_acquire);
    if (lane == nullptr || slots[at].handle == stream.handle) return lane;
  }
}

bool StreamLane::enter() noexcept {
  for (int attempt = 0;; ++attempt) {
    State state = State::kFree;
    if (state_.compare_exchange_weak(state, State::kTaken, std::memory_order_acquire)) return true;
    if (state == State::kClosed) return false;
    if (attempt >= kAttemptsBeforeYield)
      std::this_thread::yield();  // whoever is in may have lost its processor
  }
}

void StreamLane::close() noexcept {
  for (;;) {
    State state = State::kFree;
    if (state_.compare_exchange_weak(state, State::kClosed, std::memory_order_acquire)) return;
    if (state == State::kClosed) return;
    if (state == State::kTaken) std::this_thread::yield();
  }
}

StreamLanes::Taken StreamLanes::take(int64_t bytes, int64_t rounded_bytes, Stream stream) {
  StreamLane* lane = find(stream);
  if (lane == nullptr || !lane->enter()) return {};
  const Leave leave(*lane);
  const MemoryBlock block = lane->take(rounded_bytes);
  if (block.pointer == nullptr) return {};
  if (bytes > lane->requested_room_ || block.bytes > lane->allocated_room_) return {block, false};
  lane->requested_room_ -= bytes;
  lane->allocated_room_ -= block.bytes;
  lane->requested_total_ += bytes;
  lane->allocated_total_ += block.bytes;
  ++lane->allocations_;
  return {block, true};
}

bool StreamLanes::give_back(void* pointer, int64_t bytes, int64_t rounded_bytes, Stream stream) noexcept {
  StreamLane* lane = find(stream);
  if (lane == nullptr || !lane->enter()) return false;
  const Leave leave(*lane);
  const int64_t block_bytes = lane->give_back(pointer, rounded_bytes);
  if (block_bytes == 0) return false;
  lane->requested_room_ += bytes;
  lane->allocated_room_ += block_bytes;
  ++lane->deallocations_;
  return true;
}

void StreamLanes::lock() {
  mutex_.lock();
  for (const std::unique_ptr<StreamLane>& lane : lanes_) {
    lane->close();
    const int64_t requested = lane->requested_share_ - std::exchange(lane->requested_room_, 0);
    const int64_t allocated = lane->allocated_share_ - std::exchange(lane->allocated_room_, 0);
    lane->requested_share_ = lane->allocated_share_ = 0;
    statistics_.requested.current += requested;
    statistics_.allocated.current += allocated;
    statistics_.active.current += allocated;
    statistics_.requested.total += std::exchange(lane->requested_total_, 0);
    const int64_t total = std::exchange(lane->allocated_total_, 0);
    statistics_.allocated.total += total;
    statistics_.active.total += total;
    statistics_.allocations += std::exchange(lane->allocations_, 0);
    statistics_.deallocations += std::exchange(lane->deallocations_, 0);
  }
}

void StreamLanes::unlock(bool open) noexcept {
  const auto missing = [](const Gauge& gauge) { return gauge.peak - gauge.current; };
  const int64_t count = std::max<int64_t>(1, static_cast<int64_t>(lanes_.size()));
  const int64_t requested = missing(statistics_.requested) / count;
  const int64_t allocated = std::min(missing(statistics_.allocated), missing(statistics_.active)) / count;
  for (const std::unique_ptr<StreamLane>& lane : lanes_) {
    lane->requested_share_ = lane->requested_room_ = requested;
    lane->allocated_share_ = lane->allocated_room_ = allocated;
    if (open) lane->leave();
  }
  mutex_.unlock();
}

void StreamLanes::add(std::unique_ptr<StreamLane> lane) {
  lanes_.reserve(lanes_.size() + 1);
  const Table* table = table_.load(std::memory_order_relaxed);
  if (table == nullptr || 2 * (lanes_.size() + 1) > table->mask + 1) {
    tables_.push_back(std::make_unique<Table>(table == nullptr ? kFirstSlots : 2 * (table->mask + 1)));
    for (const std::unique_ptr<StreamLane>& each : lanes_) tables_.back()->insert(*each);
    table_.store(tables_.back().get(), std::memory_order_release);
  }
  tables_.back()->insert(*lane);
  lanes_.push_back(std::move(lane));
}

}  // namespace headroom
