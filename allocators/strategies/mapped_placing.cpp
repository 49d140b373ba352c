// The part of `mapped` that moves pages under a block.
#include <algorithm>

#include "allocators/strategies/mapped_allocator.h"

namespace headroom {
namespace {

// A lane is quiet when other lanes freed this many blocks since it last freed one: a few training steps.
constexpr int64_t kQuietFor = 20'000;
// While held memory grows, pages that move get a new home. This many requests in a row that moved pages
// without a new one show that growth is over.
constexpr int kRequestsToSettle = 3;
// Mapping a page where another still is takes two calls and costs the other its way back. A request that
// repeats would pay that each time, so it prefers addresses of its own.
constexpr int32_t kCallsInPlaceOfAnother = 100, kCallsInPlaceOfAnotherIfRepeated = 1000;
// Addresses are searched, so they spread over at most this many times held memory before mappings of other
// pages are replaced.
constexpr int64_t kSpread = 8, kSpreadIfRepeated = 16;

}  // namespace

// A block under which pages are moved; a null one, with nothing changed, when there are not enough. If large
// pages do not fit into what is left, smaller ones may.
Allocator::Block MappedAllocator::allocate_with_pages(MappedLane& lane, int64_t bytes, Reach reach) {
  if (bytes <= MappedLane::kSmallBytes) return allocate_with_pages(lane, lane.small, bytes, reach);
  Block block;
  for (size_t i = lane.large.size(); i > 0 && block.pointer == nullptr; --i) {
    block = allocate_with_pages(lane, *lane.large[i - 1], bytes, reach);
  }
  return block;
}

Allocator::Block MappedAllocator::allocate_with_pages(MappedLane& lane, MappedSpace& space, int64_t bytes,
                                                      Reach reach) {
  const bool is_repeated = lane.is_repeated(space, bytes);
  look_for_idle(lane, reach, is_repeated ? kCallsInPlaceOfAnotherIfRepeated : kCallsInPlaceOfAnother);
  const int64_t movable = movable_bytes(within_reach_) / space.page_bytes;
  const int64_t spread = is_repeated ? kSpreadIfRepeated : kSpread;
  const MappedRange::Place place = space.range.find_place(bytes, movable, calls_to_bring(space, spread));
  if (place.offset < 0 || !can_create(place.new_pages * space.page_bytes)) return {};
  requests_settled_ = place.new_pages > 0 ? 0 : std::min(requests_settled_ + 1, kRequestsToSettle);
  const bool for_good = !is_repeated && requests_settled_ < kRequestsToSettle;
  missing_rows_.clear();
  space.range.occupy(place, bytes, missing_rows_);
  bool done = false;
  try {
    const auto [first, count] = space.pages_under(place.offset, bytes);
    const auto end = static_cast<size_t>(first + count);
    if (end > space.addresses.size()) space.addresses.resize(end);
    for (int64_t at = first; at < first + count; ++at) {
      if (pages_.is_in_place(space, at)) no_longer_idle(space.addresses[static_cast<size_t>(at)].page);
    }
    missing_pages_.clear();
    for (const PageRow& row : missing_rows_) {
      for (int64_t at = row.first; at < row.first + row.count; ++at) missing_pages_.push_back(at);
    }
    lane.remember(space, bytes, place.offset);
    return_pages(space);
    done = collect_pages(space, static_cast<int64_t>(missing_pages_.size())) && settle_pages(space, for_good);
  } catch (...) {
    lane.undo(space, place.offset, bytes);
    throw;
  }
  if (!done) {
    lane.undo(space, place.offset, bytes);
    return {};
  }
  lane.count_brought(bytes);
  return {space.base + place.offset, bytes};
}

// Whether the limit allows it and, while some lanes are out of reach, the device has room: creating all but
// the last page would be for nothing.
bool MappedAllocator::can_create(int64_t bytes) const {
  if (bytes <= 0) return true;
  if (bytes > reservable_bytes()) return false;
  return within_reach_.size() == own_lanes_.size() || bytes <= device_.memory().info().free;
}

// Collects the idle pages within reach. Lanes keep their pages, because an exchange makes both wait: for the
// lock on all, and one stream for the other.
void MappedAllocator::look_for_idle(const MappedLane& lane, Reach reach, int32_t calls_in_place_of_another) {
  within_reach_.clear();
  followed_.clear();
  calls_in_place_of_another_ = calls_in_place_of_another;
  any_idle_ = false;
  const auto note_idle = [&](MappedPages::Index page) {
    if (!any_idle_) forget_idle();
    any_idle_ = true;
    calls_for(page) = 0;
  };
  // Pages that a failed allocation left spare may still be used on another stream.
  if (!pages_.spare().empty() && now_ > waited_at_) wait_for_streams();
  for (const MappedPages::Index page : pages_.spare()) note_idle(page);
  for (MappedLane* each : own_lanes_) {
    const bool is_quiet = now_ - each->active_at >= kQuietFor;
    if (reach == Reach::kLane && each != &lane && !is_quiet) continue;
    within_reach_.push_back(each);
    each->for_each_space([&](const MappedSpace& space) {
      space.range.for_each_idle([&](int64_t first, int64_t count) {
        for (int64_t at = first; at < first + count; ++at) {
          note_idle(space.addresses[static_cast<size_t>(at)].page);
        }
      });
    });
  }
}

void MappedAllocator::forget_idle() {
  calls_for_.assign(pages_.numbers() + 1, calls_in_place_of_another_);
  calls_for(MappedPages::kNone) = 1;
}

// The driver calls for mapping memory at each address of the space: 0 where its page is idle elsewhere.
MappingCalls MappedAllocator::calls_to_bring(const MappedSpace& space, int64_t spread) {
  const auto pages = static_cast<int64_t>(space.addresses.size());
  const bool has_spread = pages * space.page_bytes > spread * pages_.held_bytes();
  const int32_t behind = has_spread ? calls_in_place_of_another_ : 1;
  // A growing program skips the rest, which looks at all pages.
  if (!any_idle_ && space.range.is_mapped_up_to(pages)) return {.behind = behind};
  if (!any_idle_) forget_idle();
  calls_before_.resize(space.addresses.size() + 1);
  free_rows_.clear();
  // The longest loop of a request, so it reads nothing through `this`.
  const MappedSpace::Address* address = space.addresses.data();
  const int32_t* const calls_for_page = calls_for_.data() + 1;
  int32_t* before = calls_before_.data();
  int32_t sum = 0;
  bool was_free = false;
  for (int64_t at = 0; at < pages; ++at, ++address) {
    const int32_t calls = calls_for_page[address->page];
    *before++ = sum;
    sum += calls;
    if ((calls == 0) == was_free) continue;
    was_free = !was_free;
    if (was_free) {
      free_rows_.push_back({at, pages - at});
    } else {
      free_rows_.back().count = at - free_rows_.back().first;
    }
  }
  *before = sum;
  return {calls_before_, behind, free_rows_};
}

// Moves missing pages back that are idle elsewhere and still mapped here.
void MappedAllocator::return_pages(MappedSpace& space) {
  const auto comes_back = [&](size_t number) {
    const MappedPages::Index page = space.addresses[static_cast<size_t>(missing_pages_[number])].page;
    return !is_idle(page) ? MappedPages::kNone : page;
  };
  for (size_t i = 0; i < missing_pages_.size();) {
    const MappedPages::Index page = comes_back(i);
    if (page == MappedPages::kNone) {
      ++i;
      continue;
    }
    size_t count = 1;
    if (MappedSpace* from = pages_.space_of(page)) {
      const int64_t first = pages_.place_of(page);
      for (; i + count < missing_pages_.size(); ++count) {
        const MappedPages::Index next = comes_back(i + count);
        const bool is_beside = next != MappedPages::kNone && pages_.space_of(next) == from &&
                               pages_.place_of(next) == first + static_cast<int64_t>(count);
        if (!is_beside) break;
      }
      take_over(*from, space);
      pages_.lift(*from, first, static_cast<int64_t>(count), now_);
    }
    for (; count > 0; --count, ++i) {
      const auto at = static_cast<size_t>(missing_pages_[i]);
      no_longer_idle(space.addresses[at].page);
      pages_.settle(space.addresses[at].page, space, missing_pages_[i], false);
    }
  }
  std::erase_if(missing_pages_, [&](int64_t at) { return pages_.is_in_place(space, at); });
}

// Collects `count` spare pages of the space's page size. New ones, if idle ones do not suffice, come first,
// because creating them can fail.
bool MappedAllocator::collect_pages(MappedSpace& space, int64_t count) {
  const int64_t page_bytes = space.page_bytes;
  if (!create_pages(page_bytes, count - movable_bytes(within_reach_) / page_bytes)) return false;
  int64_t given_back = 0;  // of pages of other sizes
  for (;;) {
    const int64_t missing = count - spare_pages(page_bytes);
    if (missing <= 0) return true;
    if (given_back >= page_bytes) {
      if (!create_pages(page_bytes, 1)) return false;
      given_back -= page_bytes;
      continue;
    }
    const std::vector<MappedPages::Index>& spare = pages_.spare();
    const auto other = std::find_if(spare.begin(), spare.end(), [&](MappedPages::Index page) {
      return pages_.bytes_of(page) != page_bytes;
    });
    if (other != spare.end()) {
      if (now_ > waited_at_) wait_for_streams();
      given_back += pages_.bytes_of(*other);
      pages_.release(*other);
      continue;
    }
    MappedSpace& from = with_oldest_idle();
    const int64_t wanted = (missing * page_bytes - given_back - 1) / from.page_bytes + 1;
    const auto idle = from.range.oldest_idle_pages(wanted);
    take_over(from, space);
    pages_.lift(from, idle.first, idle.count, now_);
    moved_bytes_ += idle.count * from.page_bytes;
  }
}

// Creates all of them or, if one is refused, none.
bool MappedAllocator::create_pages(int64_t page_bytes, int64_t count) {
  for (int64_t created = 0; created < count; ++created) {
    if (pages_.create(page_bytes)) continue;
    for (; created > 0; --created) pages_.release(pages_.spare().back());
    return false;
  }
  return true;
}

// Maps spare pages where some are missing, after waiting for work on pages still mapped there.
bool MappedAllocator::settle_pages(MappedSpace& space, bool for_good) {
  const auto is_in_use = [&](int64_t at) {
    const MappedSpace::Address& address = space.addresses[static_cast<size_t>(at)];
    return address.page != MappedPages::kNone && address.left_at > waited_at_;
  };
  if (std::any_of(missing_pages_.begin(), missing_pages_.end(), is_in_use)) wait_for_streams();
  pages_.sort_spare();
  settling_.clear();
  for (const MappedPages::Index page : pages_.spare()) {
    if (settling_.size() == missing_pages_.size()) break;
    if (pages_.bytes_of(page) == space.page_bytes) settling_.push_back(page);
  }
  pages_.map(space, missing_pages_, settling_);
  for (size_t i = 0; i < settling_.size(); ++i) {
    const MappedPages::Index page = settling_[i];
    const int64_t at = missing_pages_[i];
    if (pages_.settle(page, space, at, for_good)) continue;
    // The driver, or the host kernel of a simulated one, may have too many mappings.
    if (now_ > waited_at_) wait_for_streams();
    pages_.forget_addresses();
    if (!pages_.settle(page, space, at, for_good)) return false;
  }
  return true;
}

// Makes the stream of `to` wait for work on pages of `from`.
void MappedAllocator::take_over(MappedSpace& from, const MappedSpace& to) {
  if (from.stream == to.stream || now_ <= waited_at_) return;
  if (std::find(followed_.begin(), followed_.end(), from.stream) != followed_.end()) return;
  followed_.push_back(from.stream);
  follow(to.stream, from.stream);
}

MappedSpace& MappedAllocator::with_oldest_idle() {
  MappedSpace* oldest = nullptr;
  int64_t freed_at = 0;
  for (MappedLane* lane : within_reach_) {
    lane->for_each_space([&](MappedSpace& space) {
      const MappedRange::IdlePages idle = space.range.oldest_idle_pages(1);
      if (idle.count == 0 || (oldest != nullptr && idle.freed_at >= freed_at)) return;
      oldest = &space;
      freed_at = idle.freed_at;
    });
  }
  return *oldest;
}

int64_t MappedAllocator::spare_pages(int64_t page_bytes) const {
  return std::count_if(pages_.spare().begin(), pages_.spare().end(),
                       [&](MappedPages::Index page) { return pages_.bytes_of(page) == page_bytes; });
}

// Bytes of pages that can be moved under one block.
int64_t MappedAllocator::movable_bytes(std::span<MappedLane* const> lanes) const {
  int64_t bytes = 0;
  for (MappedLane* lane : lanes) {
    lane->for_each_space(
        [&](const MappedSpace& space) { bytes += space.range.idle_pages() * space.page_bytes; });
  }
  for (const MappedPages::Index page : pages_.spare()) bytes += pages_.bytes_of(page);
  return bytes;
}

}  // namespace headroom
