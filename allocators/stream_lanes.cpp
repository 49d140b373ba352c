#include "allocators/stream_lanes.h"

#include <algorithm>
#include <thread>
#include <utility>

namespace headroom {
namespace {

constexpr size_t kFirstLaneSlots = 16;
constexpr int kAttemptsWhileTaken = 100;
constexpr int kAttemptsWhileHeld = 2000;  // a few microseconds; counting eight lanes takes one or two

// A lane takes an eighth of the common part. Simulated with eight lanes of 64 blocks of random sizes, one
// call in 5500 counts all lanes and one in 100 touches the common part.
constexpr int64_t kPartTaken = 8;

// Eight threads keep their lanes in any case: stopping so few is cheaper than opening one again. Each
// opening, or call in an open lane, pays for at most kIdleLocks locks.
constexpr size_t kAlwaysOpen = 16;
constexpr int kIdleLocks = 8;

}  // namespace

StreamLanes::Table::Table(size_t size) : mask(size - 1), slots(std::make_unique<Slot[]>(size)) {}

void StreamLanes::Table::insert(StreamLane& lane) noexcept {
  size_t at = hash_of(lane.stream_) & mask;
  while (slots[at].lane.load(std::memory_order_relaxed) != nullptr) at = (at + 1) & mask;
  slots[at].handle = lane.stream_.handle;
  slots[at].lane.store(&lane, std::memory_order_release);
}

bool StreamLane::enter_late() noexcept {
  for (int attempt = 0;; ++attempt) {
    State state = state_.load(std::memory_order_relaxed);
    if (state == State::kFree &&
        state_.compare_exchange_weak(state, State::kTaken, std::memory_order_acquire)) {
      return true;
    }
    if (state == State::kClosed) return false;
    // Not the slow path: each waiting thread would hold all lanes in turn, and none would make progress.
    if (state == State::kHeld && attempt >= kAttemptsWhileHeld) state_.wait(State::kHeld);
    // The thread in the lane may have lost its processor.
    if (state == State::kTaken && attempt >= kAttemptsWhileTaken) std::this_thread::yield();
  }
}

void StreamLane::hold() noexcept {
  for (;;) {
    State state = State::kFree;
    if (state_.compare_exchange_weak(state, State::kHeld, std::memory_order_acquire)) return;
    if (state == State::kClosed) return;
    if (state == State::kTaken) std::this_thread::yield();
  }
}

bool StreamLane::Room::take_from(std::atomic<int64_t>& common, int64_t bytes) noexcept {
  int64_t available = common.load(std::memory_order_relaxed);
  int64_t more = 0;
  do {
    if (bytes - left > available) return false;
    more = std::max(bytes - left, available / kPartTaken);
  } while (!common.compare_exchange_weak(available, available - more, std::memory_order_relaxed));
  left += more;
  share += more;
  return true;
}

void StreamLane::Room::return_to(std::atomic<int64_t>& common) noexcept {
  const int64_t returned = left / 2;
  left -= returned;
  share -= returned;
  common.fetch_add(returned, std::memory_order_relaxed);
}

void StreamLane::Room::count(Gauge& gauge) noexcept {
  gauge.current += share - left;
  gauge.total = sum_of_bytes(gauge.total, std::exchange(total, 0));
  share = left;
}

void StreamLanes::lock() {
  mutex_.lock();
  Gauge allocated;
  for (StreamLane* lane : open_) {
    lane->hold();
    lane->settle();
    lane->requested_.count(statistics_.requested);
    lane->allocated_.count(allocated);
    const bool idle = lane->allocations_ + lane->deallocations_ == 0;
    lane->idle_locks_ = idle ? lane->idle_locks_ + 1 : 0;
    if (!idle) lane->note_calls();
    statistics_.allocations += std::exchange(lane->allocations_, 0);
    statistics_.deallocations += std::exchange(lane->deallocations_, 0);
  }
  lanes_stopped_ += static_cast<int64_t>(open_.size());
  for (Gauge* gauge : {&statistics_.allocated, &statistics_.active}) {
    gauge->current += allocated.current;
    gauge->total = sum_of_bytes(gauge->total, allocated.total);
  }
}

void StreamLanes::open(Stream stream) {
  StreamLane* lane = find(stream);
  if (lane == nullptr || lane->state_.load(std::memory_order_relaxed) != StreamLane::State::kClosed) return;
  open_.push_back(lane);  // add() has reserved the room
  lane->state_.store(StreamLane::State::kHeld, std::memory_order_relaxed);
  lane->idle_locks_ = 0;
}

void StreamLanes::unlock(bool usable) noexcept {
  const bool all = usable && open_.size() <= kAlwaysOpen;
  const auto stays = [&](const StreamLane* lane) {
    return all || (usable && lane->idle_locks_ < kIdleLocks);
  };
  const auto closed = std::partition(open_.begin(), open_.end(), stays);
  std::for_each(closed, open_.end(), [](StreamLane* lane) {
    lane->close();
    lane->state_.notify_all();
  });
  open_.erase(closed, open_.end());

  const auto missing = [](const Gauge& gauge) { return gauge.peak - gauge.current; };
  const int64_t requested = missing(statistics_.requested);
  const int64_t allocated = std::min(missing(statistics_.allocated), missing(statistics_.active));
  const auto count = static_cast<int64_t>(open_.size());
  // A single lane needs no common half.
  const int64_t part = count <= 1 ? 1 : 2 * count;
  const auto set = [&](StreamLane::Room& room, int64_t bytes, int64_t peak) {
    room.share = room.left = bytes / part;
    room.max_left = count <= 1 ? peak : peak / part;
  };
  for (StreamLane* lane : open_) {
    set(lane->requested_, requested, statistics_.requested.peak);
    set(lane->allocated_, allocated, statistics_.allocated.peak);
  }
  common_.requested.store(requested - requested / part * count, std::memory_order_relaxed);
  common_.allocated.store(allocated - allocated / part * count, std::memory_order_relaxed);
  for (StreamLane* lane : open_) {
    lane->leave();
    lane->state_.notify_all();
  }
  mutex_.unlock();
}

void StreamLanes::add(std::unique_ptr<StreamLane> lane) {
  if (lanes_.size() == lanes_.capacity()) lanes_.reserve(2 * lanes_.size() + 1);
  open_.reserve(lanes_.capacity());
  const Table* table = table_.load(std::memory_order_relaxed);
  if (table == nullptr || 2 * (lanes_.size() + 1) > table->mask + 1) {
    tables_.push_back(std::make_unique<Table>(table == nullptr ? kFirstLaneSlots : 2 * (table->mask + 1)));
    for (const std::unique_ptr<StreamLane>& each : lanes_) tables_.back()->insert(*each);
    table_.store(tables_.back().get(), std::memory_order_release);
  }
  tables_.back()->insert(*lane);
  lane->state_.store(StreamLane::State::kHeld, std::memory_order_relaxed);
  open_.push_back(lane.get());
  lanes_.push_back(std::move(lane));
}

}  // namespace headroom
