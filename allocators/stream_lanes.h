// Lanes around an allocator's lock: one stream's part of a strategy, with a lock and counters of its own, so
// that threads on different streams neither wait for each other nor share cache lines. Knows no strategy and
// no driver.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "allocators/statistics.h"
#include "base/bytes.h"
#include "device/stream.h"

namespace headroom {

// A block that an allocator hands out; `bytes` is at least the request.
struct MemoryBlock {
  void* pointer = nullptr;
  int64_t bytes = 0;
};

// Processors fetch cache lines of 64 B in pairs.
inline constexpr size_t kApart = 128;

// Derived by strategies that keep the memory of streams apart.
class alignas(kApart) StreamLane {
 public:
  explicit StreamLane(Stream stream) : stream_(stream) {}
  virtual ~StreamLane() = default;
  StreamLane(const StreamLane&) = delete;
  StreamLane& operator=(const StreamLane&) = delete;

  Stream stream() const { return stream_; }

 private:
  friend class StreamLanes;

  // Other threads may be in other lanes meanwhile, so these two touch nothing but this lane. A block of at
  // least `bytes` (> 0, a multiple of the alignment); a null one when that takes the driver or another
  // stream.
  virtual MemoryBlock take(int64_t bytes) = 0;
  // Frees the block with that pointer and size and returns its full size; 0 when the lane has none.
  virtual int64_t give_back(void* pointer, int64_t bytes) noexcept = 0;

  // Called while the lane is stopped, after such calls.
  virtual void note_calls() noexcept {}

  // Called instead of these two if a block is freed right after it was allocated and allocated again, for
  // clocks that count calls.
  virtual void note_repeat(int64_t /*bytes*/) {}

  // Freeing a block and asking for the same size at once returns the same block, so a free is deferred until
  // the next other call.
  MemoryBlock take_again_or_new(int64_t bytes) {
    if (kept_ && bytes == last_bytes_) {
      kept_ = false;
      note_repeat(bytes);
      return last_;
    }
    settle();
    last_ = take(bytes);
    last_bytes_ = bytes;
    return last_;
  }
  int64_t keep_or_give_back(void* pointer, int64_t bytes) noexcept {
    if (pointer == last_.pointer && bytes == last_bytes_ && !kept_) {
      kept_ = true;
      return last_.bytes;
    }
    settle();
    return give_back(pointer, bytes);
  }
  void settle() noexcept {
    if (kept_) give_back(last_.pointer, last_bytes_);
    kept_ = false;
    last_ = {};
  }

  // The lane's part of the lock on the allocator. A call that finds the lane held waits; one that finds it
  // closed takes the slow path, which begins with a mutex.
  enum class State : uint8_t { kFree, kTaken, kHeld, kClosed };
  // False when the call has to take the slow path.
  bool enter() noexcept {
    State state = State::kFree;
    return state_.compare_exchange_strong(state, State::kTaken, std::memory_order_acquire) || enter_late();
  }
  bool enter_late() noexcept;
  void leave() noexcept { state_.store(State::kFree, std::memory_order_release); }
  // Waits for a call in the lane and keeps others out until leave() or close().
  void hold() noexcept;
  void close() noexcept { state_.store(State::kClosed, std::memory_order_release); }

  // Bytes that may still be allocated here before all lanes together could exceed a peak.
  struct Room {
    int64_t share = 0;  // given to the lane in all
    int64_t left = 0;
    int64_t max_left = 0;  // above this, half of what is left goes back
    int64_t total = 0;     // bytes since the last count

    // Uses `bytes` of it, and of the common part if needed; false when that is not enough.
    bool use(int64_t bytes, std::atomic<int64_t>& common) noexcept {
      if (bytes > left && !take_from(common, bytes)) return false;
      left -= bytes;
      total = sum_of_bytes(total, bytes);
      return true;
    }
    void free(int64_t bytes, std::atomic<int64_t>& common) noexcept {
      left += bytes;
      if (left > max_left) return_to(common);
    }
    bool take_from(std::atomic<int64_t>& common, int64_t bytes) noexcept;
    void return_to(std::atomic<int64_t>& common) noexcept;
    // Adds the counts of this lane to the gauge.
    void count(Gauge& gauge) noexcept;
  };

  const Stream stream_;
  std::atomic<State> state_ = State::kClosed;
  bool kept_ = false;  // the block taken last was freed
  MemoryBlock last_;   // the block taken last, for last_bytes_
  int64_t last_bytes_ = 0;
  Room requested_, allocated_;
  int64_t allocations_ = 0, deallocations_ = 0;  // since the last count
  int idle_locks_ = 0;                           // locks in a row that found nothing to count here
};

// The lanes of one allocator and the lock on all of it. Counts and peaks are exact although fast calls share
// no counter: half of the distance to each peak is divided among the lanes, a lane that needs more uses the
// other half, and once that is used up the slow path counts all open lanes. The lock closes lanes that see no
// calls and opens them again with their next call, so that its cost is that of the calls since the previous
// lock, regardless of the number of streams.
class StreamLanes {
 public:
  // `statistics` must outlive this; they are exact while locked.
  explicit StreamLanes(Statistics& statistics) : statistics_(statistics) {}

