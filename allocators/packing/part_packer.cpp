#include "allocators/packing/part_packer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>
#include <vector>

#include "allocators/packing/exact_search.h"
#include "allocators/packing/first_fit.h"
#include "allocators/packing/time_order.h"

namespace headroom::packing {
namespace {

constexpr size_t kFew = 4096;                       // searched whole
constexpr int64_t kLargeShare = 4;                  // share of the work, where it gains little
constexpr int64_t kMostEntries = int64_t{1} << 25;  // entries of a search's table of columns: 128 MiB
constexpr int64_t kMostShelved = int64_t{1} << 17;  // items placed by first fit
using ItemOrder = std::vector<int>;

class PartPacker {
 public:
  PartPacker(const Problem& problem, int64_t goal, int64_t max_work)
      : problem_(problem),
        goal_(goal),
        max_work_(problem.items.size() > kFew ? max_work / kLargeShare : max_work) {
    result_.placement.height = std::numeric_limits<int64_t>::max();
    result_.lower_bound = problem.lower_bound();
    goal_ = std::max(goal, result_.lower_bound);
  }

  PartPacking pack() {
    const size_t count = problem_.items.size();
    if (count > kFew) offer(place_in_time(problem_, goal_, result_.work));
    if (result_.placement.offsets.empty() || (!is_done() && count <= kMostShelved)) place_in_orders();
    if (!is_done()) count <= kFew ? search_all() : search_large();
    return std::move(result_);
  }

 private:
  bool is_done() const { return result_.placement.height <= goal_ || work_left() <= 0; }
  int64_t work_left() const { return max_work_ - result_.work; }

  bool offer(const Placement& placement) {
    if (placement.height >= result_.placement.height) return false;
    result_.placement = placement;
    return true;
  }

  template <typename Key>
  ItemOrder sorted_by(const Key& key) const {
    std::vector<std::pair<double, int>> keys;
    keys.reserve(problem_.items.size());
    for (size_t i = 0; i < problem_.items.size(); ++i) {
      keys.emplace_back(-key(problem_.items[i]), static_cast<int>(i));
    }
    std::ranges::sort(keys);
    ItemOrder order;
    for (const auto& [unused, index] : keys) order.push_back(index);
    return order;
  }

  const ItemOrder& sorted_by_size() {
    if (by_size_.empty()) {
      by_size_ = sorted_by([](const Item& item) { return static_cast<double>(item.size); });
    }
    return by_size_;
  }

  // Greedy by size is TensorFlow Lite's rule, by lifetime and area XLA's and MiniMalloc's; by start is the
  // order of an online allocator. The best one differs by graph.
  void place_in_orders() {
    const auto size = [](const Item& item) { return static_cast<double>(item.size); };
    const auto steps = [](const Item& item) { return static_cast<double>(item.steps); };
    using Key = double (*)(double, double);
    constexpr std::array<Key, 6> kKeys = {
        [](double bytes, double) { return bytes; },
        [](double bytes, double life) { return std::floor(std::log2(bytes) / 2) * 0x1p40 + life; },
        [](double bytes, double life) { return bytes * std::sqrt(std::sqrt(life)); },
        [](double bytes, double life) { return bytes * std::sqrt(life); },
        [](double bytes, double life) { return bytes * life; },
        [](double, double life) { return life; },
    };
    FirstFit first_fit(problem_);
    const bool few = problem_.items.size() <= kFew;
    const auto attempt = [&](const ItemOrder& order, Fit fit) {
      const int64_t before = first_fit.work();
      // A first placement of few items always comes.
      const bool placed = first_fit.place_all(
          order, fit,
          result_.placement.offsets.empty() ? std::numeric_limits<int64_t>::max() / 2 : work_left() / 2);
      result_.work += first_fit.work() - before;
      if (placed) offer(first_fit.placement());
    };
    for (const Key key : kKeys) {
      const ItemOrder order = sorted_by([&](const Item& item) { return key(size(item), steps(item)); });
      for (const Fit fit : {Fit::kFirst, Fit::kBest}) {
        if (fit == Fit::kBest && !few) break;
        attempt(order, fit);
        if (is_done()) return;
      }
    }
    const ItemOrder by_start = sorted_by([](const Item& item) { return -static_cast<double>(item.first); });
    attempt(by_start, few ? Fit::kBest : Fit::kFirst);
  }

