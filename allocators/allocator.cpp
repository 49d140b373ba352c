#include "allocators/allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <limits>
#include <utility>

#include "allocators/observer.h"
#include "base/bytes.h"

namespace headroom {
namespace {

// No device is larger. Larger sizes are refused before rounding could overflow.
constexpr int64_t kLargestRequest = int64_t{1} << 60;

constexpr int64_t aligned(int64_t bytes) {
  return (bytes + Allocator::kAlignment - 1) & -Allocator::kAlignment;
}

constexpr int64_t round_down(int64_t bytes, int64_t multiple) {
  return bytes / multiple * multiple;
}

}  // namespace

Allocator::Allocator(Device& device, std::string name, std::optional<Limit> limit)
    : device_(device), name_(std::move(name)), limit_(limit), pending_(device) {}

void* Allocator::allocate_for(const MemoryUser* user, int64_t bytes, Stream stream) {
  if (bytes == 0) return nullptr;
  // A single comparison also catches negative sizes.
  if (static_cast<uint64_t>(bytes) > kLargestRequest) return allocate_locked({}, user, bytes, stream);
  const StreamLanes::Taken taken = lanes_.take(bytes, aligned(bytes), stream);
  return taken.counted ? taken.block.pointer : allocate_locked(taken.block, user, bytes, stream);
}

void* Allocator::allocate_locked(Block block, const MemoryUser* named, int64_t bytes, Stream stream) {
  if (bytes < 0) throw InvalidArgument(fmt::format("cannot allocate a negative size: {} bytes", bytes));
  using Kind = AllocatorEvent::Kind;
  constexpr MemoryUser kNobody;
  const MemoryUser& user = named != nullptr ? *named : kNobody;
  const int64_t rounded = bytes <= kLargestRequest ? aligned(bytes) : 0;
  Lock lock(*this, stream);
  if (rounded > 0 && block.pointer == nullptr) {
    block = find_block(rounded, stream);
    for (int attempt = 1; block.pointer == nullptr && handler_ && attempt <= kMaxHandlerCalls; ++attempt) {
      const OutOfMemoryHandler handler = handler_;
      lock.unlock();
      const bool again = handler(bytes, attempt);
      lock.lock();
      if (!again) break;
      block = find_block(rounded, stream);
      if (block.pointer != nullptr) {
        ++statistics_.retries;
        if (observer_) notify({Kind::kRetry, nullptr, bytes, stream, user});
      }
    }
  }
  if (block.pointer == nullptr) {
    ++statistics_.failures;
    if (observer_) {
      notify_device();
      notify({Kind::kOutOfMemory, nullptr, bytes, stream, user});
    }
    OutOfMemory error = out_of_memory(bytes);
    if (!user.op.empty() || !user.tensor.empty()) {
      error.set_user(std::string(user.op), std::string(user.tensor), std::string(user.source));
    }
    throw error;
  }
  ++statistics_.allocations;
  statistics_.requested.add(bytes);
  statistics_.allocated.add(block.bytes);
  statistics_.active.add(block.bytes);
  if (observer_) notify({Kind::kAllocate, block.pointer, bytes, stream, user, block.bytes});
  return block.pointer;
}

// Tries as is, then with cached blocks, then after a wait for pending blocks, then after a trim.
Allocator::Block Allocator::find_block(int64_t bytes, Stream stream) {
  if (!pending_.empty()) finish_pending(false);
  Block block = allocate_and_adopt(bytes, stream);
  if (block.pointer != nullptr) return block;
  if (empty_caches()) block = allocate_and_adopt(bytes, stream);
  if (block.pointer != nullptr) return block;
  bool freed = finish_pending(true);
  if (freed) block = allocate_and_adopt(bytes, stream);
  if (block.pointer == nullptr && trimming_can_help(bytes) && do_trim() > 0) {
    freed = true;
    block = allocate_and_adopt(bytes, stream);
  }
  if (freed && block.pointer != nullptr) {
    ++statistics_.retries;
    if (observer_) notify({AllocatorEvent::Kind::kRetry, nullptr, bytes, stream});
  }
  return block;
}

Allocator::Block Allocator::allocate_and_adopt(int64_t bytes, Stream stream) {
  const Block block = do_allocate(bytes, stream);
  if (block.pointer == nullptr || cache_bytes_ == 0) return block;
  try {
    const auto found =
        std::ranges::find_if(cache_lanes_, [&](const CacheLane* lane) { return lane->stream() == stream; });
    if (found != cache_lanes_.end()) {
      (*found)->adopt(block, bytes);
    } else if (lanes_.has_lane(stream)) {
      cache_bytes_ = 0;  // it is the strategy's own
    } else {
      cache_lanes_.reserve(cache_lanes_.size() + 1);
      auto made = std::make_unique<CacheLane>(stream, cache_bytes_);
      CacheLane& lane = *made;
      lane.adopt(block, bytes);
      lanes_.add(std::move(made));
      cache_lanes_.push_back(&lane);
    }
  } catch (...) {
    do_deallocate(block.pointer, bytes, stream);
    throw;
  }
  return block;
}

bool Allocator::forget(const void* pointer, int64_t bytes) noexcept {
  return std::ranges::any_of(cache_lanes_, [&](CacheLane* lane) { return lane->forget(pointer, bytes); });
}

bool Allocator::empty_caches() noexcept {
  bool any = false;
  for (CacheLane* lane : cache_lanes_) {
    lane->for_each_kept([&](void* pointer, int64_t bytes) {
      do_deallocate(pointer, bytes, lane->stream());
      any = true;
    });
    lane->clear();
  }
  return any;
}

void Allocator::deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  if (pointer == nullptr) return;
  if (!lanes_.give_back(pointer, bytes, aligned(bytes), stream)) {
    deallocate_locked(pointer, bytes, stream);
  }
}

