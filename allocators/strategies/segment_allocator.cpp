#include "allocators/strategies/segment_allocator.h"

#include <algorithm>

namespace headroom {

SegmentAllocator::~SegmentAllocator() {
  for (const std::unique_ptr<BlockStore>& store : stores_) {
    store->for_each_segment([&](Index block) {
      void* base = store->at(block).pointer;
      int64_t bytes = 0;
      for (; block != BlockStore::kNone; block = store->at(block).next) bytes += store->at(block).bytes;
      unreserve(base, bytes);
    });
  }
}

BlockStore& SegmentAllocator::new_store(BlockStore::Order order) {
  return *stores_.emplace_back(std::make_unique<BlockStore>(order));
}

SegmentAllocator::Index SegmentAllocator::add_segment(BlockStore& store, int64_t bytes, int32_t list) {
  void* base = reserve(bytes);
  if (base == nullptr) return BlockStore::kNone;
  segment_bytes_ += bytes;
  return store.add_segment(base, bytes, list);
}

int64_t SegmentAllocator::release(BlockStore& store, Index segment) noexcept {
  void* base = store.at(segment).pointer;
  const int64_t bytes = store.at(segment).bytes;
  store.remove_segment(segment);
  unreserve(base, bytes);
  segment_bytes_ -= bytes;
  return bytes;
}

int64_t SegmentAllocator::do_trim() noexcept {
  int64_t given_back = 0;
  for (const std::unique_ptr<BlockStore>& store : stores_) {
    store->for_each_segment([&](Index block) {
      if (store->covers_segment(block) && store->is_free(block)) given_back += release(*store, block);
    });
  }
  return given_back;
}

int64_t SegmentAllocator::largest_free_block() const {
  int64_t largest = 0;
  for (const std::unique_ptr<BlockStore>& store : stores_) {
    largest = std::max(largest, store->largest_free_bytes());
  }
  return largest;
}

void SegmentAllocator::do_snapshot(std::vector<SnapshotSegment>& segments) const {
  for (const std::unique_ptr<BlockStore>& store : stores_) {
    store->for_each_segment([&](Index first) {
      SnapshotSegment& segment = segments.emplace_back();
      segment.pointer = store->at(first).pointer;
      segment.blocks = blocks_from(*store, first);
      for (const SnapshotBlock& block : segment.blocks) segment.bytes += block.bytes;
    });
  }
}

std::vector<SnapshotBlock> SegmentAllocator::blocks_from(const BlockStore& store, Index index) const {
  std::vector<SnapshotBlock> blocks;
  for (; index != BlockStore::kNone; index = store.at(index).next) {
    blocks.push_back(snapshot_of(store, index));
  }
  return blocks;
}

SnapshotBlock SegmentAllocator::snapshot_of(const BlockStore& store, Index index) const {
  const BlockStore::Block& record = store.at(index);
  SnapshotBlock block;
  block.pointer = record.pointer;
  block.bytes = record.bytes;
  block.requested_bytes = record.requested_bytes;
  if (!store.is_free(index)) block.state = SnapshotBlock::State::kActive;
  if (record.user >= 0) block.stream = streams_[static_cast<size_t>(record.user)];
  return block;
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