  struct Taken {
    MemoryBlock block;  // null: take the slow path
    bool counted = false;
  };
  // A block of `rounded_bytes` from the stream's lane for a request of `bytes`, without the lock on all. A
  // block that is not counted would have raised a peak.
  Taken take(int64_t bytes, int64_t rounded_bytes, Stream stream) {
    StreamLane* lane = find(stream);
    if (lane == nullptr || !lane->enter()) return {};
    const Leave leave(*lane);
    const MemoryBlock block = lane->take_again_or_new(rounded_bytes);
    return {block, block.pointer != nullptr && count_taken(*lane, bytes, block.bytes)};
  }
  // The reverse; false when nothing was done: take the slow path.
  bool give_back(void* pointer, int64_t bytes, int64_t rounded_bytes, Stream stream) noexcept {
    StreamLane* lane = find(stream);
    if (lane == nullptr || !lane->enter()) return false;
    const Leave leave(*lane);
    const int64_t block_bytes = lane->keep_or_give_back(pointer, rounded_bytes);
    if (block_bytes == 0) return false;
    lane->requested_.free(bytes, common_.requested);
    lane->allocated_.free(block_bytes, common_.allocated);
    ++lane->deallocations_;
    return true;
  }

  // Locks everything, lanes included, and adds their counts to the statistics.
  void lock();
  // Sends the next calls on `stream` to its lane again, if it has one. Locked.
  void open(Stream stream);
  // `usable`: true if calls may use lanes from now on.
  void unlock(bool usable) noexcept;
  bool has_lane(Stream stream) const noexcept { return find(stream) != nullptr; }
  // Adds a lane for a stream that has none. Locked.
  void add(std::unique_ptr<StreamLane> lane);
  // Returns the number of lanes that all locks together have stopped, for tests of the cost of a lock.
  int64_t lanes_stopped() const noexcept { return lanes_stopped_; }

 private:
  // Open addressing, at most half full. Slots are filled while others read, and never emptied.
  struct Slot {
    void* handle = nullptr;
    std::atomic<StreamLane*> lane = nullptr;  // null: empty
  };
  struct Table {
    explicit Table(size_t size);
    void insert(StreamLane& lane) noexcept;
    StreamLane* find(Stream stream) const noexcept {
      for (size_t at = hash_of(stream) & mask;; at = (at + 1) & mask) {
        StreamLane* lane = slots[at].lane.load(std::memory_order_acquire);
        if (lane == nullptr || slots[at].handle == stream.handle) return lane;
      }
    }
    // Fibonacci hashing (Knuth, vol. 3, 6.4).
    static size_t hash_of(Stream stream) {
      const auto handle = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(stream.handle));
      return static_cast<size_t>((handle * 0x9E3779B97F4A7C15u) >> 32);
    }

    const size_t mask;
    const std::unique_ptr<Slot[]> slots;
  };

  // Leaves a lane at the end of a call, an exception included.
  struct Leave {
    explicit Leave(StreamLane& lane_left) : lane(lane_left) {}
    ~Leave() { lane.leave(); }
    Leave(const Leave&) = delete;
    Leave& operator=(const Leave&) = delete;
    StreamLane& lane;
  };

  bool count_taken(StreamLane& lane, int64_t bytes, int64_t block_bytes) noexcept {
    if (!lane.requested_.use(bytes, common_.requested)) return false;
    if (!lane.allocated_.use(block_bytes, common_.allocated)) {
      lane.requested_.free(bytes, common_.requested);
      lane.requested_.total -= bytes;
      return false;
    }
    ++lane.allocations_;
    return true;
  }
  StreamLane* find(Stream stream) const noexcept {
    const Table* table = table_.load(std::memory_order_acquire);
    return table == nullptr ? nullptr : table->find(stream);
  }

  Statistics& statistics_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<StreamLane>> lanes_;
  std::vector<StreamLane*> open_;  // the others are closed
  int64_t lanes_stopped_ = 0;
  std::vector<std::unique_ptr<Table>> tables_;  // older ones stay: another thread may be reading them
  // The distance to the peaks that belongs to no lane.
  struct alignas(kApart) Common {
    std::atomic<int64_t> requested = 0, allocated = 0;
  };
  Common common_;
  // Read at each call, so it shares no cache line with anything written.
  alignas(kApart) std::atomic<const Table*> table_ = nullptr;
};

}  // namespace headroom
