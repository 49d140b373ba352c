#include "allocators/strategies/expandable_pool.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <utility>

#include "base/bytes.h"

namespace headroom {

ExpandablePool::ExpandablePool(VirtualMemory& memory, int64_t range_bytes, int64_t page_bytes,
                               std::function<void(int64_t, void*)> count,
                               std::function<void(const void*)> note_range)
    : memory_(memory),
      page_bytes_(page_bytes),
      range_bytes_(round_up(range_bytes, page_bytes)),
      count_(std::move(count)),
      note_range_(std::move(note_range)) {
  store.add_list();
  store.add_list();
}

void ExpandablePool::clear() noexcept {
  for (Range& range : ranges_) {
    for (size_t place = 0; place < range.pages.size(); ++place) unmap_page(range, place);
    memory_.release_range(range.base, range_bytes_);
  }
  ranges_.clear();
}

bool ExpandablePool::can_grow(Index block) const {
  const Index next = store.at(block).next;
  return next != BlockStore::kNone && store.is_free(next) && store.at(next).list == kUnmapped;
}

// Returns the bytes of a block and of the unmapped addresses after it.
int64_t ExpandablePool::reach_of(Index block) const {
  return store.at(block).bytes + (can_grow(block) ? store.at(store.at(block).next).bytes : 0);
}

ExpandablePool::Index ExpandablePool::find(int64_t bytes) {
  Index block = store.best_fit(kMapped, bytes);
  while (block != BlockStore::kNone && can_grow(block)) {
    const Index next = store.next_larger(block);
    if (next == BlockStore::kNone || reach_of(next) >= reach_of(block)) break;
    block = next;
  }
  return block;
}

ExpandablePool::Index ExpandablePool::grow(int64_t bytes, int64_t max_bytes) {
  Index block = lowest_place(bytes);
  if (block == BlockStore::kNone) block = add_range();
  if (block == BlockStore::kNone) return block;
  if (store.at(block).list == kUnmapped) {
    block = map_head(block, std::min(store.at(block).bytes, bytes), max_bytes);
  }
  while (block != BlockStore::kNone && store.at(block).bytes < bytes) {
    const Index next = store.at(block).next;
    block = map_head(next, std::min(store.at(next).bytes, bytes - store.at(block).bytes), max_bytes);
  }
  return block;
}

// Returns the first block of the lowest free run of `bytes` that begins with unmapped addresses, or with one
// mapped block before them; kNone if there is none.
ExpandablePool::Index ExpandablePool::lowest_place(int64_t bytes) const {
  std::vector<Index> unmapped;  // nearly always one
  store.for_each_free(kUnmapped, [&](Index block) { unmapped.push_back(block); });
  std::ranges::sort(unmapped, [&](Index a, Index b) { return store.at(a).place < store.at(b).place; });
  for (Index first : unmapped) {
    const Index previous = store.at(first).previous;
    if (previous != BlockStore::kNone && store.is_free(previous)) first = previous;
    int64_t found = 0;
    for (Index each = first; each != BlockStore::kNone && store.is_free(each) && found < bytes;
         each = store.at(each).next) {
      found += store.at(each).bytes;
    }
    if (found >= bytes) return first;
  }
  return BlockStore::kNone;
}

ExpandablePool::Index ExpandablePool::add_range() {
  ranges_.reserve(ranges_.size() + 1);
  void* base = memory_.try_reserve_range(range_bytes_);
  if (base == nullptr) return BlockStore::kNone;
  ranges_.push_back({static_cast<std::byte*>(base), {}});
  note_range_(base);
  return store.add_segment(base, range_bytes_, kUnmapped);
}

// Maps pages under the first `bytes` of an unmapped block, all or none of them, and takes them off
// `left_bytes`. Returns the mapped block that they are part of, or kNone.
ExpandablePool::Index ExpandablePool::map_head(Index block, int64_t bytes, int64_t& left_bytes) {
  const int64_t mapped = round_up(bytes, page_bytes_);
  if (mapped > left_bytes) return BlockStore::kNone;
  Range& range = range_of(store.at(block).pointer);
  const auto first = static_cast<size_t>((store.at(block).pointer - range.base) / page_bytes_);
  const auto count = static_cast<size_t>(mapped / page_bytes_);
  if (first + count > range.pages.size()) range.pages.resize(first + count);
  for (size_t i = 0; i < count; ++i) {
    if (map_page(range, first + i)) continue;
    while (i-- > 0) unmap_page(range, first + i);
    return BlockStore::kNone;
  }
  left_bytes -= mapped;
  return store.move_part(block, 0, mapped, kMapped);
}

bool ExpandablePool::map_page(Range& range, size_t place) {
  void* address = range.base + static_cast<int64_t>(place) * page_bytes_;
  const std::optional<PhysicalBlock> page = memory_.try_create(page_bytes_);
  if (!page) return false;
  if (!memory_.try_map(address, *page)) {
    memory_.release(*page);
    return false;
  }
  range.pages[place] = *page;
  count_(page_bytes_, address);
  count_(0, address);
  return true;
}

void ExpandablePool::unmap_page(Range& range, size_t place) noexcept {
  PhysicalBlock& page = range.pages[place];
  if (page.bytes == 0) return;
  void* address = range.base + static_cast<int64_t>(place) * page_bytes_;
  memory_.unmap(address, page);
  memory_.release(page);
  page = {};
  count_(0, address);
  count_(-page_bytes_, address);
}

int64_t ExpandablePool::release_idle() noexcept {
  int64_t released = 0;
  try {
    std::vector<Index> idle;
    store.for_each_free(kMapped, [&](Index block) { idle.push_back(block); });
    for (const Index block : idle) {
      Range& range = range_of(store.at(block).pointer);
      const int64_t begin = store.at(block).pointer - range.base;
      const int64_t first = round_up(begin, page_bytes_);
      const int64_t end = (begin + store.at(block).bytes) / page_bytes_ * page_bytes_;
      if (first >= end) continue;
      store.move_part(block, first - begin, end - first, kUnmapped);
      for (int64_t at = first; at < end; at += page_bytes_) {
        unmap_page(range, static_cast<size_t>(at / page_bytes_));
      }
      released += end - first;
    }
  } catch (const std::exception&) {  // no memory for the accounts: the rest stays mapped
  }
  return released;
}

ExpandablePool::Range& ExpandablePool::range_of(const std::byte* address) {
  return *std::ranges::find_if(ranges_, [&](const Range& range) {
    return address >= range.base && address < range.base + range_bytes_;
  });
}

}  // namespace headroom
