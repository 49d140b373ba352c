#include "allocators/strategies/mapped_pages.h"

#include <algorithm>
#include <utility>

#include "base/bytes.h"

namespace headroom {

MappedSpace::Addresses MappedSpace::reserve(VirtualMemory& memory, int64_t bytes, int64_t page_bytes) {
  for (;; bytes /= 2) {
    bytes = round_up(bytes, page_bytes);
    void* base = memory.try_reserve_range(bytes);
    if (base != nullptr || bytes == page_bytes) return {static_cast<char*>(base), bytes};
  }
}

MappedSpace::MappedSpace(VirtualMemory& virtual_memory, Stream stream_of_blocks, int64_t bytes_of_page,
                         MappedRange::Fit fit, const Addresses& reserved)
    : memory(virtual_memory),
      stream(stream_of_blocks),
      page_bytes(bytes_of_page),
      bytes(reserved.bytes),
      base(reserved.base),
      range(bytes, page_bytes, fit) {}

MappedSpace::MappedSpace(VirtualMemory& virtual_memory, Stream stream_of_blocks, int64_t range_bytes,
                         int64_t bytes_of_page, MappedRange::Fit fit)
    : MappedSpace(virtual_memory, stream_of_blocks, bytes_of_page, fit,
                  reserve(virtual_memory, range_bytes, bytes_of_page)) {}

MappedSpace::~MappedSpace() {
  memory.release_range(base, bytes);
}

MappedPages::MappedPages(VirtualMemory& memory, std::function<void(int64_t)> count)
    : memory_(memory), count_(std::move(count)) {}

MappedPages::~MappedPages() {
  for (const Memory& page : memories_) {
    if (page.block.bytes == 0) continue;
    for (const Where mapping : page.mappings) memory_.unmap(pointer_to(mapping), page.block);
    memory_.release(page.block);
  }
}

void MappedPages::add(MappedSpace& space) {
  space.number = static_cast<uint32_t>(spaces_.size());
  spaces_.push_back(&space);
}

bool MappedPages::create(int64_t bytes) {
  if (unused_.empty()) {
    memories_.resize(pages_.size() + 1);
    pages_.emplace_back();
    // So that a page can always become spare or be released.
    spare_.reserve(pages_.capacity());
    unused_.reserve(pages_.capacity());
    unused_.push_back(static_cast<Index>(pages_.size() - 1));
  }
  const auto block = memory_.try_create(bytes);
  if (!block) return false;
  const Index page = unused_.back();
  unused_.pop_back();
  memory_of(page).block = *block;
  spare_.push_back(page);
  held_bytes_ += bytes;
  count_(bytes);
  return true;
}

void MappedPages::release(Index page) noexcept {
  // Most often it is the last one.
  spare_.erase(std::find(spare_.rbegin(), spare_.rend(), page).base() - 1);
  for (const Where mapping : memory_of(page).mappings) unmap(page, mapping);
  const PhysicalBlock block = std::exchange(memory_of(page), {}).block;
  at(page) = {};
  unused_.push_back(page);
  memory_.release(block);
  held_bytes_ -= block.bytes;
  count_(-block.bytes);
}

void MappedPages::lift(MappedSpace& space, int64_t first, int64_t count, int64_t now) {
  space.range.unmap(first, count);
  for (int64_t place = first; place < first + count; ++place) {
    take_place(space, place, now);
    const Index page = space.addresses[static_cast<size_t>(place)].page;
    at(page).place = kNowhere;
    spare_.push_back(page);
  }
}

void MappedPages::sort_spare() noexcept {
  // Pages without a home come first: kNowhere + 1 is 0.
  std::ranges::sort(spare_, [&](Index a, Index b) { return at(a).home + 1 < at(b).home + 1; });
}

bool MappedPages::settle(Index page, MappedSpace& space, int64_t place, bool for_good) {
  const Where there = where(space, place);
  MappedSpace::Address& address = address_at(there);
  if (address.page != page) {
    std::vector<Where>& mappings = memory_of(page).mappings;
    mappings.reserve(mappings.size() + 1);
    if (address.page != kNone) end_mapping(there);
    if (!memory_.try_map(pointer_to(there), memory_of(page).block)) return false;
    count_(0);
    note_mapped(page, space, place);
  }
  const MappedSpace* const home = space_of(at(page).home);
  const bool is_from_here = home != nullptr && home->stream == space.stream;
  if (for_good || !is_from_here) at(page).home = there;
  at(page).place = there;
  address.is_lent = at(page).home != there;
  if (address.is_lent) ++space.lent;
  if (!is_from_here) note_stream(page, space.stream);
  return true;
}

void MappedPages::map(MappedSpace& space, std::span<const int64_t> places, std::span<const Index> pages) {
  const auto address_of = [&](size_t i) -> MappedSpace::Address& {
    return space.addresses[static_cast<size_t>(places[i])];
  };
  for (size_t first = 0, end = 0; first < places.size(); first = end) {
    run_.clear();
    for (; end < places.size() && address_of(end).page != pages[end]; ++end) {
      if (end > first && places[end] != places[end - 1] + 1) break;
      Memory& memory = memory_of(pages[end]);
      run_.push_back(memory.block);
      memory.mappings.reserve(memory.mappings.size() + 1);
      if (address_of(end).page != kNone) end_mapping(where(space, places[end]));
    }
    if (end == first) {
      ++end;
      continue;
    }
    if (!memory_.try_map_run(pointer_to(where(space, places[first])), run_)) continue;
    for (size_t i = first; i < end; ++i) {
      count_(0);
      note_mapped(pages[i], space, places[i]);
    }
  }
}

// Its mappings have room for one more.
void MappedPages::note_mapped(Index page, MappedSpace& space, int64_t place) noexcept {
  memory_of(page).mappings.push_back(where(space, place));
  space.addresses[static_cast<size_t>(place)].page = page;
  space.has_page.set(place, true);
}

void MappedPages::forget_addresses() noexcept {
  for (size_t number = 0; number < pages_.size(); ++number) {
    const Page& page = pages_[number];
    std::vector<Where>& mappings = memories_[number].mappings;
    const auto left = std::partition(mappings.begin(), mappings.end(), [&](Where mapping) {
      return mapping == page.place || mapping == page.home;
    });
    for (auto each = left; each != mappings.end(); ++each) unmap(static_cast<Index>(number), *each);
    mappings.erase(left, mappings.end());
  }
}

// Moves pages to new places; the caller has updated the ranges.
inline void MappedPages::move(MappedSpace& from, int64_t first, MappedSpace& to, const PageRow& row,
                              int64_t now) noexcept {
  // Local pointers: writes to pages would make the compiler reload members.
  Page* const pages = pages_.data();
  MappedSpace::Address* left = from.addresses.data() + first;
  MappedSpace::Address* taken = to.addresses.data() + row.first;
  Where there = where(to, row.first);
  int64_t lent_before = 0, lent = 0;
  for (int64_t i = 0; i < row.count; ++i, ++left, ++taken, ++there) {
    lent_before += left->is_lent ? 1 : 0;
    left->is_lent = false;
    left->left_at = now;
    Page& page = pages[taken->page];
    page.place = there;
    taken->is_lent = page.home != there;
    lent += taken->is_lent ? 1 : 0;
  }
  from.lent -= lent_before;
  to.lent += lent;
}

void MappedPages::send_home(MappedSpace& space, const PageRow& row, int64_t now) {
  const Page* const pages = pages_.data();
  const MappedSpace::Address* const addresses = space.addresses.data();
  const int64_t end = row.first + row.count;
  for (int64_t place = row.first; place < end && space.lent > 0;) {
    if (!addresses[place].is_lent) {
      ++place;
      continue;
    }
    const Where home = pages[addresses[place].page].home;
    int64_t next = place + 1;
    while (next < end && pages[addresses[next].page].home == home + static_cast<Where>(next - place)) ++next;
    const PageRow there = {number_of(home), next - place};
    MappedSpace& owner = *space_of(home);
    owner.range.map(there.first, there.count, now);
    space.range.unmap(place, there.count);
    move(space, place, owner, there, now);
    place = next;
  }
}

// Returns the first of these pages and the neighbors that can move with it.
MappedPages::Run MappedPages::idle_elsewhere(const MappedSpace& space, int64_t first, int64_t end) const {
  const Page* const pages = pages_.data();
  const MappedSpace::Address* const addresses = space.addresses.data();
  if (addresses[first].page == kNone || addresses[first].is_abroad) return {};
  const Where place = pages[addresses[first].page].place;
  MappedSpace* const from = space_of(place);
  if (from == nullptr) return {};
  const int64_t idle = from->range.idle_pages_from(number_of(place));
  if (idle == 0) return {};
  end = std::min(end, first + idle);
  int64_t next = first + 1;
  while (next < end && addresses[next].page != kNone && !addresses[next].is_abroad &&
         pages[addresses[next].page].place == place + static_cast<Where>(next - first)) {
    ++next;
  }
  return {from, {number_of(place), next - first}};
}

bool MappedPages::can_come_back(const MappedSpace& space, const PageRow& row) const {
  const int64_t end = row.first + row.count;
  for (int64_t place = row.first; place < end;) {
    const Run idle = idle_elsewhere(space, place, end);
    if (idle.row.count == 0) return false;
    place += idle.row.count;
  }
  return true;
}

bool MappedPages::bring_back(MappedSpace& space, const PageRow& row, int64_t now) {
  const int64_t end = row.first + row.count;
  for (int64_t place = row.first; place < end;) {
    const Run idle = idle_elsewhere(space, place, end);
    if (idle.row.count == 0) return false;  // a page is mapped here twice
    idle.space->range.unmap(idle.row.first, idle.row.count);
    move(*idle.space, idle.row.first, space, {place, idle.row.count}, now);
    place += idle.row.count;
  }
  return true;
}

// Updates is_abroad at all addresses of a page for its new stream.
void MappedPages::note_stream(Index page, Stream stream) noexcept {
  for (const Where mapping : memory_of(page).mappings) {
    address_at(mapping).is_abroad = !(space_of(mapping)->stream == stream);
  }
}

// Takes its place from the page there.
void MappedPages::take_place(MappedSpace& space, int64_t place, int64_t now) noexcept {
  MappedSpace::Address& address = space.addresses[static_cast<size_t>(place)];
  address.left_at = now;
  if (address.is_lent) --space.lent;
  address.is_lent = false;
}

bool MappedPages::is_in_place(const MappedSpace& space, int64_t place) const {
  if (place >= static_cast<int64_t>(space.addresses.size())) return false;
  const MappedSpace::Address& address = space.addresses[static_cast<size_t>(place)];
  return address.page != kNone && !address.is_abroad && at(address.page).place == where(space, place);
}

void MappedPages::unmap(Index page, Where mapping) noexcept {
  memory_.unmap(pointer_to(mapping), memory_of(page).block);
  count_(0);
  MappedSpace::Address& address = address_at(mapping);
  address.page = kNone;
  address.is_abroad = false;
  space_of(mapping)->has_page.set(number_of(mapping), false);
  if (at(page).home != mapping) return;
  at(page).home = at(page).place;
  if (at(page).place == kNowhere) return;
  bool& is_lent = address_at(at(page).place).is_lent;
  if (is_lent) --space_of(at(page).place)->lent;
  is_lent = false;
}

void MappedPages::end_mapping(Where mapping) noexcept {
  const Index page = address_at(mapping).page;
  unmap(page, mapping);
  std::erase(memory_of(page).mappings, mapping);
}

}  // namespace headroom
