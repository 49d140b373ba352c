#include "allocators/free_list.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace headroom {
namespace {

// Sizes are multiples of 256 B. Below eight of these units each size has a bin of its own.
constexpr int kUnitBits = 8;
constexpr int kBinsPerPower = 8;

bool is_before(const FreeList::Entry& entry, int64_t bytes, uint64_t place) {
  return entry.bytes != bytes ? entry.bytes < bytes : entry.place < place;
}

}  // namespace

// Nearly all bins have one leaf with a few entries: the usual case comes first and looks at nothing else.
void FreeList::insert(const Entry& entry) {
  const size_t number = bin_of(entry.bytes);
  Bin& bin = bins_[number];
  if (bin.size() != 1 || bin.front()->count == kLeafEntries) {
    insert_in_leaves(bin, entry);
  } else {
    Leaf& leaf = *bin.front();
    size_t at = first_of_size(leaf, entry.bytes);
    while (at < leaf.count && leaf.entries[at].bytes == entry.bytes && leaf.entries[at].place < entry.place)
      ++at;
    insert_at(leaf, at, entry);
  }
  used_[number / 64] |= uint64_t{1} << (number % 64);
}

void FreeList::insert_in_leaves(Bin& bin, const Entry& entry) {
  if (bin.empty()) bin.push_back(new_leaf());
  Position at = lower_bound(bin, entry.bytes, entry.place);
  if (at.leaf == bin.size()) at = {bin.size() - 1, bin.back()->count};
  if (bin[at.leaf]->count == kLeafEntries) {
    std::unique_ptr<Leaf> upper = new_leaf();
    Leaf& lower = *bin[at.leaf];
    constexpr size_t kHalf = kLeafEntries / 2;
    std::copy(lower.entries.begin() + kHalf, lower.entries.end(), upper->entries.begin());
    upper->count = lower.count = kHalf;
    bin.insert(bin.begin() + static_cast<std::ptrdiff_t>(at.leaf) + 1, std::move(upper));
    if (at.entry > kHalf) at = {at.leaf + 1, at.entry - kHalf};
  }
  insert_at(*bin[at.leaf], at.entry, entry);
}

// Mostly there is nothing to move, and a call of memmove would cost as much as all the rest.
inline void FreeList::insert_at(Leaf& leaf, size_t at, const Entry& entry) {
  Entry* const entries = leaf.entries.data();
  if (at < leaf.count) std::move_backward(entries + at, entries + leaf.count, entries + leaf.count + 1);
  entries[at] = entry;
  ++leaf.count;
}

void FreeList::erase(const Entry& entry) noexcept {
  const size_t number = bin_of(entry.bytes);
  Bin& bin = bins_[number];
  Position at = {0, 0};
  if (bin.size() == 1) {
    while (bin.front()->entries[at.entry].place != entry.place) ++at.entry;
  } else {
    at = lower_bound(bin, entry.bytes, entry.place);
  }
  Leaf& leaf = *bin[at.leaf];
  --leaf.count;
  Entry* const entries = leaf.entries.data();
  if (at.entry < leaf.count) std::move(entries + at.entry + 1, entries + leaf.count + 1, entries + at.entry);
  if (leaf.count > 0) return;
  if (bin.size() == 1) {
    used_[number / 64] &= ~(uint64_t{1} << (number % 64));
    return;
  }
  spare_.push_back(std::move(bin[at.leaf]));  // room was made when the leaf was
  bin.erase(bin.begin() + static_cast<std::ptrdiff_t>(at.leaf));
}

const FreeList::Entry* FreeList::best_fit(int64_t bytes) const {
  const size_t number = bin_of(bytes);
  if ((used_[number / 64] >> (number % 64) & 1) != 0) {
    const Bin& bin = bins_[number];
    if (bin.size() == 1) {
      const size_t at = first_of_size(*bin.front(), bytes);
      if (at < bin.front()->count) return &bin.front()->entries[at];
    } else {
      const Position at = lower_bound(bin, bytes, 0);
      if (at.leaf < bin.size()) return &bin[at.leaf]->entries[at.entry];
    }
  }
  const size_t used = next_used(number + 1);
  return used == kBins ? nullptr : &bins_[used].front()->entries.front();
}

const FreeList::Entry* FreeList::first_fit(int64_t bytes) const {
  const Entry* first = nullptr;
  for (size_t bin = next_used(bin_of(bytes)); bin < kBins; bin = next_used(bin + 1)) {
    for (const auto& leaf : bins_[bin]) {
      for (size_t i = 0; i < leaf->count; ++i) {
        const Entry& entry = leaf->entries[i];
        if (entry.bytes >= bytes && (first == nullptr || entry.place < first->place)) first = &entry;
      }
    }
  }
  return first;
}

const FreeList::Entry* FreeList::largest() const {
  for (size_t word = used_.size(); word-- > 0;) {
    if (used_[word] == 0) continue;
    return &bins_[word * 64 + static_cast<size_t>(std::bit_width(used_[word])) - 1].back()->last();
  }
  return nullptr;
}

inline size_t FreeList::bin_of(int64_t bytes) {
  const uint64_t units = static_cast<uint64_t>(bytes) >> kUnitBits;
  if (units < kBinsPerPower) return units;
  const int shift = static_cast<int>(std::bit_width(units)) - static_cast<int>(std::bit_width(7u)) - 1;
  const uint64_t bin =
      static_cast<uint64_t>(shift + 1) * kBinsPerPower + ((units >> shift) & (kBinsPerPower - 1));
  return std::min<size_t>(bin, kBins - 1);
}

size_t FreeList::next_used(size_t bin) const {
  for (size_t word = bin / 64; word < used_.size(); ++word) {
    const uint64_t from = word == bin / 64 ? ~uint64_t{0} << (bin % 64) : ~uint64_t{0};
    const uint64_t bits = used_[word] & from;
    if (bits != 0) return word * 64 + static_cast<size_t>(std::countr_zero(bits));
  }
  return kBins;
}

// Few entries as a rule, the same ones again and again: a walk whose end is guessed beats halving.
inline size_t FreeList::first_of_size(const Leaf& leaf, int64_t bytes) {
  size_t at = 0;
  while (at < leaf.count && leaf.entries[at].bytes < bytes) ++at;
  return at;
}

FreeList::Position FreeList::lower_bound(const Bin& bin, int64_t bytes, uint64_t place) {
  const auto leaf = std::partition_point(bin.begin(), bin.end(), [&](const auto& each) {
    return each->count > 0 && is_before(each->last(), bytes, place);
  });
  const auto number = static_cast<size_t>(leaf - bin.begin());
  if (leaf == bin.end()) return {number, 0};
  size_t entry = 0;
  while (entry < (*leaf)->count && is_before((*leaf)->entries[entry], bytes, place)) ++entry;
  return {number, entry};
}

std::unique_ptr<FreeList::Leaf> FreeList::new_leaf() {
  if (spare_.empty()) {
    spare_.reserve(++leaves_made_);  // so that erase never has to ask for memory
    return std::make_unique<Leaf>();
  }
  std::unique_ptr<Leaf> leaf = std::move(spare_.back());
  spare_.pop_back();
  return leaf;
}

}  // namespace headroom
