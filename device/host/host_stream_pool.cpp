#include "device/host/host_stream_pool.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/bytes.h"

namespace headroom {
namespace {

constexpr int64_t kUnitBytes = 512;  // the driver's packing is unknown; here without gaps, in these units

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
  for (const Mapping& mapping : idle_) pages_.give_back(mapping.pointer, mapping.bytes);
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
  if (has_bytes()) used_.emplace(pointer, rounded);
  used_bytes_ += rounded;
  return pointer;
}

void HostStreamPool::release(void* pointer, int64_t bytes, Stream stream) noexcept {
  const std::lock_guard lock(mutex_);
  spend_(costs_.release_us);
  const int64_t rounded = round_up(bytes, kUnitBytes);
  if (has_bytes()) used_.erase(pointer);
  add_idle(pointer, rounded, stream);
  used_bytes_ -= rounded;
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
  if (taken < missing) {
    ledger_.refuse();
    return false;
  }
  if (!ledger_.try_take(taken)) return false;
  spend_(costs_.grow_us);
  reserved_bytes_ += taken;
  return true;
}

// Returns an idle mapping of exactly that size: the oldest of the same stream, otherwise the newest of any;
// null if there is none.
void* HostStreamPool::take_idle(int64_t bytes, Stream stream) {
  const auto [first, end] = rows_.equal_range(bytes);
  auto found = rows_.end();
  for (auto row = first; row != end; ++row) {
    ++visits_;
    const bool is_own = row->second.stream == stream;
    if (is_own || found == rows_.end() || row->second.newest->age > found->second.newest->age) found = row;
    if (is_own) break;
  }
  if (found == rows_.end()) return nullptr;
  const bool is_own = found->second.stream == stream;
  if (!is_own) streams_.wait(stream, found->second.stream);
  Mapping& idle = is_own ? *found->second.oldest : *found->second.newest;
  void* const pointer = idle.pointer;
  erase_idle(idle, found);
  return pointer;
}

HostStreamPool::Rows::iterator HostStreamPool::find_row(int64_t bytes, Stream stream) {
  const auto [first, end] = rows_.equal_range(bytes);
  const auto found = std::find_if(first, end, [&](const auto& row) { return row.second.stream == stream; });
  return found == end ? rows_.end() : found;
}

void HostStreamPool::add_idle(void* pointer, int64_t bytes, Stream stream) {
  auto row = find_row(bytes, stream);
  if (row == rows_.end()) row = rows_.emplace(bytes, Row{stream});
  Mapping* const before = row->second.newest;
  Mapping& idle = idle_.emplace_back(Mapping{pointer, bytes, stream, releases_++, before});
  idle.place = std::prev(idle_.end());
  (before == nullptr ? row->second.oldest : before->newer) = &idle;
  row->second.newest = &idle;
  idle_bytes_ += bytes;
}

void HostStreamPool::erase_idle(Mapping& idle, Rows::iterator row) {
  idle_bytes_ -= idle.bytes;
  (idle.older == nullptr ? row->second.oldest : idle.older->newer) = idle.newer;
  (idle.newer == nullptr ? row->second.newest : idle.newer->older) = idle.older;
  if (row->second.oldest == nullptr) rows_.erase(row);
  idle_.erase(idle.place);
}

// Frees pages under idle addresses, the oldest first; the stream that gets them next starts after the work
// that used them.
void HostStreamPool::unmap_idle_above(int64_t bytes, const Stream* next) {
  while (idle_bytes_ > bytes) {
    Mapping& mapping = idle_.front();
    if (next != nullptr && !(mapping.stream == *next)) streams_.wait(*next, mapping.stream);
    pages_.give_back(mapping.pointer, mapping.bytes);
    erase_idle(mapping, find_row(mapping.bytes, mapping.stream));
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
