// The memory strategy seam: who gets which bytes of one device's memory. Two functions, allocate and
// deallocate; what is beside them watches and bounds those. Knows no tensor, no op and no plan.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "allocators/cache_lane.h"
#include "allocators/pending_blocks.h"
#include "allocators/snapshot.h"
#include "allocators/statistics.h"
#include "allocators/stream_lanes.h"
#include "runtime/base/errors.h"
#include "runtime/device/device.h"

namespace headroom {

struct AllocatorEvent;
struct MemoryUser;

enum class LimitScope : uint8_t {
  kPool,     // what this allocator reserves, as in TensorFlow
  kProcess,  // all that the process holds of the device, context, libraries and kernels included
};

// A cap on what an allocator may reserve.
struct Limit {
  int64_t bytes = 0;
  LimitScope scope = LimitScope::kPool;
  bool is_reserve = false;  // nobody set it: it is what was free, less a reserve for libraries
};

// A strategy over one device's memory. Public calls check, count and lock; strategies implement the private
// ones. The caller gives the size back when it deallocates, so no strategy needs a header in device memory.
class Allocator {
 public:
  // Every address and size is rounded to this (TensorFlow's and RMM's figure, and cudaMalloc's guarantee).
  static constexpr int64_t kAlignment = 256;

  // `name` is the strategy's; `device` must outlive this.
  Allocator(Device& device, std::string name, std::optional<Limit> limit);
  // Whoever derives gives all that is reserved back to the driver.
  virtual ~Allocator() = default;
  Allocator(const Allocator&) = delete;
  Allocator& operator=(const Allocator&) = delete;

  // Memory of `bytes` (>= 0) for use on `stream`, whose queued work may write to it at once; zero bytes give
  // a null pointer. Where there is no room, waits for blocks that other streams still use, trims, and asks
  // the out-of-memory handler, with a retry after each, before it throws OutOfMemory with all that is known,
  // the names of `user` included. Throws InvalidArgument for a negative size.
  void* allocate(int64_t bytes, Stream stream = {}) { return allocate_for(nullptr, bytes, stream); }
  void* allocate(int64_t bytes, Stream stream, const MemoryUser& user) {
    return allocate_for(&user, bytes, stream);
  }
  // Takes back what allocate returned for the same `bytes`; work that is queued on `stream` by now may still
  // use it. A null pointer does nothing. Any other pointer or size ends the program: going on would hand the
  // same memory out twice.
  void deallocate(void* pointer, int64_t bytes, Stream stream = {}) noexcept;
  // Notes that work queued on `stream` by the time the block is deallocated uses it, too: it is not handed
  // out again before that is done.
  void record_use(void* pointer, Stream stream);
  // Gives what is reserved and wholly idle back to the driver; returns the bytes given back.
  int64_t trim() noexcept;

  // Called with what was asked for and how often it was tried, when there is no room and nothing of its own
  // helped: may deallocate blocks of this allocator, or make others free memory. True: try again, at most
  // kMaxHandlerCalls times for one request.
  using OutOfMemoryHandler = std::function<bool(int64_t requested_bytes, int attempt)>;
  static constexpr int kMaxHandlerCalls = 16;
  void set_out_of_memory_handler(OutOfMemoryHandler handler);
  // Called for every event, in order, while the allocator is locked: it must not call back. What is reserved
  // by now comes first, and the device's memory.
  void set_observer(std::function<void(const AllocatorEvent&)> observer);
  // Passes an event of the caller's to the observer, if there is one.
  void observe(const AllocatorEvent& event) const;
  // Tells the observer, if there is one, what the driver says of the device's memory: to be called when
  // something other than this allocator may have taken some, such as a library that started.
  void observe_device() const;

  // Lets each stream keep blocks of up to so many bytes that it gave back, for itself, so that threads on
  // streams of their own seldom meet; 0: none. They count as idle, and go back to the strategy before it
  // gives up. Strategies that keep streams apart need none and take none. To be called before the first
  // allocation.
  void set_thread_cache(int64_t most_bytes) { cache_bytes_ = most_bytes; }

  // Takes over the device that this was made on, where nobody else keeps it.
  void keep(std::unique_ptr<Device> device) { own_device_ = std::move(device); }

  Statistics statistics() const;
  // All that is held now, piece by piece; without segments where the strategy does not say (one of a plugin).
  Snapshot snapshot() const;
  // The cap on what this allocator may reserve: as asked for, or as the strategy derived it (device less a
  // reserve).
  std::optional<int64_t> limit_bytes() const;
  // What is known of memory now, for the error of someone who asked the driver for `requested_bytes` past
  // this allocator (0: unknown).
  MemoryFacts facts(int64_t requested_bytes) const;
  // What errors call the device; nothing until it has a name. To be called before the first allocation.
  void set_device_name(std::string name) { device_name_ = std::move(name); }
  // "grab-all": the name under which the strategy was chosen.
  const std::string& name() const { return name_; }

