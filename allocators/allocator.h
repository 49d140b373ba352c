// The seam of memory strategies: allocate and deallocate over one device's memory, with limits, statistics,
// streams and observers written once for all strategies. Knows no tensor, no op and no plan.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "allocators/cache_lane.h"
#include "allocators/pending_blocks.h"
#include "allocators/snapshot.h"
#include "allocators/statistics.h"
#include "allocators/stream_lanes.h"
#include "base/errors.h"
#include "device/device.h"

namespace headroom {

struct AllocatorEvent;
struct MemoryUser;

enum class LimitScope : uint8_t {
  kPool,     // memory that this allocator reserves, as in TensorFlow
  kProcess,  // all device memory of the process, including context, libraries and kernels
};

// A cap on the memory that an allocator may reserve.
struct Limit {
  int64_t bytes = 0;
  LimitScope scope = LimitScope::kPool;
  bool is_reserve = false;  // not set by anyone: free memory less a reserve for libraries
};

// A strategy over one device's memory. Public functions check, count and lock; strategies implement the
// private ones. Callers pass the size to deallocate, so no strategy needs a header in device memory.
class Allocator {
 public:
  // Addresses and sizes are multiples of this, as in TensorFlow and RMM; cudaMalloc guarantees it.
  static constexpr int64_t kAlignment = 256;

  // `name` is the strategy's; `device` must outlive this.
  Allocator(Device& device, std::string name, std::optional<Limit> limit);
  // Derived classes release all reserved memory.
  virtual ~Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // Returns memory of `bytes` (>= 0) for work on `stream`; a null pointer for zero bytes. If there is no
  // room, waits for blocks that other streams still use, trims, and calls the out-of-memory handler, retrying
  // after each, before it throws OutOfMemory with the names of `user`. Throws InvalidArgument for a negative
  // size.
  void* allocate(int64_t bytes, Stream stream = {}) { return allocate_for(nullptr, bytes, stream); }
  void* allocate(int64_t bytes, Stream stream, const MemoryUser& user) {
    return allocate_for(&user, bytes, stream);
  }
  // Frees memory from allocate with the same `bytes`; work already queued on `stream` may still use it. A
  // null pointer does nothing. Any other pointer or size aborts the program: continuing would hand out the
  // same memory twice.
  void deallocate(void* pointer, int64_t bytes, Stream stream = {}) noexcept;
  // Notes that `stream` also uses the block: after deallocate it is not reused before the work queued on that
  // stream by then is done.
  void record_use(void* pointer, Stream stream);
  // Releases idle reserved memory to the driver; returns the bytes released.
  int64_t trim() noexcept;

  // Called when there is no room and trimming did not help, with the number of the attempt. It may deallocate
  // blocks of this allocator. Returns true to try again, at most kMaxHandlerCalls times per request.
  using OutOfMemoryHandler = std::function<bool(int64_t requested_bytes, int attempt)>;
  static constexpr int kMaxHandlerCalls = 16;
  void set_out_of_memory_handler(OutOfMemoryHandler handler);
  // The observer gets every event, in order, while the allocator is locked: it must not call back. Memory
  // reserved so far and the device's memory come first.
  void set_observer(std::function<void(const AllocatorEvent&)> observer);
  bool has_observer() const { return static_cast<bool>(observer_); }
  // Passes the caller's own event to the observer, if there is one.
  void observe(const AllocatorEvent& event) const;
  // Reports the free device memory to the observer, if there is one. Call it after other code, such as a
  // library that started, may have allocated memory.
  void observe_device() const;

  // Lets each stream cache up to `max_bytes` of freed blocks, so that threads on different streams seldom
  // wait for each other. Cached blocks count as idle and return to the strategy before a request fails.
  // Strategies that have lanes of their own ignore it. Call it before the first allocation.
  void set_thread_cache(int64_t max_bytes) { cache_bytes_ = max_bytes; }

  // Owns the device of this allocator from now on.
  void keep(std::unique_ptr<Device> device) { own_device_ = std::move(device); }

  Statistics statistics() const;
  // Resets the peaks to the present values.
  void reset_peaks() noexcept;
  // Everything that is held now, block by block; without segments for plugins, which do not say.
  Snapshot snapshot() const;
  // The cap on reserved memory: as set, or as the strategy derived it (free memory less a reserve).
  std::optional<int64_t> limit_bytes() const;
  // The state of memory now, for the error of a library that asked the driver itself for `requested_bytes`
  // (0: unknown).
  MemoryFacts facts(int64_t requested_bytes) const;
  // The device's name in errors. Call it before the first allocation.
  void set_device_name(std::string name) { device_name_ = std::move(name); }
  // "grab-all": the name under which the strategy was chosen.
  const std::string& name() const { return name_; }

 protected:
  using Block = MemoryBlock;

