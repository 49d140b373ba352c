#include "allocators/blocks/first_fit_list.h"

#include <algorithm>
#include <bit>
#include <iterator>
#include <limits>
#include <utility>

namespace headroom {
namespace {

constexpr int32_t kAboveAll = std::numeric_limits<int32_t>::max();
// Neighbors that hold at most half a leaf together are merged.
constexpr uint32_t kJoined = 32;
// A full leaf with more non-empty entries than this is split; otherwise its empty entries are dropped.
constexpr uint32_t kCrowded = 48;

}  // namespace

void FirstFitList::prepare(size_t filled) {
  // One of two neighbors has more than kJoined / 2 entries, or they remain from a split and have more.
  const size_t wanted = filled / (kJoined / 4) + 3;
  const size_t had = leaves_.size();
  if (wanted <= had) return;
  const size_t count = std::max(wanted, 2 * had);
  order_.reserve(count);
  spare_.reserve(count);
  first_keys_.reserve(count);
  largest_.reserve(count);
  groups_.reserve(count / kGroup + 1);
  leaves_.resize(count);
  for (size_t leaf = count; leaf > had; --leaf) spare_.push_back(static_cast<uint32_t>(leaf - 1));
  if (!order_.empty()) return;
  order_.push_back(spare_.back());
  spare_.pop_back();
  first_keys_.push_back(0);
  largest_.push_back(0);
  clear(at(0));
}

void FirstFitList::set(int32_t key, int32_t amount, int32_t number) noexcept {
  const Leaf& leaf = at(last_.leaf);
  if (leaf.keys[last_.entry / 4][last_.entry % 4] != key) {
    last_ = place_of(key);
    const Leaf& found = at(last_.leaf);
    if (last_.entry == found.count || found.keys[last_.entry / 4][last_.entry % 4] != key) {
      if (amount > 0) return insert(key, amount, number);
      last_ = {};
      return;
    }
  }
  change(last_, amount, number);
  if (amount == 0 && order_.size() > 1) join(last_.leaf);
}

int32_t FirstFitList::first_with(int32_t amount) noexcept {
  uint32_t leaf = 0;
  if (!groups_.empty()) {
    const auto group = std::ranges::find_if(groups_, [amount](int32_t most) { return most >= amount; });
    visits_ += group - groups_.begin();
    if (group == groups_.end()) return kNone;
    leaf = static_cast<uint32_t>(group - groups_.begin()) * kGroup;
  }
  for (; leaf < order_.size(); ++leaf) {
    ++visits_;
    if (order_.size() > 1 && largest_[leaf] < amount) continue;
    const uint32_t entry = first_in(at(leaf), amount);
    if (entry == kEntries) continue;
    last_ = {leaf, entry};
    return at(leaf).numbers[entry];
  }
  return kNone;
}

int32_t FirstFitList::first_above(int32_t key) const noexcept {
  if (order_.empty()) return kNone;
  Place place = place_of(key + 1);
  for (; place.leaf < order_.size(); ++place.leaf, place.entry = 0) {
    const Leaf& leaf = at(place.leaf);
    for (; place.entry < leaf.count; ++place.entry) {
      if (leaf.amounts[place.entry / 4][place.entry % 4] > 0) return leaf.numbers[place.entry];
    }
  }
  return kNone;
}

// Returns the first entry of that key or a later one; its leaf's end if there is none.
inline FirstFitList::Place FirstFitList::place_of(int32_t key) const {
  uint32_t leaf = 0;
  if (order_.size() > 1) {
    const auto next = std::upper_bound(first_keys_.begin() + 1, first_keys_.end(), key);
    leaf = static_cast<uint32_t>(next - first_keys_.begin()) - 1;
  }
  return {leaf, keys_below(at(leaf), key)};
}

inline void FirstFitList::change(const Place& place, int32_t amount, int32_t number) noexcept {
  Leaf& leaf = at(place.leaf);
  // Stores four at once: processors stall if parts are stored and then read as a whole.
  const auto lane = static_cast<int32_t>(place.entry % 4);
  const Four here = Four{0, 1, 2, 3} == Four{lane, lane, lane, lane};
  Four& four = leaf.amounts[place.entry / 4];
  const int32_t before = four[lane];
  four = (four & ~here) | (Four{amount, amount, amount, amount} & here);
  leaf.numbers[place.entry] = number;
  leaf.filled += (amount > 0 ? 1 : 0) - (before > 0 ? 1 : 0);
  if (order_.size() == 1) return;
  const int32_t most = largest_[place.leaf];
  if (amount >= most) {
    set_largest(place.leaf, amount);
  } else if (before == most) {
    set_largest(place.leaf, largest_in(leaf));
  }
}

inline void FirstFitList::set_largest(uint32_t leaf, int32_t amount) noexcept {
  const int32_t before = std::exchange(largest_[leaf], amount);
  if (groups_.empty()) return;
  int32_t& most = groups_[leaf / kGroup];
  if (amount >= most) {
    most = amount;
  } else if (before == most) {
    visits_ += kGroup;
    most = largest_of_group(leaf / kGroup);
  }
}

int32_t FirstFitList::largest_of_group(uint32_t group) const noexcept {
  const auto first = largest_.begin() + static_cast<std::ptrdiff_t>(group) * kGroup;
  const auto left = largest_.end() - first;
  return *std::max_element(first, left < kGroup ? largest_.end() : first + kGroup);
}

// Updates the groups after leaves from that one on have moved.
void FirstFitList::find_largest_of_groups(uint32_t first_leaf) noexcept {
  if (order_.size() <= kGroup) return groups_.clear();
  if (groups_.empty()) first_leaf = 0;
  groups_.resize((order_.size() - 1) / kGroup + 1);  // within what prepare() reserved
  for (uint32_t group = first_leaf / kGroup; group < groups_.size(); ++group) {
    groups_[group] = largest_of_group(group);
  }
}

// A key that has no entry: before or at last_, the place that it would have.
void FirstFitList::insert(int32_t key, int32_t amount, int32_t number) noexcept {
  const auto holds_nothing = [this](uint32_t entry) {
    return at(last_.leaf).amounts[entry / 4][entry % 4] == 0;
  };
  if (last_.entry > 0 && holds_nothing(last_.entry - 1)) {
    --last_.entry;
  } else if (last_.entry == at(last_.leaf).count || !holds_nothing(last_.entry)) {
    if (at(last_.leaf).count == kEntries) {
      make_room(last_.leaf);
      last_ = place_of(key);
    }
    Leaf& leaf = at(last_.leaf);
    for (uint32_t entry = leaf.count++; entry > last_.entry; --entry) {
      const uint32_t from = entry - 1;
      leaf.keys[entry / 4][entry % 4] = leaf.keys[from / 4][from % 4];
      leaf.amounts[entry / 4][entry % 4] = leaf.amounts[from / 4][from % 4];
      leaf.numbers[entry] = leaf.numbers[from];
    }
    leaf.amounts[last_.entry / 4][last_.entry % 4] = 0;
  }
  at(last_.leaf).keys[last_.entry / 4][last_.entry % 4] = key;
  change(last_, amount, number);
}

// Drops the empty entries of a full leaf or, if there are few, moves the upper half to a new leaf.
void FirstFitList::make_room(uint32_t number) noexcept {
  const Leaf all = at(number);
  clear(at(number));
  if (all.filled <= kCrowded) return append_filled(at(number), all, 0, kEntries);
  append_filled(at(number), all, 0, kEntries / 2);
  const auto after = static_cast<std::ptrdiff_t>(number) + 1;
  order_.insert(order_.begin() + after, spare_.back());
  spare_.pop_back();
  Leaf& upper = at(number + 1);
  clear(upper);
  append_filled(upper, all, kEntries / 2, kEntries);
  first_keys_.insert(first_keys_.begin() + after, upper.keys[0][0]);
  largest_[number] = largest_in(at(number));
  largest_.insert(largest_.begin() + after, largest_in(upper));
  find_largest_of_groups(number);
}

// Joins a leaf with a neighbor if both hold few keys.
void FirstFitList::join(uint32_t number) noexcept {
  const auto fits = [this](uint32_t lower) {
    return lower + 1 < order_.size() && at(lower).filled + at(lower + 1).filled <= kJoined;
  };
  uint32_t lower = number;
  if (!fits(lower)) {
    if (lower == 0 || !fits(--lower)) return;
  }
  const Leaf all = at(lower);
  clear(at(lower));
  append_filled(at(lower), all, 0, all.count);
  append_filled(at(lower), at(lower + 1), 0, at(lower + 1).count);
  largest_[lower] = largest_in(at(lower));
  const auto gone = static_cast<std::ptrdiff_t>(lower) + 1;
  spare_.push_back(order_[lower + 1]);
  order_.erase(order_.begin() + gone);
  first_keys_.erase(first_keys_.begin() + gone);
  largest_.erase(largest_.begin() + gone);
  find_largest_of_groups(lower);
  last_ = {};
}

// Vector extensions of GCC and Clang: left to themselves they make sixteen branches of the loops that these
// stand for.
inline uint32_t FirstFitList::first_in(const Leaf& leaf, int32_t amount) {
  const Four less = Four{amount, amount, amount, amount} - 1;
  for (uint32_t entry = 0; entry < leaf.count; entry += 16) {
    const Four* const four = leaf.amounts + entry / 4;
    const Four bits = ((four[0] > less) & Four{1, 2, 4, 8}) | ((four[1] > less) & Four{16, 32, 64, 128}) |
                      ((four[2] > less) & Four{1 << 8, 1 << 9, 1 << 10, 1 << 11}) |
                      ((four[3] > less) & Four{1 << 12, 1 << 13, 1 << 14, 1 << 15});
    const auto lanes = static_cast<uint32_t>(bits[0] | bits[1] | bits[2] | bits[3]);
    if (lanes != 0) return entry + static_cast<uint32_t>(std::countr_zero(lanes));
  }
  return kEntries;
}

inline uint32_t FirstFitList::keys_below(const Leaf& leaf, int32_t key) {
  const Four four_keys = {key, key, key, key};
  Four below = {};
  for (uint32_t entry = 0; entry < leaf.count; entry += 4) below -= leaf.keys[entry / 4] < four_keys;
  return static_cast<uint32_t>(below[0] + below[1] + below[2] + below[3]);
}

int32_t FirstFitList::largest_in(const Leaf& leaf) {
  Four most = {};
  for (const Four& four : leaf.amounts) {
    const Four is_more = four > most;
    most = (four & is_more) | (most & ~is_more);
  }
  return std::max(std::max(most[0], most[1]), std::max(most[2], most[3]));
}

void FirstFitList::clear(Leaf& leaf) {
  std::ranges::fill(leaf.keys, Four{kAboveAll, kAboveAll, kAboveAll, kAboveAll});
  std::ranges::fill(leaf.amounts, Four{});
  leaf.count = leaf.filled = 0;
}

void FirstFitList::append_filled(Leaf& to, const Leaf& from, uint32_t begin, uint32_t end) {
  for (uint32_t entry = begin; entry < end; ++entry) {
    const int32_t amount = from.amounts[entry / 4][entry % 4];
    if (amount == 0) continue;
    to.keys[to.count / 4][to.count % 4] = from.keys[entry / 4][entry % 4];
    to.amounts[to.count / 4][to.count % 4] = amount;
    to.numbers[to.count++] = from.numbers[entry];
    ++to.filled;
  }
}

}  // namespace headroom
