#include "allocators/segment_allocator.h"

#include <algorithm>

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

int64_t SegmentAllocator::do_trim() noexcept {
  int64_t given_back = 0;
  store_.for_each_segment([&](Index block) {
    if (store_.covers_segment(block) && store_.is_free(block)) given_back += release(block);
  });
  return given_back;
}

int32_t SegmentAllocator::user_of(Stream stream) {
  const auto found = std::find(streams_.begin(), streams_.end(), stream);
  if (found != streams_.end()) return static_cast<int32_t>(found - streams_.begin());
  streams_.push_back(stream);
  return static_cast<int32_t>(streams_.size() - 1);
}

void SegmentAllocator::follow_user(int32_t user, Stream stream) {
  if (user == BlockStore::kNobody) return;
  for (size_t i = 0; i < streams_.size(); ++i) {
    if ((user == BlockStore::kSeveral || user == static_cast<int32_t>(i)) && !(streams_[i] == stream)) {
      follow(stream, streams_[i]);
    }
  }
}

}  // namespace headroom