  // Strategies call the driver through these two, which count and keep to the limit. Null when there is no
  // room or the limit forbids it.
  void* reserve(int64_t bytes);
  void unreserve(void* pointer, int64_t bytes) noexcept;
  // Makes work queued on `stream` from now on wait for the work of `freed_on`. Call it before memory freed on
  // one stream is handed out to another.
  void follow(Stream stream, Stream freed_on);
  // Counts a driver call that the strategy made itself, within reservable_bytes(): one that reserved `bytes`,
  // released them (negative), or mapped or unmapped a page (zero), at `pointer` if known.
  void count_driver_call(int64_t bytes, void* pointer = nullptr) noexcept;
  // Counts a driver call of a strategy over another pool, which holds `reserved_bytes` after the call.
  enum class DriverCall : uint8_t { kAllocation, kRelease };
  void count_driver_call(DriverCall call, int64_t reserved_bytes);
  // Sends calls on the lane's stream, which has no lane yet, to the lane first. Call it from do_allocate.
  void add_lane(std::unique_ptr<StreamLane> lane) { lanes_.add(std::move(lane)); }
  // The most that the limit lets reserve() take; the largest multiple of kAlignment without a limit.
  int64_t reservable_bytes() const;
  // The error for a request that found no room.
  OutOfMemory out_of_memory(int64_t requested_bytes) const;

 private:
  // A block of at least `bytes` (> 0, a multiple of kAlignment); a null one when there is no room.
  virtual Block do_allocate(int64_t bytes, Stream stream) = 0;
  // Frees the block with that pointer and rounded size and returns its full size; 0 if there is none.
  virtual int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept = 0;
  // Releases idle reserved memory to the driver; returns the bytes released.
  virtual int64_t do_trim() noexcept = 0;
  // Returns true if releasing idle memory may make room for a request that failed.
  virtual bool trimming_makes_room() const { return true; }
  virtual int64_t largest_free_block() const = 0;
  // Appends all segments, in any order; blocks that wait for other streams count as active.
  virtual void do_snapshot(std::vector<SnapshotSegment>&) const {}
  // Returns the bytes reserved from the driver now; overridden if that changes between calls.
  virtual int64_t reserved_now() const { return statistics_.reserved.current; }

  // Locks the allocator, lanes included.
  class Lock {
   public:
    explicit Lock(const Allocator& allocator) : allocator_(allocator) { lock(); }
    // For a call that the stream's lane could not serve, perhaps because it was closed.
    Lock(const Allocator& allocator, Stream stream) : Lock(allocator) { allocator.lanes_.open(stream); }
    ~Lock() {
      if (locked_) unlock();
    }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    void lock() {
      allocator_.lanes_.lock();
      locked_ = true;
    }
    void unlock() {
      locked_ = false;
      allocator_.lanes_.unlock(allocator_.may_use_lanes());
    }

   private:
    const Allocator& allocator_;
    bool locked_ = false;
  };

  // Lanes do not notify observers and do not know blocks that several streams use.
  bool may_use_lanes() const { return !observer_ && pending_.empty(); }
  void* allocate_for(const MemoryUser* user, int64_t bytes, Stream stream);
  // The slow paths. `block` may be one that is not counted yet.
  void* allocate_locked(Block block, const MemoryUser* user, int64_t bytes, Stream stream);
  void deallocate_locked(void* pointer, int64_t bytes, Stream stream) noexcept;
  Block find_block(int64_t bytes, Stream stream);
  Block allocate_and_adopt(int64_t bytes, Stream stream);
  bool forget(const void* pointer, int64_t bytes) noexcept;
  // Returns the blocks that streams cache to the strategy; true if there were any.
  bool empty_caches() noexcept;
  int64_t give_back(void* pointer, int64_t bytes, Stream stream) noexcept;
  // Frees pending blocks: those whose work is done, or all after a wait. True if there were any.
  bool finish_pending(bool wait);
  // These require an observer.
  void notify(const AllocatorEvent& event) const;
  void notify_reserved(void* pointer, int64_t bytes) const;
  void notify_device() const;
  bool trimming_can_help(int64_t bytes) const;
  Statistics statistics_now() const;
  MemoryFacts facts_now(int64_t requested_bytes) const;

  std::unique_ptr<Device> own_device_;  // destroyed last
  Device& device_;
  const std::string name_;
  std::string device_name_;
  const std::optional<Limit> limit_;
  mutable Statistics statistics_;  // exact while locked
  mutable StreamLanes lanes_{statistics_};
  PendingBlocks pending_;
  int64_t cache_bytes_ = 0;
  std::vector<CacheLane*> cache_lanes_;  // if not empty, every live block is in one of them
  OutOfMemoryHandler handler_;
  std::function<void(const AllocatorEvent&)> observer_;
};

}  // namespace headroom
