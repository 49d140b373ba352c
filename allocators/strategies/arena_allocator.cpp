#include "allocators/strategies/arena_allocator.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/bytes.h"

namespace headroom {
namespace {

// RMM's superblock::minimum_size. Larger blocks are cut from the segment.
constexpr int64_t kSuperblockBytes = kMiB;

}  // namespace

ArenaAllocator::ArenaAllocator(Device& device, std::string name, std::optional<Limit> limit)
    : SegmentAllocator(device, std::move(name), limit),
      bytes_(limit ? reservable_bytes() : device.memory().info().free / 2 / kAlignment * kAlignment) {
  if (bytes_ < kAlignment || add_segment(store_, bytes_, BlockStore::kFirstList) == BlockStore::kNone) {
    throw out_of_memory(std::max(bytes_, kAlignment));
  }
}

Allocator::Block ArenaAllocator::do_allocate(int64_t bytes, Stream stream) {
  // It may have been released while nothing was live.
  if (segment_bytes() == 0 && add_segment(store_, bytes_, BlockStore::kFirstList) == BlockStore::kNone)
    return {};
  const auto attempt = [&] {
    return bytes > kSuperblockBytes ? allocate_large(bytes, stream) : allocate_small(arena_of(stream), bytes);
  };
  const Block block = attempt();
  return block.pointer == nullptr && defragment() ? attempt() : block;
}

int64_t ArenaAllocator::do_deallocate(void* pointer, int64_t bytes, Stream stream) noexcept {
  const int32_t user = user_of(stream);
  if (bytes > kSuperblockBytes) return store_.give_back(pointer, bytes, user).bytes;
  if (const int64_t own = arena_of(stream).superblocks.give_back(pointer, bytes, user).bytes) return own;
  const auto found = superblocks_.lower_bound(pointer);
  return found == superblocks_.end() ? 0 : found->second->superblocks.give_back(pointer, bytes, user).bytes;
}

int64_t ArenaAllocator::visits() const {
  int64_t visits = store_.visits();
  for (const Arena& arena : arenas_) visits += arena.superblocks.visits();
  return visits;
}

int64_t ArenaAllocator::do_trim() noexcept {
  defragment();
  return SegmentAllocator::do_trim();
}

int64_t ArenaAllocator::largest_free_block() const {
  int64_t largest = SegmentAllocator::largest_free_block();
  for (const Arena& arena : arenas_) largest = std::max(largest, arena.superblocks.largest_free_bytes());
  return largest;
}

// A superblock is a block of the segment; its own blocks are listed in its place.
void ArenaAllocator::do_snapshot(std::vector<SnapshotSegment>& segments) const {
  SegmentAllocator::do_snapshot(segments);
  std::unordered_map<const void*, std::vector<SnapshotBlock>> superblocks;
  for (const Arena& arena : arenas_) {
    arena.superblocks.for_each_segment([&](Index first) {
      superblocks.emplace(arena.superblocks.at(first).pointer, blocks_from(arena.superblocks, first));
    });
  }
  for (SnapshotSegment& segment : segments) {
    std::vector<SnapshotBlock> blocks;
    for (const SnapshotBlock& whole : segment.blocks) {
      const auto parts = superblocks.find(whole.pointer);
      if (parts == superblocks.end()) {
        blocks.push_back(whole);
      } else {
        blocks.insert(blocks.end(), parts->second.begin(), parts->second.end());
      }
    }
    segment.blocks = std::move(blocks);
  }
}

Allocator::Block ArenaAllocator::allocate_large(int64_t bytes, Stream stream) {
  const Index block = take_first_fit(store_, bytes, stream);
  return block == BlockStore::kNone ? Block{} : handed_out(store_, block, user_of(stream));
}

Allocator::Block ArenaAllocator::allocate_small(Arena& arena, int64_t bytes) {
  Index block = take_first_fit(arena.superblocks, bytes, arena.stream);
  if (block == BlockStore::kNone) {
    const Index superblock = take_first_fit(store_, kSuperblockBytes, arena.stream);
    if (superblock == BlockStore::kNone) return {};
    const BlockStore::Block& record = store_.at(superblock);
    superblocks_[record.pointer] = &arena;
    arena.superblocks.add_segment(record.pointer, record.bytes, BlockStore::kFirstList, record.place);
    block = take_first_fit(arena.superblocks, bytes, arena.stream);
  }
  return handed_out(arena.superblocks, block, user_of(arena.stream));
}

// The first block by address that is large enough, cut to size, or kNone.
ArenaAllocator::Index ArenaAllocator::take_first_fit(BlockStore& store, int64_t bytes, Stream stream) {
  const Index block = store.first_fit(bytes);
  if (block == BlockStore::kNone) return block;
  follow_users(store, block, stream);
  return store.at(block).bytes > bytes ? store.take_head(block, bytes, bytes) : store.take(block, bytes);
}

// Returns superblocks without a live block to the segment; false when there were none.
bool ArenaAllocator::defragment() noexcept {
  bool found = false;
  for (Arena& arena : arenas_) {
    BlockStore& store = arena.superblocks;
    const auto idle = [&] { return store.first_fit(kSuperblockBytes); };  // one that is a single free block
    for (Index block = idle(); block != BlockStore::kNone; block = idle()) {
      const BlockStore::Block& superblock = store.at(block);
      superblocks_.erase(superblock.pointer);
      const Index whole = store_.give_back(superblock.pointer, superblock.bytes, BlockStore::kNobody).block;
      store_.add_users(whole, store, block);
      store.remove_segment(block);
      found = true;
    }
  }
  return found;
}

ArenaAllocator::Arena& ArenaAllocator::arena_of(Stream stream) {
  const auto number = static_cast<size_t>(streams_.number_of(stream));
  if (number == arenas_.size()) arenas_.emplace_back().stream = stream;
  return arenas_[number];
}

}  // namespace headroom
