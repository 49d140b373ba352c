#include "allocators/allocator.h"

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <limits>

#include "runtime/core/bytes.h"

namespace headroom {
namespace {

// No device is larger; sizes above are refused before rounding could overflow.
constexpr int64_t kLargestRequest = int64_t{1} << 60;

constexpr int64_t round_down(int64_t bytes, int64_t multiple) {
  return bytes / multiple * multiple;
}

}  // namespace

double Statistics::fragmentation() const {
  const int64_t idle = reserved.current - allocated.current;
  return idle <= 0 ? 0 : static_cast<double>(idle - largest_free_block) / static_cast<double>(idle);
}

Allocator::Allocator(Device& device, std::string name, std::optional<Limit> limit)
    : device_(device), name_(std::move(name)), limit_(limit) {}

void* Allocator::allocate(int64_t bytes, Stream stream) {
  if (bytes < 0) throw InvalidArgument(fmt::format("cannot allocate a negative size: {} bytes", bytes));
  if (bytes == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  Block block;
  if (bytes <= kLargestRequest) {
    const int64_t rounded = round_up(bytes, kAlignment);
    block = do_allocate(rounded, stream);
    if (block.pointer == nullptr && trimming_can_help(rounded) && do_trim() > 0) {
      block = do_allocate(rounded, stream);
      if (block.pointer != nullptr) ++statistics_.retries;
    }
  }
  if (block.pointer == nullptr) {
    ++statistics_.failures;
    throw out_of_memory(bytes);
  }
  ++statistics_.allocations;
  statistics_.requested.add(bytes);
  statistics_.allocated.add(block.bytes);
  return block.pointer;
}

void Allocator::deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  if (pointer == nullptr) return;
  const std::lock_guard lock(mutex_);
  const int64_t block_bytes = do_deallocate(pointer, round_up(bytes, kAlignment), stream);
  if (block_bytes == 0) {
    std::fprintf(stderr, "headroom: %s: deallocate(%p, %lld bytes): no such live block\n", name_.c_str(),
                 pointer, static_cast<long long>(bytes));
    std::abort();
  }
  ++statistics_.deallocations;
  statistics_.requested.add(-bytes);
  statistics_.allocated.add(-block_bytes);
}

int64_t Allocator::trim() noexcept {
  const std::lock_guard lock(mutex_);
  return do_trim();
}

Statistics Allocator::statistics() const {
  const std::lock_guard lock(mutex_);
  Statistics result = statistics_;
  result.largest_free_block = largest_free_block();
  return result;
}

MemoryFacts Allocator::facts(int64_t requested_bytes) const {
  const std::lock_guard lock(mutex_);
  return facts_now(requested_bytes);
}

std::optional<int64_t> Allocator::limit_bytes() const {
  return limit_ ? std::optional(limit_->bytes) : std::nullopt;
}

void* Allocator::reserve(int64_t bytes) {
  if (bytes > reservable_bytes()) return nullptr;
  void* pointer = device_.memory().try_allocate(bytes);
  if (pointer == nullptr) return nullptr;
  ++statistics_.driver_allocations;
  statistics_.reserved.add(bytes);
  return pointer;
}

void Allocator::unreserve(void* pointer, int64_t bytes) noexcept {
  device_.memory().release(pointer, bytes);
  ++statistics_.driver_releases;
  statistics_.reserved.add(-bytes);
}

int64_t Allocator::reservable_bytes() const {
  if (!limit_) return round_down(std::numeric_limits<int64_t>::max(), kAlignment);
  if (limit_->scope == LimitScope::kPool) {
    return round_down(limit_->bytes - statistics_.reserved.current, kAlignment);
  }
  // Pending before held: a library that starts in between is then counted twice, not missed.
  const int64_t pending = device_.pending_library_bytes();
  const int64_t left = limit_->bytes - pending - device_.memory().info().process;
  // Whole pages, because the driver rounds up and the process is charged for it.
  return left <= 0 ? 0 : round_down(left, device_.memory().granularity_bytes());
}

OutOfMemory Allocator::out_of_memory(int64_t requested_bytes) const {
  return OutOfMemory(facts_now(requested_bytes));
}

// The lock is held, but for a constructor's call.
MemoryFacts Allocator::facts_now(int64_t requested_bytes) const {
  const MemoryInfo info = device_.memory().info();
  MemoryFacts facts;
  facts.requested = requested_bytes;
  facts.allocated = statistics_.allocated.current;
  facts.reserved = statistics_.reserved.current;
  facts.largest_free_block = largest_free_block();
  facts.device_free = info.free;
  facts.device_total = info.total;
  facts.others = info.others;
  facts.limit = limit_bytes();
  facts.strategy = name_;
  return facts;
}

// Giving a pool back for a request that no pool within the limit could serve would only risk losing it to
// others.
bool Allocator::trimming_can_help(int64_t bytes) const {
  return !limit_ || bytes <= limit_->bytes;
}

}  // namespace headroom
