// The blocks and mapped pages of one address range: `mapped` without its driver calls. Knows offsets and
// pages, but no pointer, device or physical page.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "allocators/blocks/counted_bits.h"
#include "allocators/blocks/first_fit_list.h"
#include "allocators/blocks/size_bins.h"

namespace headroom {

// Neighboring pages.
struct PageRow {
  int64_t first = 0, count = 0;
};

// The driver calls for bringing memory to pages of addresses.
struct MappingCalls {
  int64_t known = 0;                        // the members below describe the first ones
  const CountedBits* mapped = nullptr;      // where a page is mapped
  const CountedBits* free = nullptr;        // where that page takes no call
  int32_t in_place_of_another = 1;          // where it does
  int32_t behind = 1;                       // each page after the known ones
  std::span<const PageRow> free_rows = {};  // the rows of `free`

  // Counts all pages before that one.
  int64_t before(int64_t page) const {
    const int64_t within = std::min(page, known);
    const int64_t behind_known = (page - within) * behind;
    if (within == 0) return behind_known;
    const int64_t all = mapped->before(within), free_ones = free->before(within);
    return behind_known + (all - free_ones) * in_place_of_another + (within - all);
  }
};

// Offsets and sizes of blocks are multiples of 512 B. Functions that throw std::bad_alloc change nothing
// then.
class MappedRange {
 public:
  // The mapped free piece from whose lower end a block is cut.
  enum class Fit : uint8_t {
    kBest,  // one of the smallest that are large enough
    kFirst  // the first by address: wastes less between large blocks
  };
  // With kFirst, blocks are larger than this.
  static constexpr int64_t kSmallestOfFirstFit = 64 * 1024;

  // A range of `bytes`, a multiple of `page_bytes` (a power of two), with nothing mapped.
  MappedRange(int64_t bytes, int64_t page_bytes, Fit fit);

  // The offset of a new block, or -1 when no mapped free piece is large enough. Throws std::bad_alloc.
  int64_t take(int64_t bytes);
  // Frees the block at that offset, at that time. Returns the free piece it is part of now, valid until the
  // next change; kNone when there is no such block.
  using Index = int32_t;
  static constexpr Index kNone = -1;
  Index give_back(int64_t offset, int64_t bytes, int64_t time) noexcept;

  // A place for a block if pages were mapped.
  struct Place {
    int64_t offset = -1;
    int64_t missing_pages = 0;  // pages to map under it
    int64_t new_pages = 0;      // missing pages that idle pages cannot provide
    int64_t calls = 0;          // driver calls for the missing pages
    int64_t left_bytes = 0;     // rest of the free run around it
    int32_t run = -1;           // the first piece of that run
  };
  // Returns the place with the fewest new pages, then the fewest driver calls, then the fewest missing pages,
  // then the tightest run, given `idle_pages` here and in other ranges. Its offset is -1 if there is none.
  Place find_place(int64_t bytes, int64_t idle_pages, const MappingCalls& calls = {}) const;
  // The place at that offset, with only its missing pages counted, which are appended to `missing` by
  // address; an offset of -1 if it is not free. Throws std::bad_alloc.
  Place place_at(int64_t offset, int64_t bytes, std::vector<PageRow>& missing);
  // Makes the place a live block and counts all pages under it as mapped; appends those that were not to
  // `missing`, by address. unmap() of those cannot throw afterwards. Throws std::bad_alloc.
  void occupy(const Place& place, int64_t bytes, std::vector<PageRow>& missing);

  // Mapped pages that no live block touches.
  struct IdlePages {
    int64_t first = 0;
    int64_t count = 0;
    int64_t freed_at = 0;  // when the latest block on or next to them was freed
  };
  int64_t idle_pages() const;
  // Returns the number of consecutive idle pages starting at that page.
  int64_t idle_pages_from(int64_t page);
  // The idle pages of a free piece that these bytes of it touch.
  PageRow idle_under(Index piece, int64_t offset, int64_t bytes) const;
  // Calls visit(first page, pages) for each free piece with idle pages, in any order.
  template <typename Visit>
  void for_each_idle(const Visit& visit) const {
    for_each_mapped_piece(page_bytes_, [&](Index index) {
      const Piece& piece = at(index);
      const int64_t pages = idle_pages_in(piece);
      if (pages > 0) visit(round_up(piece.offset) / page_bytes_, pages);
    });
  }
  // The last pages, at most `max_count`, of the piece that has been free for longest; a count of 0 when there
  // are none.
  IdlePages oldest_idle_pages(int64_t max_count) const;
  // Marks idle pages as unmapped. Throws std::bad_alloc.
  void unmap(int64_t first_page, int64_t pages);
  // Marks unmapped pages as mapped and idle since then. Throws std::bad_alloc.
  void map(int64_t first_page, int64_t pages, int64_t freed_at);

