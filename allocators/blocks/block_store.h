// Segments of device memory, divided into blocks that split and merge, with lists of free ones: the
// bookkeeping that strategies share. Knows no driver and no rule for choosing or splitting blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "allocators/blocks/address_tree.h"
#include "allocators/blocks/free_list.h"
#include "allocators/blocks/large_pages.h"
#include "allocators/blocks/user_sets.h"

namespace headroom {

// Stores of different streams are written at the same time, so they share no cache line.
class alignas(128) BlockStore {
 public:
  // The order of free blocks. By size, blocks of equal size by place; new segments come after all others or,
  // with kNewestFirst, before them, as a driver places them. By address there is one list, which needs no
  // add_list(), with first_fit() but without best_fit().
  enum class Order : uint8_t { kBySize, kNewestFirst, kByAddress };
  explicit BlockStore(Order order = Order::kBySize);

  using Block = BlockRecord;
  using Index = Block::Index;
  static constexpr Index kNone = Block::kNone;
  static constexpr int32_t kNobody = Block::kNobody;
  static constexpr int32_t kSeveral = Block::kSeveral;

  struct Returned {
    Index block = kNone;  // now free and merged with its free neighbors; kNone: no such block
    int64_t bytes = 0;    // before merging
  };

  Block& at(Index block) { return blocks_[static_cast<size_t>(block)]; }
  const Block& at(Index block) const { return blocks_[static_cast<size_t>(block)]; }

  // The list that every store has.
  static constexpr int32_t kFirstList = 0;
  // Adds a list of free blocks. Blocks merge only with neighbors of the same list.
  int32_t add_list();

  // A new segment of `bytes` at `base`: one free block, placed by the store's order, or at `place`.
  Index add_segment(void* base, int64_t bytes, int32_t list);
  Index add_segment(void* base, int64_t bytes, int32_t list, uint64_t place);
  // The place of an address that orders blocks as addresses do, and back.
  static uint64_t place_of(int64_t address) { return static_cast<uint64_t>(address) >> kPlaceUnitBits; }
  static int64_t address_at(uint64_t place) { return static_cast<int64_t>(place << kPlaceUnitBits); }
  // Removes a segment that is one free block.
  void remove_segment(Index block) noexcept;
  bool is_free(Index block) const { return at(block).requested_bytes == 0; }
  // Returns true if the block is its whole segment.
  bool covers_segment(Index block) const { return at(block).previous == kNone && at(block).next == kNone; }

  // The smallest free block of the list that has at least `bytes`, or kNone.
  Index best_fit(int32_t list, int64_t bytes);
  // The free block after this one in its list, in order of size and place, or kNone.
  Index next_larger(Index block) const {
    return lists_[static_cast<size_t>(at(block).list)].after(blocks_.data(), block);
  }
  // The first by place of at least `bytes`, or kNone.
  Index first_fit(int64_t bytes) const { return by_address_.first_fit(bytes); }
  // Returns the number of tree nodes that first_fit and its bookkeeping have examined.
  int64_t visits() const { return by_address_.visits(); }
  // The last in order of size and place, or kNone.
  Index largest(int32_t list) const;
  // Returns the number of free blocks in the list.
  int64_t free_blocks(int32_t list) const { return lists_[static_cast<size_t>(list)].size(); }
  // Calls visit(block) for each free block of the list, in order of size and place.
  template <class Visit>
  void for_each_free(int32_t list, const Visit& visit) const {
    lists_[static_cast<size_t>(list)].for_each(blocks_.data(), visit);
  }
  int64_t largest_free_bytes() const;
  // Hands that block out for `requested_bytes` (> 0), or the first rule(block) bytes of it; 0: nothing. kNone
  // when nothing is handed out.
  template <class Rule>
  Index take_best_fit(int32_t list, int64_t bytes, int64_t requested_bytes, const Rule& rule);
  // Hands a free block out for `requested_bytes` (> 0): all of it, or the first or last `bytes` of a longer
  // one. Returns the block handed out.
  Index take(Index block, int64_t requested_bytes);
  Index take_head(Index block, int64_t bytes, int64_t requested_bytes);
  Index take_tail(Index block, int64_t bytes, int64_t requested_bytes);
  // Frees the block at `pointer` for the same requested bytes, last used by `user`, into its own list or
  // `list`.
  Returned give_back(const void* pointer, int64_t requested_bytes, int32_t user) noexcept;
  Returned give_back(const void* pointer, int64_t requested_bytes, int32_t user, int32_t list) noexcept;
  // The sets that free blocks may have as their users.
  const UserSets& users() const { return users_; }
  // Names another user of a free block: one that is ordered after all it had. A block with a set needs it
  // before it is taken.
  void replace_user(Index block, int32_t user) noexcept {
    users_.release(std::exchange(at(block).user, user));
  }
  // Adds the users of a free block of another store.
  void add_users(Index block, const BlockStore& other, Index others_block) noexcept;
  // Moves `bytes` of a free block, starting at `offset`, to another list, where they merge with their
  // neighbors and have no user. Returns the block that they are part of now.
  Index move_part(Index block, int64_t offset, int64_t bytes, int32_t list);
  // Moves all free blocks of one list to another, where they merge with their neighbors.
  void move_all(int32_t from, int32_t to);

