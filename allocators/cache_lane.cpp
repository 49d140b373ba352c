#include "allocators/cache_lane.h"

namespace headroom {
namespace {

constexpr int64_t kUnit = 256;  // unit of addresses and sizes

int64_t address_of(const void* pointer) {
  return static_cast<int64_t>(reinterpret_cast<uintptr_t>(pointer));
}

}  // namespace

CacheLane::CacheLane(Stream stream, int64_t max_bytes)
    : StreamLane(stream), max_bytes_(max_bytes), in_use_(kUnit), sizes_(kUnit) {}

void CacheLane::adopt(const MemoryBlock& block, int64_t bytes) {
  in_use_.prepare();
  int32_t size = sizes_.find(bytes);
  if (size == kNone) {
    sizes_.prepare();
    first_kept_.push_back(kNone);
    size = static_cast<int32_t>(first_kept_.size() - 1);
    sizes_.insert(bytes, size);
  }
  if (unused_ == kNone) {
    records_.emplace_back();
    unused_ = static_cast<int32_t>(records_.size() - 1);
  }
  const int32_t at = unused_;
  unused_ = record(at).next;
  record(at) = {block.pointer, bytes, block.bytes, size, kNone};
  in_use_.insert(address_of(block.pointer), at);
}

bool CacheLane::forget(const void* pointer, int64_t bytes) noexcept {
  const int32_t at = in_use(pointer, bytes);
  if (at == kNone) return false;
  in_use_.erase(address_of(pointer));
  recycle(at);
  return true;
}

void CacheLane::clear() noexcept {
  for (int32_t& first : first_kept_) {
    while (first != kNone) {
      const int32_t at = first;
      first = record(at).next;
      recycle(at);
    }
  }
  kept_bytes_ = 0;
}

MemoryBlock CacheLane::take(int64_t bytes) {
  const int32_t size = sizes_.find(bytes);
  if (size == kNone) return {};
  int32_t& first = first_kept_[static_cast<size_t>(size)];
  if (first == kNone) return {};
  in_use_.prepare();
  const int32_t at = first;
  first = record(at).next;
  kept_bytes_ -= record(at).block_bytes;
  in_use_.insert(address_of(record(at).pointer), at);
  return {record(at).pointer, record(at).block_bytes};
}

int64_t CacheLane::give_back(void* pointer, int64_t bytes) noexcept {
  const int32_t at = in_use(pointer, bytes);
  if (at == kNone || kept_bytes_ + record(at).block_bytes > max_bytes_) return 0;
  in_use_.erase(address_of(pointer));
  kept_bytes_ += record(at).block_bytes;
  int32_t& first = first_kept_[static_cast<size_t>(record(at).size)];
  record(at).next = first;
  first = at;
  return record(at).block_bytes;
}

int32_t CacheLane::in_use(const void* pointer, int64_t bytes) const noexcept {
  const int32_t at = in_use_.find(address_of(pointer));
  return at == kNone || record(at).bytes != bytes ? kNone : at;
}

void CacheLane::recycle(int32_t at) noexcept {
  record(at) = {};
  record(at).next = unused_;
  unused_ = at;
}

}  // namespace headroom
