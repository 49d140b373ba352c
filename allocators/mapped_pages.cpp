#include "allocators/mapped_pages.h"

#include <algorithm>
#include <utility>

#include "runtime/core/bytes.h"

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
  for (const Page& page : pages_) {
    if (page.block.bytes == 0) continue;
    for (const Mapping& mapping : page.mappings) {
      memory_.unmap(mapping.space->base + mapping.at * mapping.space->page_bytes, page.block);
    }
    memory_.release(page.block);
  }
}

bool MappedPages::create(int64_t bytes) {
  if (unused_.empty()) {
    pages_.emplace_back();
    // So that a page can always become a spare one or go.
    spare_.reserve(pages_.capacity());
    unused_.reserve(pages_.capacity());
    unused_.push_back(static_cast<Index>(pages_.size() - 1));
  }
  const auto block = memory_.try_create(bytes);
  if (!block) return false;
  const Index page = unused_.back();
  unused_.pop_back();
  at(page).block = *block;
  spare_.push_back(page);
  held_bytes_ += bytes;
  count_(bytes);
  return true;
}

void MappedPages::release(Index page) noexcept {
  spare_.erase(std::find(spare_.begin(), spare_.end(), page));
  for (const Mapping& mapping : at(page).mappings) unmap(page, mapping);
  const PhysicalBlock block = std::exchange(at(page).block, {});
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
    at(page).place = {};
    spare_.push_back(page);
  }
}

void MappedPages::sort_spare() noexcept {
  const auto home = [this](Index page) {
    const Mapping& mapping = at(page).home;
    return std::pair(mapping.space == nullptr ? 0 : reinterpret_cast<uintptr_t>(mapping.space->base),
                     mapping.at);
  };
  std::sort(spare_.begin(), spare_.end(), [&](Index a, Index b) { return home(a) < home(b); });
}

bool MappedPages::settle(Index page, MappedSpace& space, int64_t place, bool for_good) {
  const auto spare = std::find(spare_.begin(), spare_.end(), page);
  MappedSpace::Address& address = space.addresses[static_cast<size_t>(place)];
  if (address.page != page) {
    at(page).mappings.reserve(at(page).mappings.size() + 1);
    if (address.page != kNone) end_mapping(space, place);
    if (!memory_.try_map(space.base + place * space.page_bytes, at(page).block)) return false;
    count_(0);
    at(page).mappings.push_back({&space, place});
    address.page = page;
  }
  MappedSpace* const home = at(page).home.space;
  const bool is_from_here = home != nullptr && home->stream == space.stream;
  if (for_good || !is_from_here) at(page).home = {&space, place};
  give_place(page, space, place);
  if (!is_from_here) note_stream(at(page));
  spare_.erase(spare);
  return true;
}

void MappedPages::forget_addresses() noexcept {
  for (size_t number = 0; number < pages_.size(); ++number) {
    Page& page = pages_[number];
    const auto in_place =
        std::partition(page.mappings.begin(), page.mappings.end(),
                       [&](const Mapping& mapping) { return mapping == page.place || mapping == page.home; });
    for (auto left = in_place; left != page.mappings.end(); ++left) unmap(static_cast<Index>(number), *left);
    page.mappings.erase(in_place, page.mappings.end());
  }
}

// Moves pages with their places, which the caller has seen to in the ranges.
inline void MappedPages::move(MappedSpace& from, int64_t first, MappedSpace& to, const PageRow& row,
                              int64_t now) noexcept {
  // Of what writes to a page, nothing is read through this or a space again.
  Page* const pages = pages_.data();
  MappedSpace::Address* left = from.addresses.data() + first;
  MappedSpace::Address* taken = to.addresses.data() + row.first;
  int64_t lent_before = 0, lent = 0;
  for (int64_t i = 0; i < row.count; ++i, ++left, ++taken) {
    lent_before += left->is_lent ? 1 : 0;
    left->is_lent = false;
    left->left_at = now;
    Page& page = pages[taken->page];
    page.place = {&to, row.first + i};
    taken->is_lent = !(page.home == page.place);
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
    const Mapping home = pages[addresses[place].page].home;
    int64_t together = 1;
    while (place + together < end &&
           pages[addresses[place + together].page].home == Mapping{home.space, home.at + together})
      ++together;
    home.space->range.map(home.at, together, now);
    space.range.unmap(place, together);
    move(space, place, *home.space, {home.at, together}, now);
    place += together;
  }
}