  // Tries capacities between the proven bound and the best result, with increasing effort.
  void search_all() {
    ExactSearch search(problem_);
    constexpr std::array<std::pair<SearchOrder, bool>, 6> kWays = {{
        {SearchOrder::kCrowding, false},
        {SearchOrder::kLife, false},
        {SearchOrder::kCrowdingLife, false},
        {SearchOrder::kConflictsArea, true},
        {SearchOrder::kLife, true},
        {SearchOrder::kConflictsLife, false},
    }};
    const auto first_nodes = static_cast<int64_t>(2 * problem_.items.size());
    for (int64_t nodes = first_nodes; !is_done(); nodes *= 2) {
      for (const int64_t share : {int64_t{0}, int64_t{2}, int64_t{8}}) {
        for (const auto& [order, is_thorough] : kWays) {
          if (is_done()) return;
          // A thorough search takes some ten times as long for a node.
          const int64_t max_nodes = is_thorough ? nodes / 4 : nodes;
          if (max_nodes < first_nodes) continue;
          const int64_t low = std::max(goal_, result_.lower_bound);
          const int64_t gap = result_.placement.height - low;
          const int64_t capacity =
              share == 0 ? low : result_.placement.height - std::max<int64_t>(1, gap / share);
          const auto answer = search.fits_below(capacity, {order, is_thorough, max_nodes, work_left()});
          result_.work += search.work();
          if (answer == ExactSearch::Answer::kFits) offer(placement_of(search.offsets()));
          if (answer != ExactSearch::Answer::kDoesNotFit) continue;
          result_.lower_bound = std::max(result_.lower_bound, capacity + 1);
          goal_ = std::max(goal_, result_.lower_bound);
        }
      }
    }
  }

  Placement placement_of(const std::vector<int64_t>& offsets) const {
    Placement placement{offsets, 0};
    for (size_t i = 0; i < offsets.size(); ++i) {
      placement.height = std::max(placement.height, offsets[i] + problem_.items[i].size);
    }
    return placement;
  }

  // Searches for places of the large items, almost without a second choice, and fills the rest in: with few
  // large ones at first, as that is quick.
  void search_large() {
    for (const int64_t share : {32, 256, 2048}) {
      if (!is_done()) search_large(large_items(goal_ / share));
    }
  }

  void search_large(const ItemOrder& large) {
    int64_t entries = 0;
    Problem part;
    for (const int index : large) {
      part.items.push_back(problem_.items[static_cast<size_t>(index)]);
      entries += part.items.back().columns();
    }
    if (entries > kMostEntries) return;
    compress_columns(part);
    ExactSearch search(part);
    const auto attempt = [&](int64_t capacity) {
      for (const SearchOrder order : {SearchOrder::kLife, SearchOrder::kCrowdingLife}) {
        const auto nodes = static_cast<int64_t>(4 * part.items.size());
        const auto answer = search.fits_below(capacity, {order, false, nodes, work_left() / 4});
        result_.work += search.work();
        if (answer == ExactSearch::Answer::kFits) return fill_in(large, search.offsets());
        if (is_done()) break;
      }
      return false;
    };
    // Starts 0.2 % above the bound, where a search seldom backtracks, and goes down to the bound; or up.
    const int64_t bound = goal_;
    bool failed = false, fitted = false;
    for (int64_t slack = bound / 512; !is_done() && bound + slack < result_.placement.height;) {
      if (attempt(bound + slack)) {
        if (failed || slack == 0) return;
        fitted = true;
        slack = slack > bound / 4096 ? slack / 4 : 0;
      } else {
        if (fitted) return;
        failed = true;
        slack = 2 * slack + 1;
      }
    }
  }

  // Returns all but the smallest items, of which at most `small_units` are live together.
  ItemOrder large_items(int64_t small_units) {
    const ItemOrder& by_size = sorted_by_size();
    ItemOrder large;
    std::vector<int64_t> change;
    const auto small_live = [&](size_t from) {
      change.assign(static_cast<size_t>(problem_.columns) + 1, 0);
      for (size_t i = from; i < by_size.size(); ++i) {
        const Item& item = problem_.items[static_cast<size_t>(by_size[i])];
        change[static_cast<size_t>(item.first)] += item.size;
        change[static_cast<size_t>(item.end)] -= item.size;
      }
      int64_t live = 0, most = 0;
      for (const int64_t units : change) most = std::max(most, live += units);
      return most;
    };
    size_t low = 0, high = by_size.size();  // the items from `high` on are small
    while (low < high) {
      const size_t middle = (low + high) / 2;
      if (small_live(middle) <= small_units)
        high = middle;
      else
        low = middle + 1;
    }
    large.assign(by_size.begin(), by_size.begin() + static_cast<ptrdiff_t>(high));
    std::ranges::sort(large);
    return large;
  }

  bool fill_in(const ItemOrder& large, const std::vector<int64_t>& offsets) {
    FirstFit first_fit(problem_);
    std::vector<char> is_large(problem_.items.size());
    for (size_t i = 0; i < large.size(); ++i) {
      is_large[static_cast<size_t>(large[i])] = 1;
      first_fit.put(large[i], offsets[i]);
    }
    for (const int index : sorted_by_size()) {
      if (!is_large[static_cast<size_t>(index)]) first_fit.place(index, Fit::kFirst);
    }
    result_.work += first_fit.work();
    return offer(first_fit.placement());
  }

  const Problem& problem_;
  int64_t goal_;
  const int64_t max_work_;
  ItemOrder by_size_;  // once it is needed
  PartPacking result_;
};

}  // namespace

PartPacking pack_part(const Problem& problem, int64_t goal, int64_t max_work) {
  return PartPacker(problem, goal, max_work).pack();
}

}  // namespace headroom::packing