  // Calls visit(block) for the first block of every segment, in any order.
  template <class Visit>
  void for_each_segment(Visit visit) const {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].pointer != nullptr && blocks_[i].previous == kNone) visit(static_cast<Index>(i));
    }
  }

 private:
  static constexpr int kPlaceUnitBits = 8;  // blocks lie at multiples of 256 B

  bool is_free_in(Index block, int32_t list) const {
    return block != kNone && at(block).requested_bytes == 0 && at(block).list == list;
  }
  // Reserves a record and a chain for one more, so that the rest of an operation cannot fail.
  void prepare();
  void grow();
  void add_record();
  void grow_chains();
  Index split(Index block, int64_t bytes) noexcept;
  Returned put_back(Index block, int32_t user) noexcept;
  Index join_and_list(Index block) noexcept;
  void absorb_next(Index block) noexcept;
  void insert_free(Index block) noexcept;
  void erase_free(Index block) noexcept;
  void enter_handed_out(Index block, int64_t requested_bytes) noexcept;
  Index erase_handed_out(const void* pointer, int64_t requested_bytes) noexcept;
  Index new_block() noexcept;
  void recycle(Index block) noexcept;
  Index& chain_of(const void* pointer) noexcept;

  const Order order_;
  std::vector<Block, LargePages<Block>> blocks_;
  Index unused_ = kNone;         // head of a list
  std::vector<FreeList> lists_;  // by size
  AddressTree by_address_;
  UserSets users_;
  // Blocks handed out, by address: a hash table with chains of half a block on average.
  std::vector<Index, LargePages<Index>> chains_;
  size_t handed_out_ = 0;
  int shift_;  // 64 less the number of bits of a chain's index
  uint64_t segments_made_ = 0;
};

// Inline, to be compiled together with a strategy's rule.

template <class Rule>
BlockStore::Index BlockStore::take_best_fit(int32_t list, int64_t bytes, int64_t requested_bytes,
                                            const Rule& rule) {
  prepare();
  FreeList& free = lists_[static_cast<size_t>(list)];
  const FreeList::Place place = free.best_fit(blocks_.data(), bytes);
  if (place.link == nullptr) return kNone;
  const Index block = *place.link;
  const int64_t taken = rule(at(block));
  if (taken == 0) return kNone;
  free.erase(blocks_.data(), place);
  if (taken < at(block).bytes) insert_free(split(block, taken));
  enter_handed_out(block, requested_bytes);
  return block;
}

// Cuts a block to `bytes`; returns the rest, which is in no list yet.
inline BlockStore::Index BlockStore::split(Index block, int64_t bytes) noexcept {
  const Index rest = new_block();
  Block& head = at(block);
  at(rest) = {.pointer = head.pointer + bytes,
              .bytes = head.bytes - bytes,
              .place = head.place + (static_cast<uint64_t>(bytes) >> kPlaceUnitBits),
              .list = head.list,
              .user = head.user,
              .previous = block,
              .next = head.next};
  if (head.next != kNone) at(head.next).previous = rest;
  head.next = rest;
  head.bytes = bytes;
  return rest;
}

inline void BlockStore::insert_free(Index block) noexcept {
  if (order_ == Order::kByAddress) [[unlikely]]
    return by_address_.insert(blocks_.data(), block);
  lists_[static_cast<size_t>(at(block).list)].insert(blocks_.data(), block);
}

inline void BlockStore::erase_free(Index block) noexcept {
  if (order_ == Order::kByAddress) [[unlikely]]
    return by_address_.erase(blocks_.data(), block);
  lists_[static_cast<size_t>(at(block).list)].erase(blocks_.data(), block);
}

inline void BlockStore::enter_handed_out(Index block, int64_t requested_bytes) noexcept {
  Block& record = at(block);
  record.requested_bytes = requested_bytes;
  Index& chain = chain_of(record.pointer);
  record.side[0] = chain;
  chain = block;
  ++handed_out_;
}

inline BlockStore::Index BlockStore::new_block() noexcept {
  return std::exchange(unused_, at(unused_).next);
}

inline void BlockStore::recycle(Index block) noexcept {
  at(block).pointer = nullptr;
  at(block).next = std::exchange(unused_, block);
}

inline void BlockStore::prepare() {
  if (unused_ == kNone || 2 * (handed_out_ + 1) > chains_.size()) [[unlikely]]
    grow();
}

inline BlockStore::Index& BlockStore::chain_of(const void* pointer) noexcept {
  // Fibonacci hashing (Knuth, vol. 3, 6.4): multiply by 2^64 over the golden ratio, keep the upper bits.
  const auto address = static_cast<uint64_t>(reinterpret_cast<uintptr_t>(pointer)) >> kPlaceUnitBits;
  return chains_[static_cast<size_t>((address * 0x9E3779B97F4A7C15u) >> shift_)];
}

}  // namespace headroom