// The first of these pages and those that go with it.
MappedPages::Run MappedPages::idle_elsewhere(const MappedSpace& space, int64_t first, int64_t end) const {
  const Page* const pages = pages_.data();
  const MappedSpace::Address* address = space.addresses.data() + first;
  if (address->page == kNone || address->is_abroad) return {};
  const Mapping place = pages[address->page].place;
  if (place.space == nullptr) return {};
  const int64_t most = std::min(end - first, place.space->range.idle_pages_from(place.at));
  if (most == 0) return {};
  int64_t count = 1;
  while (count < most) {
    ++address;
    if (address->page == kNone || address->is_abroad) break;
    if (!(pages[address->page].place == Mapping{place.space, place.at + count})) break;
    ++count;
  }
  return {place.space, {place.at, count}};
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
    if (idle.row.count == 0) return false;  // it is mapped here twice
    idle.space->range.unmap(idle.row.first, idle.row.count);
    move(*idle.space, idle.row.first, space, {place, idle.row.count}, now);
    place += idle.row.count;
  }
  return true;
}

// To what is mapped there.
void MappedPages::give_place(Index page, MappedSpace& space, int64_t place) noexcept {
  at(page).place = {&space, place};
  MappedSpace::Address& address = space.addresses[static_cast<size_t>(place)];
  address.is_lent = !(at(page).home == at(page).place);
  if (address.is_lent) ++space.lent;
}

// Says at all addresses of a page whether it still belongs to their stream.
void MappedPages::note_stream(const Page& page) noexcept {
  for (const Mapping& mapping : page.mappings) {
    mapping.space->addresses[static_cast<size_t>(mapping.at)].is_abroad =
        !(mapping.space->stream == page.place.space->stream);
  }
}

// Of what is in its place there.
void MappedPages::take_place(MappedSpace& space, int64_t place, int64_t now) noexcept {
  MappedSpace::Address& address = space.addresses[static_cast<size_t>(place)];
  address.left_at = now;
  if (address.is_lent) --space.lent;
  address.is_lent = false;
}

bool MappedPages::is_in_place(const MappedSpace& space, int64_t place) const {
  if (place >= static_cast<int64_t>(space.addresses.size())) return false;
  const MappedSpace::Address& address = space.addresses[static_cast<size_t>(place)];
  if (address.page == kNone || address.is_abroad) return false;
  const Mapping& now = at(address.page).place;
  return now.space == &space && now.at == place;
}

void MappedPages::unmap(Index page, const Mapping& mapping) noexcept {
  MappedSpace& space = *mapping.space;
  memory_.unmap(space.base + mapping.at * space.page_bytes, at(page).block);
  count_(0);
  MappedSpace::Address& address = space.addresses[static_cast<size_t>(mapping.at)];
  address.page = kNone;
  address.is_abroad = false;
  if (!(at(page).home == mapping)) return;
  at(page).home = at(page).place;
  MappedSpace* const now_in = at(page).place.space;
  if (now_in == nullptr) return;
  bool& is_lent = now_in->addresses[static_cast<size_t>(at(page).place.at)].is_lent;
  if (is_lent) --now_in->lent;
  is_lent = false;
}

void MappedPages::end_mapping(MappedSpace& space, int64_t place) noexcept {
  const Index page = space.addresses[static_cast<size_t>(place)].page;
  std::vector<Mapping>& mappings = at(page).mappings;
  const auto found = std::find_if(mappings.begin(), mappings.end(), [&](const Mapping& mapping) {
    return mapping.space == &space && mapping.at == place;
  });
  unmap(page, *found);
  mappings.erase(found);
}

}  // namespace headroom