void Allocator::deallocate_locked(void* pointer, int64_t bytes, Stream stream) noexcept {
  const Lock lock(*this, stream);
  if (observer_) notify({AllocatorEvent::Kind::kDeallocate, pointer, bytes, stream});
  ++statistics_.deallocations;
  statistics_.requested.add(-bytes);
  if (!pending_.empty() && pending_.defer(pointer, bytes, stream)) {
    // The block's full size is known, and counted, when it comes back.
    statistics_.allocated.add(-aligned(bytes));
    return;
  }
  const int64_t block_bytes = give_back(pointer, bytes, stream);
  statistics_.allocated.add(-block_bytes);
}

int64_t Allocator::give_back(void* pointer, int64_t bytes, Stream stream) noexcept {
  const int64_t rounded = aligned(bytes);
  const bool live = cache_lanes_.empty() || forget(pointer, rounded);
  const int64_t block_bytes = live ? do_deallocate(pointer, rounded, stream) : 0;
  if (block_bytes == 0) {
    std::fprintf(stderr, "headroom: %s: deallocate(%p, %lld bytes): no such live block\n", name_.c_str(),
                 pointer, static_cast<long long>(bytes));
    std::abort();
  }
  statistics_.active.add(-block_bytes);
  return block_bytes;
}

void Allocator::record_use(void* pointer, Stream stream) {
  const Lock lock(*this);
  pending_.record_use(pointer, stream);
}

bool Allocator::finish_pending(bool wait) {
  return pending_.finish(wait, [this](const PendingBlocks::Pending& pending) {
    const int64_t block_bytes = give_back(pending.pointer, pending.bytes, pending.stream);
    statistics_.allocated.add(aligned(pending.bytes) - block_bytes);
  });
}

int64_t Allocator::trim() noexcept {
  const Lock lock(*this);
  try {
    finish_pending(false);
  } catch (const Error&) {  // the device has failed: pending blocks stay pending
  }
  empty_caches();
  return do_trim();
}

void Allocator::set_out_of_memory_handler(OutOfMemoryHandler handler) {
  const Lock lock(*this);
  handler_ = std::move(handler);
}

void Allocator::follow(Stream stream, Stream freed_on) {
  if (stream == freed_on) return;
  device_.streams().wait(stream, freed_on);
  ++statistics_.stream_waits;
}

std::optional<int64_t> Allocator::limit_bytes() const {
  return limit_ ? std::optional(limit_->bytes) : std::nullopt;
}

void* Allocator::reserve(int64_t bytes) {
  if (bytes > reservable_bytes()) return nullptr;
  void* pointer = device_.memory().try_allocate(bytes);
  if (pointer == nullptr) return nullptr;
  count_driver_call(bytes, pointer);
  return pointer;
}

void Allocator::unreserve(void* pointer, int64_t bytes) noexcept {
  device_.memory().release(pointer, bytes);
  count_driver_call(-bytes, pointer);
}

void Allocator::count_driver_call(int64_t bytes, void* pointer) noexcept {
  ++(bytes > 0   ? statistics_.driver_allocations
     : bytes < 0 ? statistics_.driver_releases
                 : statistics_.driver_mappings);
  statistics_.reserved.add(bytes);
  if (observer_ && bytes != 0) notify_reserved(pointer, bytes);
}

void Allocator::count_driver_call(DriverCall call, int64_t reserved_bytes) {
  ++(call == DriverCall::kAllocation ? statistics_.driver_allocations : statistics_.driver_releases);
  const int64_t change = reserved_bytes - statistics_.reserved.current;
  statistics_.reserved.add(change);
  if (observer_ && change != 0) notify_reserved(nullptr, change);
}

int64_t Allocator::reservable_bytes() const {
  if (!limit_) return round_down(std::numeric_limits<int64_t>::max(), kAlignment);
  if (limit_->scope == LimitScope::kPool) {
    return round_down(limit_->bytes - statistics_.reserved.current, kAlignment);
  }
  // Pending is read first: a library that starts in between is counted twice, not missed.
  const int64_t pending = device_.libraries().pending_bytes();
  const int64_t left = limit_->bytes - pending - device_.memory().info().process;
  // Whole pages, because the driver rounds up.
  return left <= 0 ? 0 : round_down(left, device_.memory().granularity_bytes());
}

// Releasing a pool for a request above the limit would only risk losing it to other processes.
bool Allocator::trimming_can_help(int64_t bytes) const {
  return trimming_makes_room() && (!limit_ || bytes <= limit_->bytes);
}

}  // namespace headroom
