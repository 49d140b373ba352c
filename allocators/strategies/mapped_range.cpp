#include "allocators/strategies/mapped_range.h"

#include <tuple>
#include <utility>

namespace headroom {
namespace {

constexpr int kLongestSearch = 32;  // pieces of one size class
// A request searches at most this many unmapped pieces, and the next request continues from there, so that
// the time does not grow with the number of blocks. Trainings have some hundreds.
constexpr size_t kMaxUnmappedSearched = 1024;

}  // namespace

MappedRange::MappedRange(int64_t bytes, int64_t page_bytes, Fit fit)
    : page_bytes_(page_bytes), pieces_(1), fit_(fit) {
  heads_.fill(kNone);
  at(first_).bytes = bytes;
  add_unmapped(first_);
}

int64_t MappedRange::take(int64_t bytes) {
  if (bytes > at(last_).end()) return -1;  // also beyond the numbers of a FirstFitList
  const Index piece = fit_ == Fit::kFirst ? first_fit(bytes) : best_fit(bytes);
  if (piece == kNone) return -1;
  prepare(1);
  const int64_t offset = at(piece).offset;
  const bool is_whole = at(piece).bytes == bytes;
  // With kFirst the rest keeps the piece's entry.
  if (is_whole || fit_ == Fit::kBest) erase_free(piece);
  if (!is_whole) insert_free(cut(piece, offset + bytes));
  at(piece).state = State::kLive;
  live_[unit_of(offset)] = piece;
  return offset;
}

MappedRange::Index MappedRange::give_back(int64_t offset, int64_t bytes, int64_t time) noexcept {
  const size_t unit = unit_of(offset);
  Index piece = unit < live_.size() ? live_[unit] : kNone;
  if (piece == kNone || at(piece).offset != offset || at(piece).bytes != bytes) return kNone;
  live_[unit] = kNone;
  at(piece).state = State::kMapped;
  at(piece).freed_at = time;
  piece = merge_around(piece);
  insert_free(piece);
  return piece;
}

MappedRange::Place MappedRange::find_place(int64_t bytes, int64_t idle_pages,
                                           const MappingCalls& calls) const {
  sort_unmapped(kMaxUnmappedSearched);
  const Place place = best_of_sorted(bytes, idle_pages, calls);
  if (place.offset >= 0 || unmapped_.size() <= kMaxUnmappedSearched) return place;
  sort_unmapped(unmapped_.size());
  return best_of_sorted(bytes, idle_pages, calls);
}

// In the runs of those unmapped pieces.
MappedRange::Place MappedRange::best_of_sorted(int64_t bytes, int64_t idle_pages,
                                               const MappingCalls& calls) const {
  Place best;
  const auto cost = [](const Place& place) {
    return std::tuple(place.new_pages, place.calls, place.missing_pages, place.left_bytes);
  };
  auto row = calls.free_rows.begin();
  // A run without unmapped pages is one piece, which take() has found if it is large enough.
  int64_t end = 0;
  for (const Index unmapped : sorted_unmapped_) {
    if (at(unmapped).offset < end) continue;  // in the run before
    Index run = unmapped;
    while (at(run).previous != kNone && at(at(run).previous).state != State::kLive) run = at(run).previous;
    const int64_t begin = at(run).offset;
    Index after = run;
    for (; after != kNone && at(after).state != State::kLive; after = at(after).next) {
      end = at(after).end();
      ++pieces_searched_;
    }
    const auto consider = [&](int64_t offset) {
      if (offset < begin || offset + bytes > end) return;
      Place place = {.offset = offset, .left_bytes = end - begin - bytes, .run = run};
      rate(place, bytes, idle_pages, calls);
      if (best.offset < 0 || cost(place) < cost(best)) best = place;
    };
    // Only places that share an end with a piece, or with pages that take no call, need be considered: any
    // other could shift to one without touching more pages.
    for (Index piece = run; end - begin >= bytes && piece != after; piece = at(piece).next) {
      consider(at(piece).offset);
      if (at(piece).next != kNone) consider(at(piece).end() - bytes);  // not at the end of all addresses
      if (at(piece).state != State::kUnmapped) continue;
      const int64_t first_page = at(piece).offset / page_bytes_, end_page = at(piece).end() / page_bytes_;
      while (row != calls.free_rows.end() && row->first + row->count <= first_page) ++row;
      for (auto each = row; each != calls.free_rows.end() && each->first < end_page; ++each) {
        consider(std::max(each->first, first_page) * page_bytes_);
        if (const int64_t end_of_row = each->first + each->count; end_of_row < end_page) {
          consider(end_of_row * page_bytes_ - bytes);
        }
      }
      // The first page that never had memory.
      if (calls.known > first_page) consider(calls.known * page_bytes_);
    }
  }
  return best;
}

MappedRange::Place MappedRange::place_at(int64_t offset, int64_t bytes, std::vector<PageRow>& missing) {
  Place place = {.offset = offset, .run = piece_at(offset)};
  const int64_t begin = round_down(offset), end = round_up(offset + bytes);
  int64_t known_to = offset;
  for (Index piece = place.run; known_to < offset + bytes; piece = at(piece).next) {
    if (piece == kNone || at(piece).state == State::kLive) return {};
    known_to = at(piece).end();
    if (at(piece).state != State::kUnmapped) continue;
    const int64_t first = std::max(at(piece).offset, begin) / page_bytes_;
    missing.push_back({first, std::min(known_to, end) / page_bytes_ - first});
    place.missing_pages += missing.back().count;
  }
  return place;
}

void MappedRange::rate(Place& place, int64_t bytes, int64_t idle_pages, const MappingCalls& calls) const {
  const int64_t begin = round_down(place.offset), end = round_up(place.offset + bytes);
  int64_t idle_beneath = 0;
  for (Index index = piece_at(place.run, place.offset); index != kNone && at(index).offset < end;
       index = at(index).next) {
    const int64_t from = std::max(round_up(at(index).offset), begin);
    const int64_t to = std::min(round_down(at(index).end()), end);
    if (to <= from || at(index).state == State::kLive) continue;
    const int64_t pages = (to - from) / page_bytes_;
    if (at(index).state == State::kMapped) {
      idle_beneath += pages;
      continue;
    }
    place.missing_pages += pages;
    place.calls += calls.before(to / page_bytes_) - calls.before(from / page_bytes_);
  }
  place.new_pages = std::max<int64_t>(0, place.missing_pages - (idle_pages - idle_beneath));
}

void MappedRange::occupy(const Place& place, int64_t bytes, std::vector<PageRow>& missing) {
  prepare(4 + 2 * place.missing_pages);
  prepare_unmapped(4 + 2 * place.missing_pages);
  missing.reserve(missing.size() + static_cast<size_t>(place.missing_pages));
  const int64_t begin = place.offset, end = begin + bytes;
  const size_t units = unit_of(round_up(end) - 1) + 1;
  if (units > live_.size()) live_.resize(std::max(units, 2 * live_.size()), kNone);
  for (Index piece = piece_at(place.run, begin); piece != kNone && at(piece).offset < end;
       piece = at(piece).next) {
    if (at(piece).state != State::kUnmapped) continue;
    const int64_t from = std::max(at(piece).offset, round_down(begin));
    const int64_t to = std::min(at(piece).end(), round_up(end));
    if (at(piece).offset < from) piece = cut(piece, from);
    if (to < at(piece).end()) cut(piece, to);
    remove_unmapped(piece);
    at(piece).state = State::kMapped;
    insert_free(piece);
    missing.push_back({from / page_bytes_, (to - from) / page_bytes_});
  }
  Index block = piece_at(place.run, begin);
  erase_free(block);
  while (at(block).end() < end) {
    erase_free(at(block).next);
    absorb_next(block);
  }
  Index before = kNone, behind = kNone;
  if (at(block).offset < begin) {
    before = block;
    block = cut(block, begin);
  }
  if (end < at(block).end()) behind = cut(block, end);
  at(block).state = State::kLive;
  live_[unit_of(begin)] = block;
  if (before != kNone) insert_free(merge_around(before));
  if (behind != kNone) insert_free(merge_around(behind));
}

int64_t MappedRange::idle_pages() const {
  int64_t pages = 0;
  for_each_mapped_piece(page_bytes_, [&](Index piece) { pages += idle_pages_in(at(piece)); });
  return pages;
}

PageRow MappedRange::idle_under(Index index, int64_t offset, int64_t bytes) const {
  const Piece& piece = at(index);
  const int64_t begin = std::max(round_up(piece.offset), round_down(offset));
  const int64_t end = std::min(round_down(piece.end()), round_up(offset + bytes));
  return {begin / page_bytes_, std::max<int64_t>(0, end - begin) / page_bytes_};
}

int64_t MappedRange::idle_pages_from(int64_t page) {
  const Piece& piece = at(piece_at(page * page_bytes_));
  if (piece.state != State::kMapped) return 0;
  return std::max<int64_t>(0, round_down(piece.end()) / page_bytes_ - page);
}

MappedRange::IdlePages MappedRange::oldest_idle_pages(int64_t max_count) const {
  IdlePages oldest;
  for_each_mapped_piece(page_bytes_, [&](Index index) {
    const Piece& piece = at(index);
    const int64_t pages = std::min(idle_pages_in(piece), max_count);
    if (pages <= 0 || (oldest.count > 0 && oldest.freed_at <= piece.freed_at)) return;
    oldest = {round_down(piece.end()) / page_bytes_ - pages, pages, piece.freed_at};
  });
  return oldest;
}

void MappedRange::unmap(int64_t first_page, int64_t pages) {
  prepare(2);
  prepare_unmapped(1);
  const int64_t begin = first_page * page_bytes_, end = begin + pages * page_bytes_;
  Index piece = piece_at(begin);
  erase_free(piece);
  if (at(piece).offset < begin) {
    const Index rest = cut(piece, begin);
    insert_free(piece);
    piece = rest;
  }
  if (end < at(piece).end()) insert_free(cut(piece, end));
  at(piece).state = State::kUnmapped;
  add_unmapped(piece);
  merge_around(piece);
}

void MappedRange::map(int64_t first_page, int64_t pages, int64_t freed_at) {
  prepare(2);
  prepare_unmapped(2);
  const int64_t begin = first_page * page_bytes_, end = begin + pages * page_bytes_;
  Index piece = piece_at(begin);
  if (at(piece).offset < begin) piece = cut(piece, begin);
  if (end < at(piece).end()) cut(piece, end);
  remove_unmapped(piece);
  at(piece).state = State::kMapped;
  at(piece).freed_at = freed_at;
  insert_free(merge_around(piece));
}

int64_t MappedRange::largest_mapped_piece() const {
  int64_t largest = 0;
  for_each_mapped_piece(0, [&](Index piece) { largest = std::max(largest, at(piece).bytes); });
  return largest;
}

int64_t MappedRange::idle_pages_in(const Piece& piece) const {
  return std::max<int64_t>(0, round_down(piece.end()) - round_up(piece.offset)) / page_bytes_;
}

// Starts from the next free piece, or from the last one found: lists are slow to walk.
MappedRange::Index MappedRange::piece_at(int64_t offset) {
  Index piece = last_found_;
  if (fit_ == Fit::kFirst) {
    const Index above = by_address_.first_above(static_cast<int32_t>(offset / SizeBins::kUnit));
    if (above != kNone) piece = above;
  }
  if (at(piece).bytes == 0) piece = first_;
  while (at(piece).offset > offset) piece = at(piece).previous;
  return last_found_ = piece_at(piece, offset);
}

MappedRange::Index MappedRange::piece_at(Index from, int64_t offset) const {
  while (at(from).end() <= offset) from = at(from).next;
  return from;
}

// Sorts at most `max_count`, including the last piece, which has room for any block after it.
void MappedRange::sort_unmapped(size_t max_count) const {
  if (unmapped_.size() <= max_count) {
    sorted_unmapped_ = unmapped_;
  } else {
    sorted_unmapped_.clear();
    for (size_t i = 0; i < max_count; ++i) {
      next_unmapped_ = next_unmapped_ + 1 < unmapped_.size() ? next_unmapped_ + 1 : 0;
      if (unmapped_[next_unmapped_] != last_) sorted_unmapped_.push_back(unmapped_[next_unmapped_]);
    }
    if (at(last_).state == State::kUnmapped) sorted_unmapped_.push_back(last_);
  }
  std::ranges::sort(sorted_unmapped_, [&](Index a, Index b) { return at(a).offset < at(b).offset; });
}

// Reserves room for more unmapped pieces, so that later steps cannot fail.
void MappedRange::prepare_unmapped(int64_t more) {
  const size_t wanted = unmapped_.size() + static_cast<size_t>(more);
  if (wanted > unmapped_.capacity()) unmapped_.reserve(std::max(wanted, 2 * unmapped_.size()));
}

inline void MappedRange::add_unmapped(Index piece) noexcept {
  at(piece).bin_next = static_cast<Index>(unmapped_.size());
  unmapped_.push_back(piece);
}

inline void MappedRange::remove_unmapped(Index piece) noexcept {
  const Index position = at(piece).bin_next;
  unmapped_[static_cast<size_t>(position)] = unmapped_.back();
  at(unmapped_.back()).bin_next = position;
  unmapped_.pop_back();
}

inline MappedRange::Index MappedRange::first_fit(int64_t bytes) {
  return by_address_.first_with(static_cast<int32_t>(bytes / SizeBins::kUnit));
}

inline MappedRange::Index MappedRange::best_fit(int64_t bytes) const {
  const int bin = SizeBins::of(bytes);
  // Pieces of the same class may be too small; those of later classes are not.
  if (heads_[static_cast<size_t>(bin)] != kNone) {
    if (const Index piece = smallest_in(bin, bytes); piece != kNone) return piece;
  }
  const int later = bins_.first_from(bin + 1);
  return later < 0 ? kNone : smallest_in(later, bytes);
}

inline MappedRange::Index MappedRange::smallest_in(int bin, int64_t bytes) const {
  Index best = kNone;
  int looked_at = 0;
  for (Index piece = heads_[static_cast<size_t>(bin)]; piece != kNone; piece = at(piece).bin_next) {
    const int64_t size = at(piece).bytes;
    if (size >= bytes && (best == kNone || size < at(best).bytes)) best = piece;
    if (size == bytes || ++looked_at >= kLongestSearch) break;
  }
  return best;
}

inline void MappedRange::insert_free(Index piece) noexcept {
  if (fit_ == Fit::kFirst) {
    by_address_.set(key_of(at(piece)), static_cast<int32_t>(at(piece).bytes / SizeBins::kUnit), piece);
    return;
  }
  const int bin = SizeBins::of(at(piece).bytes);
  Index& head = heads_[static_cast<size_t>(bin)];
  at(piece).bin_previous = kNone;
  at(piece).bin_next = head;
  if (head == kNone) {
    bins_.set(bin);
  } else {
    at(head).bin_previous = piece;
  }
  head = piece;
}

inline void MappedRange::erase_free(Index piece) noexcept {
  if (fit_ == Fit::kFirst) {
    by_address_.set(key_of(at(piece)), 0, piece);
    return;
  }
  const Piece& gone = at(piece);
  if (gone.bin_next != kNone) at(gone.bin_next).bin_previous = gone.bin_previous;
  if (gone.bin_previous != kNone) {
    at(gone.bin_previous).bin_next = gone.bin_next;
    return;
  }
  const int bin = SizeBins::of(gone.bytes);
  heads_[static_cast<size_t>(bin)] = gone.bin_next;
  if (gone.bin_next == kNone) bins_.clear(bin);
}

// Reserves records for the next cuts, so that they cannot fail.
inline void MappedRange::prepare(int64_t cuts) {
  if (unused_count_ >= cuts) return;
  if (fit_ == Fit::kFirst) by_address_.prepare(pieces_.size() + static_cast<size_t>(cuts));
  while (unused_count_ < cuts) {
    pieces_.emplace_back().next = unused_;
    unused_ = static_cast<Index>(pieces_.size() - 1);
    ++unused_count_;
  }
}

// Splits a piece at `offset`; returns the upper part, in the same state and in no bin.
inline MappedRange::Index MappedRange::cut(Index piece, int64_t offset) noexcept {
  const Index rest = unused_;
  unused_ = at(rest).next;
  --unused_count_;
  Piece& head = at(piece);
  at(rest) = {.offset = offset,
              .bytes = head.end() - offset,
              .freed_at = head.freed_at,
              .previous = piece,
              .next = head.next,
              .state = head.state};
  if (head.next != kNone) {
    at(head.next).previous = rest;
  } else {
    last_ = rest;
  }
  head.next = rest;
  head.bytes = offset - head.offset;
  if (head.state == State::kUnmapped) add_unmapped(rest);
  return rest;
}

// Merges a piece, which is in no bin, with its neighbors in the same state, which leave theirs.
inline MappedRange::Index MappedRange::merge_around(Index piece) noexcept {
  const State state = at(piece).state;
  const bool binned = state == State::kMapped;
  const Index next = at(piece).next, previous = at(piece).previous;
  if (next != kNone && at(next).state == state) {
    // With kFirst its entry stays: the caller's insert_free updates its size.
    if (binned && fit_ == Fit::kBest) erase_free(next);
    absorb_next(piece);
  }
  if (previous == kNone || at(previous).state != state) return piece;
  if (binned) erase_free(previous);
  absorb_next(previous);
  return previous;
}

inline void MappedRange::absorb_next(Index piece) noexcept {
  Piece& head = at(piece);
  const Index gone = head.next;
  if (head.state == State::kUnmapped) remove_unmapped(gone);
  head.bytes += std::exchange(at(gone).bytes, 0);
  head.freed_at = std::max(head.freed_at, at(gone).freed_at);
  head.next = at(gone).next;
  if (head.next != kNone) {
    at(head.next).previous = piece;
  } else {
    last_ = piece;
  }
  at(gone).next = unused_;
  unused_ = gone;
  ++unused_count_;
}

}  // namespace headroom
