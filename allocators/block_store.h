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
  using Index = int32_t;
  static constexpr Index kNone = -1;
  // Who uses a block or did last, by a number of the strategy's, or:
  static constexpr int32_t kNobody = -1;
  static constexpr int32_t kSeveral = -2;

  // A part of a segment, free or handed out. The blocks of a segment form a chain in address order. One line
  // of cache each.
  struct alignas(64) Block {
    std::byte* pointer = nullptr;
    int64_t bytes = 0;
    int64_t requested_bytes = 0;  // 0: free
    uint64_t place = 0;           // by age of the segment, then by address: the same in every run
    int64_t stamp = 0;            // the strategy's own
    int32_t list = 0;             // where it stands while it is free; the parts of a block inherit it
    int32_t user = kNobody;       // who has it, or had it last; free parts inherit it, too
    Index previous = kNone;
    Index next = kNone;
  };
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
  const FreeList& list(int32_t number) const { return lists_[static_cast<size_t>(number)]; }

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
  // What was handed out, by address: open addressing with linear probing, at most half full.
  struct Slot {
    const void* pointer = nullptr;
    Index block = kNone;
  };

  bool is_free_in(Index block, int32_t list) const {
    return block != kNone && at(block).requested_bytes == 0 && at(block).list == list;
  }
  Index split(Index block, int64_t bytes);
  Returned put_back(Index block, int32_t user) noexcept;
  Index join_and_list(Index block) noexcept;
  void absorb_next(Index block) noexcept;
  void insert_free(Index block);
  void erase_free(Index block) noexcept;
  void enter_handed_out(Index block, int64_t requested_bytes);
  Index erase_handed_out(const void* pointer, int64_t requested_bytes) noexcept;
  Index new_block();
  void recycle(Index block) noexcept;
  size_t home_of(const void* pointer) const;
  void grow_slots();

  std::vector<Block> blocks_;
  std::vector<Index> unused_;
  std::vector<FreeList> lists_;
  std::vector<Slot> slots_;
  size_t handed_out_ = 0;
  int shift_ = 0;  // 64 less the number of bits of a slot's position
  uint64_t segments_made_ = 0;
};

}  // namespace headroom
