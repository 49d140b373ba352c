#include "device/host/host_virtual_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <iterator>

#include "base/bytes.h"

namespace headroom {
namespace {

constexpr int64_t kFileBytes = int64_t{1} << 60;
constexpr int64_t kFirstRange = int64_t{1} << 62;  // without backing: above all that can be allocated
constexpr int64_t kHostPageBytes = 4 * kKiB;       // page size of nearly all hosts that CUDA runs on

[[noreturn]] void misuse(const char* call, const char* what) {
  std::fprintf(stderr, "headroom: virtual memory: %s: %s\n", call, what);
  std::abort();
}

// Maps addresses without memory, replacing the mapping at `address` if that is not null.
void* map_nothing(void* address, int64_t bytes) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (address == nullptr ? 0 : MAP_FIXED);
  return mmap(address, static_cast<size_t>(bytes), PROT_NONE, flags, -1, 0);
}

}  // namespace

double CallCost::of(int64_t bytes) const {
  return us + us_per_mib * static_cast<double>(bytes) / static_cast<double>(kMiB);
}

HostVirtualMemory::HostVirtualMemory(MemoryLedger& ledger, int64_t granularity_bytes,
                                     const VirtualMemoryCosts& costs, Backing backing)
    : ledger_(ledger),
      granularity_bytes_(round_up(granularity_bytes, kHostPageBytes)),
      costs_(costs),
      backing_(backing),
      next_range_(static_cast<uintptr_t>(round_up(kFirstRange, granularity_bytes_))) {}

HostVirtualMemory::~HostVirtualMemory() {
  if (backing_ == Backing::kNone) return;
  for (const auto& [base, bytes] : ranges_) munmap(reinterpret_cast<void*>(base), static_cast<size_t>(bytes));
  if (file_ >= 0) close(file_);
}

bool HostVirtualMemory::is_supported() {
  const std::lock_guard lock(mutex_);
  return open_file();
}

void* HostVirtualMemory::try_reserve_range(int64_t bytes) {
  check_multiple(bytes, "reserve");
  const std::lock_guard lock(mutex_);
  driver_time_us_ += costs_.reserve.of(bytes);
  void* base = take_range(bytes);
  if (base != nullptr) ranges_.emplace(reinterpret_cast<uintptr_t>(base), bytes);
  return base;
}

void* HostVirtualMemory::take_range(int64_t bytes) {
  if (backing_ == Backing::kNone) {
    if (bytes > INT64_MAX - static_cast<int64_t>(next_range_)) return nullptr;
    const uintptr_t base = next_range_;
    next_range_ += static_cast<uintptr_t>(bytes);
    return reinterpret_cast<void*>(base);
  }
  // One granule more than asked for, so that an aligned range lies in it; the ends go back.
  void* wide = map_nothing(nullptr, bytes + granularity_bytes_);
  if (wide == MAP_FAILED) return nullptr;
  const auto from = reinterpret_cast<uintptr_t>(wide);
  const auto granule = static_cast<uintptr_t>(granularity_bytes_);
  const uintptr_t base = (from + granule - 1) / granule * granule;
  if (base != from) munmap(wide, base - from);
  munmap(reinterpret_cast<char*>(base) + bytes, from + granule - base);
  return reinterpret_cast<void*>(base);
}

void HostVirtualMemory::release_range(void* base, int64_t bytes) noexcept {
  if (base == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto found = ranges_.find(reinterpret_cast<uintptr_t>(base));
  if (found == ranges_.end() || found->second != bytes) misuse("release range", "no such range");
  const auto mapped = mappings_.lower_bound(found->first);
  if (mapped != mappings_.end() && mapped->first < found->first + static_cast<uintptr_t>(bytes)) {
    misuse("release range", "something is mapped in it");
  }
  driver_time_us_ += costs_.release.of(0);
  if (backing_ == Backing::kHostMemory) munmap(base, static_cast<size_t>(bytes));
  ranges_.erase(found);
}

std::optional<PhysicalBlock> HostVirtualMemory::try_create(int64_t bytes) {
  check_multiple(bytes, "create");
  const std::lock_guard lock(mutex_);
  driver_time_us_ += costs_.create.of(bytes);
  if (bytes > kFileBytes - next_offset_bytes_ || !open_file() || !ledger_.try_take(bytes))
    return std::nullopt;
  // Offset zero is the handle of one granule, so that no handle is zero.
  const auto handle = static_cast<uint64_t>(next_offset_bytes_ + granularity_bytes_);
  next_offset_bytes_ += bytes;
  blocks_[handle] = {.bytes = bytes};
  return PhysicalBlock{handle, bytes};
}

void HostVirtualMemory::release(const PhysicalBlock& block) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = find_block(block, "release");
  driver_time_us_ += costs_.release.of(block.bytes);
  found->second.released = true;
  if (found->second.mappings == 0) give_back(found);
}

