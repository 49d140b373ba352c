#include "allocators/free_list.h"

#include <algorithm>
#include <utility>

namespace headroom {
namespace {

// Without branches, which would be guessed wrongly every other time.
size_t is_before(const FreeList::Entry& entry, int64_t bytes, uint64_t place) {
  return static_cast<size_t>(
      static_cast<unsigned>(entry.bytes < bytes) |
      (static_cast<unsigned>(entry.bytes == bytes) & static_cast<unsigned>(entry.place < place)));
}

}  // namespace

void FreeList::insert(const Entry& entry) {
  if (leaves_.empty()) leaves_.push_back(new_leaf());
  Position at = lower_bound(entry.bytes, entry.place);
  if (at.leaf == leaves_.size()) at = {leaves_.size() - 1, leaves_.back()->count};
  if (leaves_[at.leaf]->count == kLeafEntries) {
    std::unique_ptr<Leaf> upper = new_leaf();
    Leaf& lower = *leaves_[at.leaf];
    constexpr size_t kHalf = kLeafEntries / 2;
    std::copy(lower.entries.begin() + kHalf, lower.entries.end(), upper->entries.begin());
    upper->count = lower.count = kHalf;
    leaves_.insert(leaves_.begin() + static_cast<std::ptrdiff_t>(at.leaf) + 1, std::move(upper));
    if (at.entry > kHalf) at = {at.leaf + 1, at.entry - kHalf};
  }
  Leaf& leaf = *leaves_[at.leaf];
  const auto begin = leaf.entries.begin();
  std::move_backward(begin + static_cast<std::ptrdiff_t>(at.entry),
                     begin + static_cast<std::ptrdiff_t>(leaf.count),
                     begin + static_cast<std::ptrdiff_t>(leaf.count) + 1);
  leaf.entries[at.entry] = entry;
  ++leaf.count;
}

void FreeList::erase(const Entry& entry) noexcept {
  const Position at = lower_bound(entry.bytes, entry.place);
  Leaf& leaf = *leaves_[at.leaf];
  const auto begin = leaf.entries.begin();
  std::move(begin + static_cast<std::ptrdiff_t>(at.entry) + 1,
            begin + static_cast<std::ptrdiff_t>(leaf.count), begin + static_cast<std::ptrdiff_t>(at.entry));
  if (--leaf.count > 0) return;
  spare_.push_back(std::move(leaves_[at.leaf]));  // room was made when the leaf was
  leaves_.erase(leaves_.begin() + static_cast<std::ptrdiff_t>(at.leaf));
}

const FreeList::Entry* FreeList::best_fit(int64_t bytes) const {
  const Position at = lower_bound(bytes, 0);
  return at.leaf == leaves_.size() ? nullptr : &leaves_[at.leaf]->entries[at.entry];
}

FreeList::Position FreeList::lower_bound(int64_t bytes, uint64_t place) const {
  size_t first = 0;
  for (size_t length = leaves_.size(); length > 0;) {
    const size_t half = length / 2;
    const size_t skip = is_before(leaves_[first + half]->last(), bytes, place);
    first += skip * (half + 1);
    length = skip != 0 ? length - half - 1 : half;
  }
  if (first == leaves_.size()) return {first, 0};
  const Leaf& leaf = *leaves_[first];
  size_t entry = 0;
  size_t length = leaf.count;
  while (length > 1) {
    const size_t half = length / 2;
    entry += half * is_before(leaf.entries[entry + half - 1], bytes, place);
    length -= half;
  }
  return {first, entry};  // the last one of the leaf is not before, so this one is found
}

std::unique_ptr<FreeList::Leaf> FreeList::new_leaf() {
  if (spare_.empty()) {
    spare_.reserve(leaves_.size() + 1);  // so that erase never has to ask for memory
    return std::make_unique<Leaf>();
  }
  std::unique_ptr<Leaf> leaf = std::move(spare_.back());
  spare_.pop_back();
  leaf->count = 0;
  return leaf;
}

}  // namespace headroom