  // Returns true if all pages before this one are mapped.
  bool is_mapped_up_to(int64_t page) const {
    return std::ranges::all_of(unmapped_,
                               [&](Index piece) { return at(piece).offset >= page * page_bytes_; });
  }

  int64_t largest_mapped_piece() const;
  // Returns the number of pieces that all searches for places and idle pages have visited.
  int64_t pieces_searched() const { return pieces_searched_; }

  // Calls visit(offset, bytes, live) for each live block and each mapped free piece, by address.
  template <typename Visit>
  void for_each_piece(const Visit& visit) const {
    for (Index piece = first_; piece != kNone; piece = at(piece).next) {
      if (at(piece).state != State::kUnmapped) {
        visit(at(piece).offset, at(piece).bytes, at(piece).state == State::kLive);
      }
    }
  }

 private:
  enum class State : uint8_t { kLive, kMapped, kUnmapped };  // the latter two are free
  // Pieces form a list in address order. Free neighbors of one state are one piece; unmapped pieces are
  // whole pages.
  struct Piece {
    int64_t offset = 0;
    int64_t bytes = 0;  // 0: the record is unused
    int64_t freed_at = 0;
    Index previous = kNone, next = kNone;
    Index bin_previous = kNone, bin_next = kNone;
    State state = State::kUnmapped;

    int64_t end() const { return offset + bytes; }
  };

  size_t unit_of(int64_t offset) const {
    return static_cast<size_t>(offset / (fit_ == Fit::kFirst ? kSmallestOfFirstFit : SizeBins::kUnit));
  }
  int64_t round_down(int64_t bytes) const { return bytes & -page_bytes_; }
  int64_t round_up(int64_t bytes) const { return round_down(bytes + page_bytes_ - 1); }
  int64_t idle_pages_in(const Piece& piece) const;
  void rate(Place& place, int64_t bytes, int64_t idle_pages, const MappingCalls& calls) const;
  Index piece_at(int64_t offset);
  Index piece_at(Index from, int64_t offset) const;
  // The key in by_address_: the piece's end, which stays the same when a block is cut from its lower end.
  static int32_t key_of(const Piece& piece) { return static_cast<int32_t>(piece.end() / SizeBins::kUnit); }
  // Calls visit(index) for each mapped free piece of at least that many bytes, by address with Fit::kFirst.
  template <typename Visit>
  void for_each_mapped_piece(int64_t least_bytes, const Visit& visit) const {
    const auto count_and_visit = [&](Index piece) {
      ++pieces_searched_;
      visit(piece);
    };
    if (fit_ == Fit::kFirst) {
      return by_address_.for_each_with(std::max(1, static_cast<int32_t>(least_bytes / SizeBins::kUnit)),
                                       count_and_visit);
    }
    for (int bin = bins_.first_from(SizeBins::of(least_bytes)); bin >= 0; bin = bins_.first_from(bin + 1)) {
      for (Index piece = heads_[static_cast<size_t>(bin)]; piece != kNone; piece = at(piece).bin_next) {
        count_and_visit(piece);
      }
    }
  }
  void sort_unmapped(size_t max_count) const;
  Place best_of_sorted(int64_t bytes, int64_t idle_pages, const MappingCalls& calls) const;
  void prepare_unmapped(int64_t more);
  void add_unmapped(Index piece) noexcept;
  void remove_unmapped(Index piece) noexcept;

  Index first_fit(int64_t bytes);
  Index best_fit(int64_t bytes) const;
  Index smallest_in(int bin, int64_t bytes) const;
  void insert_free(Index piece) noexcept;
  void erase_free(Index piece) noexcept;
  void prepare(int64_t cuts);
  Index cut(Index piece, int64_t offset) noexcept;
  Index merge_around(Index piece) noexcept;
  void absorb_next(Index piece) noexcept;
  Piece& at(Index piece) { return pieces_[static_cast<size_t>(piece)]; }
  const Piece& at(Index piece) const { return pieces_[static_cast<size_t>(piece)]; }

  const int64_t page_bytes_;
  std::vector<Piece> pieces_;
  Index first_ = 0;       // by address; keeps its index
  Index last_ = 0;        // by address
  Index last_found_ = 0;  // a hint for piece_at; may be reused since
  Index unused_ = kNone;
  int64_t unused_count_ = 0;
  const Fit fit_;
  // Live blocks by offset, in units in which no two blocks start.
  std::vector<Index> live_;
  // Mapped free pieces by size, for Fit::kBest.
  SizeBins bins_;
  std::array<Index, SizeBins::kCount> heads_;
  FirstFitList by_address_;                     // the same, for Fit::kFirst
  std::vector<Index> unmapped_;                 // each piece has its position here in bin_next
  mutable std::vector<Index> sorted_unmapped_;  // scratch of a search
  mutable size_t next_unmapped_ = 0;            // where the next search of a part begins
  mutable int64_t pieces_searched_ = 0;
};

}  // namespace headroom