bool HostVirtualMemory::try_map(void* address, const PhysicalBlock& block) {
  const std::lock_guard lock(mutex_);
  const auto found = find_block(block, "map");
  const auto at = reinterpret_cast<uintptr_t>(address);
  if (at % static_cast<uintptr_t>(granularity_bytes_) != 0) misuse("map", "the address is not aligned");
  check_free(at, block.bytes);
  driver_time_us_ += costs_.map.of(block.bytes);
  if (backing_ == Backing::kHostMemory) {
    const auto offset = static_cast<off_t>(block.handle) - granularity_bytes_;
    void* mapped = mmap(address, static_cast<size_t>(block.bytes), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_FIXED, file_, offset);
    if (mapped == MAP_FAILED) return false;  // the host has a limit on the number of mappings
  }
  mappings_[at] = block;
  ++found->second.mappings;
  return true;
}

void HostVirtualMemory::unmap(void* address, const PhysicalBlock& block) noexcept {
  const std::lock_guard lock(mutex_);
  const auto found = mappings_.find(reinterpret_cast<uintptr_t>(address));
  if (found == mappings_.end() || found->second.handle != block.handle) misuse("unmap", "no such mapping");
  driver_time_us_ += costs_.unmap.of(block.bytes);
  if (backing_ == Backing::kHostMemory && map_nothing(address, block.bytes) == MAP_FAILED) {
    misuse("unmap", "the host refuses");
  }
  mappings_.erase(found);
  const auto physical = blocks_.find(block.handle);
  if (--physical->second.mappings == 0 && physical->second.released) give_back(physical);
}

double HostVirtualMemory::driver_time_us() const {
  const std::lock_guard lock(mutex_);
  return driver_time_us_;
}

// Not before it is needed: most devices never map anything.
bool HostVirtualMemory::open_file() {
  if (file_ >= 0 || backing_ == Backing::kNone) return true;
  // A file above the limit would end the program with SIGXFSZ.
  rlimit limit = {};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur < static_cast<rlim_t>(kFileBytes)) return false;
  file_ = memfd_create("headroom device memory", MFD_CLOEXEC);
  if (file_ >= 0 && ftruncate(file_, kFileBytes) != 0) {
    close(file_);
    file_ = -1;
  }
  return file_ >= 0;
}

HostVirtualMemory::Blocks::iterator HostVirtualMemory::find_block(const PhysicalBlock& block,
                                                                  const char* call) {
  const auto found = blocks_.find(block.handle);
  if (found == blocks_.end() || found->second.bytes != block.bytes || found->second.released) {
    misuse(call, "no such block");
  }
  return found;
}

void HostVirtualMemory::check_multiple(int64_t bytes, const char* call) const {
  if (bytes <= 0 || bytes % granularity_bytes_ != 0) misuse(call, "not a multiple of the granularity");
}

void HostVirtualMemory::check_free(uintptr_t address, int64_t bytes) const {
  const auto end = address + static_cast<uintptr_t>(bytes);
  const auto range = ranges_.upper_bound(address);
  if (range == ranges_.begin()) misuse("map", "outside every range");
  const auto& [base, range_bytes] = *std::prev(range);
  if (end > base + static_cast<uintptr_t>(range_bytes)) misuse("map", "outside every range");
  const auto next = mappings_.lower_bound(end);
  if (next == mappings_.begin()) return;
  const auto& [at, before] = *std::prev(next);
  if (at + static_cast<uintptr_t>(before.bytes) > address) misuse("map", "something is mapped there");
}

void HostVirtualMemory::give_back(Blocks::iterator block) noexcept {
  const auto offset = static_cast<off_t>(block->first) - granularity_bytes_;
  // The host's pages go back with it. Only a wish: the accounts do not depend on it.
  if (backing_ == Backing::kHostMemory)
    fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offset, block->second.bytes);
  ledger_.give_back(block->second.bytes);
  blocks_.erase(block);
}

}  // namespace headroom
