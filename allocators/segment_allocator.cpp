#include "allocators/segment_allocator.h"

namespace headroom {

SegmentAllocator::~SegmentAllocator() {
  store_.for_each_segment([this](Index block) {
    void* base = store_.at(block).pointer;
    int64_t bytes = 0;
    for (; block != BlockStore::kNone; block = store_.at(block).next) bytes += store_.at(block).bytes;
    unreserve(base, bytes);
  });
}

SegmentAllocator::Index SegmentAllocator::add_segment(int64_t bytes, int32_t list) {
  void* base = reserve(bytes);
  if (base == nullptr) return BlockStore::kNone;
  segment_bytes_ += bytes;
  return store_.add_segment(base, bytes, list);
}

int64_t SegmentAllocator::release(Index segment) noexcept {
  void* base = store_.at(segment).pointer;
  const int64_t bytes = store_.at(segment).bytes;
  store_.remove_segment(segment);
  unreserve(base, bytes);
  segment_bytes_ -= bytes;
  return bytes;
}

Allocator::Block SegmentAllocator::take_cut(Index block, int64_t bytes, int64_t requested_bytes) {
  store_.take_cut(block, bytes, requested_bytes);
  return {store_.at(block).pointer, bytes};
}

Allocator::Block SegmentAllocator::take_tail(Index block, int64_t bytes, int64_t requested_bytes) {
  const Index tail = store_.take_tail(block, bytes, requested_bytes);
  return {store_.at(tail).pointer, bytes};
}

Allocator::Block SegmentAllocator::take(Index block, int64_t requested_bytes) {
  store_.take(block, requested_bytes);
  return {store_.at(block).pointer, store_.at(block).bytes};
}

int64_t SegmentAllocator::do_trim() noexcept {
  int64_t given_back = 0;
  store_.for_each_segment([&](Index block) {
    if (store_.covers_segment(block) && store_.is_free(block)) given_back += release(block);
  });
  return given_back;
}

}  // namespace headroom
