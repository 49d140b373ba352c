// The part of `mapped` that moves pages under a block.
#include <algorithm>

#include "allocators/strategies/mapped_allocator.h"

namespace headroom {
namespace {

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

// Returns a block under which pages are moved, or a null one, with nothing changed, if there are not enough.
// If large pages do not fit into the rest, smaller ones may.
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
  look_for_idle(lane, reach);
  const int64_t movable = movable_bytes(within_reach_) / space.page_bytes;
  const int64_t spread = is_repeated ? kSpreadIfRepeated : kSpread;
  const int32_t in_place_of_another = is_repeated ? kCallsInPlaceOfAnotherIfRepeated : kCallsInPlaceOfAnother;
  const MappedRange::Place place =
      space.range.find_place(bytes, movable, calls_to_bring(space, spread, in_place_of_another));
  if (place.offset < 0 || !can_create(place.new_pages * space.page_bytes)) return {};
  requests_settled_ = place.new_pages > 0 ? 0 : std::min(requests_settled_ + 1, kRequestsToSettle);
  const bool for_good = !is_repeated && requests_settled_ < kRequestsToSettle;
  missing_rows_.clear();
  space.range.occupy(place, bytes, missing_rows_);
  bool done = false;
  try {
    const auto [first, count] = space.pages_under(place.offset, bytes);
    space.use_up_to(first + count);
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

// Returns true if the limit allows it and, while some lanes are out of reach, the device has room: creating
// all but the last page would be useless.
bool MappedAllocator::can_create(int64_t bytes) const {
  if (bytes <= 0) return true;
  if (bytes > reservable_bytes()) return false;
  return is_all_within_reach_ || bytes <= device_.memory().info().free;
}

// Collects the idle pages within reach. Lanes keep their pages, because an exchange makes both wait: for the
// lock on all, and one stream for the other.
void MappedAllocator::look_for_idle(MappedLane& lane, Reach reach) {
  within_reach_.clear();
  followed_.clear();
  for (const MappedPages::Index page : idle_) no_longer_idle(page);
  idle_.clear();
  is_idle_.resize(pages_.numbers());
  is_all_within_reach_ = reach == Reach::kAll || lanes_.are_others_quiet(lane);
  // Pages that a failed allocation left spare may still be used on another stream.
  if (!pages_.spare().empty() && lanes_.now() > waited_at_) wait_for_streams();
  for (const MappedPages::Index page : pages_.spare()) note_idle(page);
  lanes_.for_each_with_idle(lane, reach == Reach::kAll, [&](MappedLane& each) {
    const size_t before = idle_.size();
    each.for_each_space([&](const MappedSpace& space) {
      space.range.for_each_idle([&](int64_t first, int64_t count) {
        for (int64_t at = first; at < first + count; ++at) {
          note_idle(space.addresses[static_cast<size_t>(at)].page);
        }
      });
    });
    if (idle_.size() > before) within_reach_.push_back(&each);
    return idle_.size() > before;
  });
  // Among pages idle for equally long, uses those of the older lane.
  std::ranges::sort(within_reach_, [](const MappedLane* a, const MappedLane* b) {
    return a->activity.number < b->activity.number;
  });
}

void MappedAllocator::note_idle(MappedPages::Index page) {
  idle_.push_back(page);
  is_idle_[static_cast<size_t>(page)] = true;
}

// Counts the driver calls for mapping memory at each address of the space: none if the page mapped there is
// idle elsewhere.
MappingCalls MappedAllocator::calls_to_bring(MappedSpace& space, int64_t spread,
                                             int32_t calls_in_place_of_another) {
  const auto pages = static_cast<int64_t>(space.addresses.size());
  const bool has_spread = pages * space.page_bytes > spread * pages_.held_bytes();
  const int32_t behind = has_spread ? calls_in_place_of_another : 1;
  // A growing program skips the rest.
  if (idle_.empty() && space.range.is_mapped_up_to(pages)) return {.behind = behind};
  free_.reset(pages);
  for (const MappedPages::Index page : idle_) {
    pages_.for_each_mapping(page, space, [&](int64_t at) { free_.set(at, true); });
  }
  free_.count();
  space.has_page.count();
  free_rows_.clear();
  free_.for_each_run([&](int64_t first, int64_t count) { free_rows_.push_back({first, count}); });
  return {pages, &space.has_page, &free_, calls_in_place_of_another, behind, free_rows_};
}

// Moves missing pages back that are idle elsewhere and still mapped here.
void MappedAllocator::return_pages(MappedSpace& space) {
  const auto comes_back = [&](size_t number) {
    const MappedPages::Index page = space.addresses[static_cast<size_t>(missing_pages_[number])].page;
    return page != MappedPages::kNone && is_idle(page) ? page : MappedPages::kNone;
  };
  const MappedPages::Settling settling(pages_);
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
      pages_.lift(*from, first, static_cast<int64_t>(count), lanes_.now());
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
  int64_t given_back = 0;  // bytes of pages of other sizes
  for (;;) {
    const int64_t missing = count - spare_pages(page_bytes);
    if (missing <= 0) return true;
    if (given_back >= page_bytes) {
      if (!create_pages(page_bytes, 1)) return false;
      given_back -= page_bytes;
      continue;
    }
    const std::vector<MappedPages::Index>& spare = pages_.spare();
    const auto other = std::ranges::find_if(
        spare, [&](MappedPages::Index page) { return pages_.bytes_of(page) != page_bytes; });
    if (other != spare.end()) {
      if (lanes_.now() > waited_at_) wait_for_streams();
      given_back += pages_.bytes_of(*other);
      pages_.release(*other);
      continue;
    }
    MappedSpace& from = with_oldest_idle();
    const int64_t wanted = (missing * page_bytes - given_back - 1) / from.page_bytes + 1;
    const auto idle = from.range.oldest_idle_pages(wanted);
    take_over(from, space);
    pages_.lift(from, idle.first, idle.count, lanes_.now());
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
  if (std::ranges::any_of(missing_pages_, is_in_use)) wait_for_streams();
  pages_.sort_spare();
  settling_.clear();
  for (const MappedPages::Index page : pages_.spare()) {
    if (settling_.size() == missing_pages_.size()) break;
    if (pages_.bytes_of(page) == space.page_bytes) settling_.push_back(page);
  }
  pages_.map(space, missing_pages_, settling_);
  const MappedPages::Settling settling(pages_);
  for (size_t i = 0; i < settling_.size(); ++i) {
    const MappedPages::Index page = settling_[i];
    const int64_t at = missing_pages_[i];
    if (pages_.settle(page, space, at, for_good)) continue;
    // The driver, or the host kernel of a simulated one, may have too many mappings.
    if (lanes_.now() > waited_at_) wait_for_streams();
    pages_.forget_addresses();
    if (!pages_.settle(page, space, at, for_good)) return false;
  }
  return true;
}

// Makes the stream of `to` wait for work on pages of `from`.
void MappedAllocator::take_over(MappedSpace& from, const MappedSpace& to) {
  if (from.stream == to.stream || lanes_.now() <= waited_at_) return;
  if (std::ranges::find(followed_, from.stream) != followed_.end()) return;
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
  return std::ranges::count_if(pages_.spare(),
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
