#include "runtime/device/host/host_stream_pool.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <tuple>
#include <utility>

#include "runtime/base/bytes.h"

namespace headroom {
namespace {

constexpr int64_t kUnitBytes = 512;  // how the driver packs is not known: here without gaps, in these units

}  // namespace

HostStreamPool::HostStreamPool(const StreamOrderedPoolSettings& settings, MemoryLedger& ledger,
                               HostPages& pages, SimulatedStreams& streams, int64_t granularity_bytes,
                               const StreamPoolCosts& costs, std::function<void(double us)> spend)
    : settings_(settings),
      ledger_(ledger),
      pages_(pages),
      streams_(streams),
      granularity_bytes_(granularity_bytes),
      costs_(costs),
      spend_(std::move(spend)) {
  streams_.call_after_waits(this, [this] {
    const std::lock_guard lock(mutex_);
    shrink_to(settings_.release_threshold_bytes);
  });
}

HostStreamPool::~HostStreamPool() {
  streams_.call_after_waits(this, nullptr);
  for (const auto& [pointer, bytes] : used_) pages_.give_back(pointer, bytes);
  for (const auto& [age, mapping] : idle_) pages_.give_back(mapping.pointer, mapping.bytes);
  ledger_.give_back(reserved_bytes_);
}

void* HostStreamPool::try_allocate(int64_t bytes, Stream stream) {
  const std::lock_guard lock(mutex_);
  spend_(costs_.allocate_us);
  if (bytes > settings_.max_bytes) return nullptr;  // before rounding up, which might overflow
  const int64_t rounded = round_up(bytes, kUnitBytes);
  if (!grow_for(rounded)) return nullptr;
  void* pointer = take_idle(rounded, stream);
  if (pointer == nullptr) {
    unmap_idle_above(reserved_bytes_ - used_bytes_ - rounded, &stream);
    pointer = pages_.take(rounded);
    if (pointer == nullptr) return nullptr;
  }
  used_.emplace(pointer, rounded);
  used_bytes_ += rounded;
  return pointer;
}

void HostStreamPool::release(void* pointer, int64_t, Stream stream) noexcept {
  const std::lock_guard lock(mutex_);
  spend_(costs_.release_us);
  const auto found = used_.find(pointer);
  if (found == used_.end()) return;
  const uint64_t age = releases_++;
  idle_.emplace_hint(idle_.end(), age, Mapping{pointer, found->second, stream});
  idle_by_size_.emplace(found->second, stream.handle, age);
  idle_bytes_ += found->second;
  used_bytes_ -= found->second;
  used_.erase(found);
}

void HostStreamPool::trim(int64_t keep_bytes) noexcept {
  streams_.synchronize_all();
  const std::lock_guard lock(mutex_);
  shrink_to(keep_bytes);
}

int64_t HostStreamPool::reserved_bytes() const {
  const std::lock_guard lock(mutex_);
  return reserved_bytes_;
}

int64_t HostStreamPool::used_bytes() const {
  const std::lock_guard lock(mutex_);
  return used_bytes_;
}

int64_t HostStreamPool::visits() const {
  const std::lock_guard lock(mutex_);
  return visits_;
}

// Idle pages first, wherever they are.
bool HostStreamPool::grow_for(int64_t bytes) {
  const int64_t missing = used_bytes_ + bytes - reserved_bytes_;
  if (missing <= 0) return true;
  // The last page may be cut by the limit.
  const int64_t left = settings_.max_bytes - reserved_bytes_;
  const int64_t taken = std::min(round_up(missing, granularity_bytes_), left);
  if (taken < missing || !ledger_.try_take(taken)) return false;
  spend_(costs_.grow_us);
  reserved_bytes_ += taken;
  return true;
}

// An idle mapping of just that size: the oldest of the same stream, else the newest of any; null when there
// is none.
void* HostStreamPool::take_idle(int64_t bytes, Stream stream) {
  const auto found = find_idle(bytes, stream);
  if (found == idle_.end()) return nullptr;
  if (!(found->second.stream == stream)) streams_.wait(stream, found->second.stream);
  void* const pointer = found->second.pointer;
  erase_idle(found);
  return pointer;
}

HostStreamPool::IdleMappings::iterator HostStreamPool::find_idle(int64_t bytes, Stream stream) {
  constexpr uint64_t kNewest = std::numeric_limits<uint64_t>::max();
  const auto own = idle_by_size_.lower_bound({bytes, stream.handle, 0});
  ++visits_;
  if (own != idle_by_size_.end() && std::get<0>(*own) == bytes && std::get<1>(*own) == stream.handle) {
    return idle_.find(std::get<2>(*own));
  }
  auto found = idle_.end();
  auto each = idle_by_size_.lower_bound({bytes, nullptr, 0});
  while (each != idle_by_size_.end() && std::get<0>(*each) == bytes) {
    const auto behind = idle_by_size_.upper_bound({bytes, std::get<1>(*each), kNewest});
    const uint64_t newest = std::get<2>(*std::prev(behind));
    if (found == idle_.end() || newest > found->first) found = idle_.find(newest);
    each = behind;
    ++visits_;
  }
  return found;
}

void HostStreamPool::erase_idle(IdleMappings::iterator mapping) {
  const auto& [age, idle] = *mapping;
  idle_bytes_ -= idle.bytes;
  idle_by_size_.erase({idle.bytes, idle.stream.handle, age});
  idle_.erase(mapping);
}

// Frees pages under idle addresses, the oldest first; the stream that gets them next starts after the work
// that used them.
void HostStreamPool::unmap_idle_above(int64_t bytes, const Stream* next) {
  while (idle_bytes_ > bytes) {
    const auto oldest = idle_.begin();
    const Mapping& mapping = oldest->second;
    if (next != nullptr && !(mapping.stream == *next)) streams_.wait(*next, mapping.stream);
    pages_.give_back(mapping.pointer, mapping.bytes);
    erase_idle(oldest);
    ++visits_;
  }
}

void HostStreamPool::shrink_to(int64_t keep_bytes) noexcept {
  const int64_t kept = std::max(round_up(used_bytes_, granularity_bytes_), keep_bytes);
  if (kept >= reserved_bytes_) return;
  unmap_idle_above(kept - used_bytes_, nullptr);
  ledger_.give_back(reserved_bytes_ - kept);
  reserved_bytes_ = kept;
}

}  // namespace headroom
