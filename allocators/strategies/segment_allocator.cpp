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

SegmentAllocator::Index SegmentAllocator::add_segment(BlockStore& store, int64_t bytes, int32_t list,
                                                      int64_t allocations) {
  void* base = reserve(bytes);
  if (base == nullptr) return BlockStore::kNone;
  segment_bytes_ += bytes;
  segments_[base] = &store;
  if (!places_) return store.add_segment(base, bytes, list);
  return store.add_segment(base, bytes, list, BlockStore::place_of(places_->take(bytes, allocations)));
}

BlockStore* SegmentAllocator::store_with(const void* pointer) const noexcept {
  const auto found = segments_.lower_bound(pointer);
  return found == segments_.end() ? nullptr : found->second;
}

int64_t SegmentAllocator::release(BlockStore& store, Index segment) noexcept {
  void* base = store.at(segment).pointer;
  const int64_t bytes = store.at(segment).bytes;
  if (places_) places_->give_back(BlockStore::address_at(store.at(segment).place), bytes);
  store.remove_segment(segment);
  segments_.erase(base);
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
  if (record.user >= 0) block.stream = streams_[record.user];
  return block;
}

void SegmentAllocator::follow_user(const UserSets& sets, int32_t user, Stream stream) {
  if (user >= 0) return follow(stream, streams_[user]);
  if (UserSets::is_set(user)) {
    sets.for_each(user, [&](int32_t each) { follow(stream, streams_[each]); });
  } else if (user == BlockStore::kSeveral) {
    for (int32_t each = 0; each < streams_.size(); ++each) follow(stream, streams_[each]);
  }
}

void SegmentAllocator::follow_users(BlockStore& store, Index block, Stream stream) {
  const int32_t user = store.at(block).user;
  follow_user(store.users(), user, stream);
  // The next user of the rest of the block needs to wait for this stream only.
  if (user <= BlockStore::kSeveral) store.replace_user(block, user_of(stream));
}

}  // namespace headroom
