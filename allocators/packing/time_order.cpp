#include "allocators/packing/time_order.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "allocators/blocks/block_store.h"

namespace headroom::packing {
namespace {

using Indices = std::vector<size_t>;

class TimePacker {
 public:
  TimePacker(const Problem& problem, int64_t& work)
      : problem_(problem), offsets_(problem.items.size()), work_(work) {
    // The store knows no alignment: sizes and so all offsets become multiples of the largest one.
    for (const Item& item : problem.items) alignment_ = std::max(alignment_, item.alignment);
  }

  Placement pack(int64_t goal) {
    by_first_ = sorted([](const Item& a, const Item& b) {
      return a.first != b.first ? a.first < b.first : a.size > b.size;
    });
    by_end_ =
        sorted([](const Item& a, const Item& b) { return a.end != b.end ? a.end < b.end : a.size < b.size; });
    const std::vector<int64_t> live = problem_.live();
    const auto peak = static_cast<int>(std::ranges::max_element(live) - live.begin());
    // Items that live longest lie lowest, so that free memory stays in one piece above them.
    Indices at_peak;
    for (size_t i = 0; i < problem_.items.size(); ++i) {
      if (problem_.items[i].first <= peak && peak < problem_.items[i].end) at_peak.push_back(i);
    }
    std::ranges::stable_sort(at_peak, [&](size_t a, size_t b) {
      return problem_.items[a].columns() > problem_.items[b].columns();
    });
    offer(std::max(place_forwards(at_peak, peak), place_backwards(at_peak, peak)));
    if (best_.height > goal) offer(place_backwards({}, problem_.columns));
    if (best_.height > goal) offer(place_forwards({}, -1));
    return std::move(best_);
  }

 private:
  template <typename Before>
  Indices sorted(const Before& before) const {
    Indices order(problem_.items.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::ranges::stable_sort(
        order, [&](size_t a, size_t b) { return before(problem_.items[a], problem_.items[b]); });
    return order;
  }

  void offer(int64_t height) {
    if (height < best_.height) best_ = {offsets_, height};
  }

  // Stacks `live`, then the items that begin after that column, or end by then.
  int64_t place_forwards(const Indices& live, int after) {
    return place_in_turn(
        live, by_first_, by_end_, [&](const Item& item) { return item.first > after; },
        [](const Item& gone, const Item& next) { return gone.end <= next.first; });
  }
  int64_t place_backwards(const Indices& live, int until) {
    return place_in_turn(
        live, {by_end_.rbegin(), by_end_.rend()}, {by_first_.rbegin(), by_first_.rend()},
        [&](const Item& item) { return item.end <= until; },
        [](const Item& gone, const Item& next) { return gone.first >= next.end; });
  }

  template <typename IsPlaced, typename IsGone>
  int64_t place_in_turn(const Indices& live, const Indices& begins, const Indices& ends,
                        const IsPlaced& is_placed, const IsGone& is_gone) {
    // The store knows addresses in units of 256 B: a unit of ours is one there.
    constexpr int64_t kUnitBytes = 256, kAll = int64_t{1} << 60;
    BlockStore store;
    store.add_list();
    std::byte* const base = reinterpret_cast<std::byte*>(kUnitBytes);
    store.add_segment(base, kAll, BlockStore::kFirstList);
    std::vector<bool> is_live(problem_.items.size());
    int64_t height = 0;
    const auto bytes = [&](size_t index) {
      return (problem_.items[index].size + alignment_ - 1) / alignment_ * alignment_ * kUnitBytes;
    };
    const auto take = [&](size_t index) {
      const auto gap = store.best_fit(BlockStore::kFirstList, bytes(index));
      if (gap == BlockStore::kNone) refuse_to_pack();
      const auto taken = store.at(gap).bytes > bytes(index) ? store.take_head(gap, bytes(index), bytes(index))
                                                            : store.take(gap, bytes(index));
      offsets_[index] = (store.at(taken).pointer - base) / kUnitBytes;
      height = std::max(height, offsets_[index] + problem_.items[index].size);
      is_live[index] = true;
      ++work_;
    };
    for (const size_t index : live) take(index);
    auto end = ends.begin();
    for (const size_t index : begins) {
      if (!is_placed(problem_.items[index])) continue;
      for (; end != ends.end() && is_gone(problem_.items[*end], problem_.items[index]); ++end) {
        if (!is_live[*end]) continue;
        store.give_back(base + offsets_[*end] * kUnitBytes, bytes(*end), BlockStore::kNobody);
        ++work_;
      }
      take(index);
    }
    return height;
  }

  const Problem& problem_;
  std::vector<int64_t> offsets_;  // offsets of the placement being tried
  Indices by_first_, by_end_;
  int64_t alignment_ = 1;
  Placement best_{{}, std::numeric_limits<int64_t>::max()};
  int64_t& work_;
};

}  // namespace

Placement place_in_time(const Problem& problem, int64_t goal, int64_t& work) {
  return TimePacker(problem, work).pack(goal);
}

}  // namespace headroom::packing
