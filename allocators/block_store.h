// Segments of device memory cut into blocks that split and join again, with lists of the free ones: the
// accounts that strategies share. Knows no driver, and no rule of which block to take or when to cut it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "allocators/free_list.h"

namespace headroom {

// Stores of different streams are written at the same time, so they share no line of cache.
class alignas(128) BlockStore {
 public:
  BlockStore();

  using Block = BlockRecord;
  using Index = Block::Index;
  static constexpr Index kNone = Block::kNone;
  static constexpr int32_t kNobody = Block::kNobody;
  static constexpr int32_t kSeveral = Block::kSeveral;

  struct Returned {
    Index block = kNone;  // free now, joined with its free neighbours; kNone: there was no such block
    int64_t bytes = 0;    // before it joined
  };

  Block& at(Index block) { return blocks_[static_cast<size_t>(block)]; }
  const Block& at(Index block) const { return blocks_[static_cast<size_t>(block)]; }

  // The list that every store has.
  static constexpr int32_t kFirstList = 0;
  // A further list of free blocks. Blocks join only with neighbours of the same list.
  int32_t add_list();

  // A new segment of `bytes` at `base`: one free block, behind all others in place or at that one.
  Index add_segment(void* base, int64_t bytes, int32_t list);
  Index add_segment(void* base, int64_t bytes, int32_t list, uint64_t place);
  // Forgets a segment that is one free block.
  void remove_segment(Index block) noexcept;
  bool is_free(Index block) const { return at(block).requested_bytes == 0; }
  // Whether the block is all of its segment.
  bool covers_segment(Index block) const { return at(block).previous == kNone && at(block).next == kNone; }

  // The smallest free block of the list that has at least `bytes`, or kNone.
  Index best_fit(int32_t list, int64_t bytes) const;
  // The first by place.
  Index first_fit(int32_t list, int64_t bytes) const;
  // The last in order of size and place, or kNone.
  Index largest(int32_t list) const;
  // Calls visit(block) for each free block of the list, in order of size and place.
  template <class Visit>
  void for_each_free(int32_t list, const Visit& visit) const {
    lists_[static_cast<size_t>(list)].for_each(blocks_.data(), visit);
  }
  int64_t largest_free_bytes() const;
  // Hands a free block out for `requested_bytes` (> 0): all of it, or of a longer one the first or the last
  // `bytes`. Returns what was handed out, which is a new block for the last ones.
  Index take(Index block, int64_t requested_bytes);
  Index take_head(Index block, int64_t bytes, int64_t requested_bytes);
  Index take_tail(Index block, int64_t bytes, int64_t requested_bytes);
  // Takes back what was handed out at `pointer` for just as many bytes, last used by `user`; into the list it
  // came from, or that one.
  Returned give_back(const void* pointer, int64_t requested_bytes, int32_t user) noexcept;
  Returned give_back(const void* pointer, int64_t requested_bytes, int32_t user, int32_t list) noexcept;
  // Puts all free blocks of one list into another, where they join their neighbours.
  void move_all(int32_t from, int32_t to);

  // Calls visit(block) for the first block of every segment, in no order that means anything.
  template <class Visit>
  void for_each_segment(Visit visit) const {
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].pointer != nullptr && blocks_[i].previous == kNone) visit(static_cast<Index>(i));
    }
  }

 private:
  bool is_free_in(Index block, int32_t list) const {
    return block != kNone && at(block).requested_bytes == 0 && at(block).list == list;
  }
  // Makes sure of a record and a chain for one more, so that what follows cannot fail half way.
  void prepare();
  void grow();
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

  std::vector<Block> blocks_;
  Index unused_ = kNone;  // the first of a chain
  std::vector<FreeList> lists_;
  // What was handed out, by address: chains that begin here, on average of half a block at most.
  std::vector<Index> chains_;
  size_t handed_out_ = 0;
  int shift_;  // 64 less the number of bits of a chain's number
  uint64_t segments_made_ = 0;
};

}  // namespace headroom