 protected:
  using Block = MemoryBlock;

  // Driver calls of strategies go through these two, which count them and keep to the limit. Null when there
  // is no room or the limit forbids it.
  void* reserve(int64_t bytes);
  void unreserve(void* pointer, int64_t bytes) noexcept;
  // What is queued on `stream` from now on begins after the work of `freed_on`, on which the memory was used
  // last. To be called before memory is handed out to another stream than it came back from.
  void follow(Stream stream, Stream freed_on);
  // What those two do for a driver call that a strategy made itself, within reservable_bytes(): counts one
  // that brought `bytes`, gave them back (a negative number), or mapped or unmapped a page (zero).
  // `pointer` is where, if that is known, for those who watch.
  void count_driver_call(int64_t bytes, void* pointer = nullptr) noexcept;
  // The same count for a strategy whose memory comes from elsewhere, after a call that left it holding
  // `reserved_bytes`.
  enum class DriverCall : uint8_t { kAllocation, kRelease };
  void count_driver_call(DriverCall call, int64_t reserved_bytes);
  // From now on calls on the lane's stream, which must have none yet, go by the lane first. To be called from
  // do_allocate; the lane lives as long as this.
  void add_lane(std::unique_ptr<StreamLane> lane) { lanes_.add(std::move(lane)); }
  // How much one reserve may ask for by the limit alone; the largest multiple of kAlignment without one.
  int64_t reservable_bytes() const;
  // The error for a request that found no room, with what is known now.
  OutOfMemory out_of_memory(int64_t requested_bytes) const;

 private:
  // A block of at least `bytes` (> 0, a multiple of kAlignment), or a null one when there is no room.
  virtual Block do_allocate(int64_t bytes, Stream stream) = 0;
  // Takes the block of that pointer and (rounded) size back and returns its full size; 0 when there is none
  // such.
  virtual int64_t do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept = 0;
  // Gives idle reserved memory back to the driver; returns the bytes given back.
  virtual int64_t do_trim() noexcept = 0;
  // Whether a request that found no room may find it once idle memory has gone back.
  virtual bool trimming_makes_room() const { return true; }
  virtual int64_t largest_free_block() const = 0;
  // Appends what is held, in any order; blocks that wait for other streams count as active.
  virtual void do_snapshot(std::vector<SnapshotSegment>&) const {}
  // Held from the driver now; of interest where that changes between calls.
  virtual int64_t reserved_now() const { return statistics_.reserved.current; }

  // All of this is locked, lanes included.
  class Lock {
   public:
    explicit Lock(const Allocator& allocator) : allocator_(allocator) { lock(); }
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

  // Lanes neither notify anyone nor know of blocks that several streams use.
  bool may_use_lanes() const { return !observer_ && pending_.empty(); }
  void* allocate_for(const MemoryUser* user, int64_t bytes, Stream stream);
  // The long ways; the first may have a block by now that is not counted yet.
  void* allocate_locked(Block block, const MemoryUser* user, int64_t bytes, Stream stream);
  void deallocate_locked(void* pointer, int64_t bytes, Stream stream) noexcept;
  Block find_block(int64_t bytes, Stream stream);
  Block allocate_and_adopt(int64_t bytes, Stream stream);
  bool forget(const void* pointer, int64_t bytes) noexcept;
  // Gives what streams keep back to the strategy; true when that was anything.
  bool empty_caches() noexcept;
  int64_t give_back(void* pointer, int64_t bytes, Stream stream) noexcept;
  // Gives pending blocks back: those that are done, or all after a wait. True when there were any.
  bool finish_pending(bool wait);
  // Only where there is an observer.
  void notify(const AllocatorEvent& event) const;
  void notify_reserved(void* pointer, int64_t bytes) const;
  void notify_device() const;
  bool trimming_can_help(int64_t bytes) const;
  Statistics statistics_now() const;
  MemoryFacts facts_now(int64_t requested_bytes) const;

  std::unique_ptr<Device> own_device_;  // goes last
  Device& device_;
  const std::string name_;
  std::string device_name_;
  const std::optional<Limit> limit_;
  mutable Statistics statistics_;  // right while all is locked
  mutable StreamLanes lanes_{statistics_};
  PendingBlocks pending_;
  int64_t cache_bytes_ = 0;
  std::vector<CacheLane*> cache_lanes_;  // every live block is in one of them, if there are any
  OutOfMemoryHandler handler_;
  std::function<void(const AllocatorEvent&)> observer_;
};

}  // namespace headroom
