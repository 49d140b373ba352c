#include "allocators/pack.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <numeric>
#include <optional>
#include <vector>

#include "allocators/blocks/block_store.h"
#include "runtime/base/errors.h"
#include "runtime/base/random.h"

namespace headroom {
namespace {

// Greedy placement looks at every pair of blocks. Up to kFew blocks it is tried in several orders, up to
// kSome in one, above that not at all.
constexpr size_t kFew = 4096, kSome = 65536;
constexpr int64_t kMaxGreedyWork = int64_t{1} << 29;  // about a second for one order
constexpr int64_t kRetryWork = int64_t{1} << 22;      // some 30 ms

using Indices = std::vector<size_t>;

int length(const PlannedBlock& block) {
  return block.end - block.first;
}

bool live_together(const PlannedBlock& a, const PlannedBlock& b) {
  return a.first < b.end && b.first < a.end;
}

template <typename Before>
Indices sorted_indices(std::span<const PlannedBlock> blocks, const Before& before) {
  Indices order(blocks.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return before(blocks[a], blocks[b]); });
  return order;
}

// The largest sum of sizes live at one step, which no placement can go below, and the first such step.
struct LiveSet {
  int64_t bytes = 0;
  int step = 0;
};

LiveSet largest_live_set(std::span<const PlannedBlock> blocks) {
  std::vector<std::pair<int, int64_t>> changes;
  changes.reserve(2 * blocks.size());
  for (const PlannedBlock& block : blocks) {
    changes.emplace_back(block.first, block.bytes);
    changes.emplace_back(block.end, -block.bytes);
  }
  std::sort(changes.begin(), changes.end());  // frees come before allocations of the same step
  LiveSet largest;
  int64_t live = 0;
  for (const auto& [step, bytes] : changes) {
    live += bytes;
    if (live > largest.bytes) largest = {live, step};
  }
  return largest;
}

// The lowest placement found so far.
struct Best {
  int64_t height = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> offsets;
  Indices order;

  void offer(int64_t new_height, const std::vector<int64_t>& new_offsets, const Indices& new_order = {}) {
    if (new_height >= height) return;
    height = new_height;
    offsets = new_offsets;
    order = new_order;
  }
};

// Tries placements of one set of blocks.
class Packer {
 public:
  explicit Packer(std::span<const PlannedBlock> blocks)
      : blocks_(blocks), bound_(largest_live_set(blocks)), offsets_(blocks.size()) {}

  const Best& pack() {
    if (blocks_.size() > kFew) place_in_time();
    if (blocks_.size() <= kSome && best_.height > bound_.bytes) place_greedily();
    return best_;
  }
  int64_t work() const { return work_; }

 private:
  // As an allocator does that takes the tightest gap: in order of time, backwards, and outwards from the step
  // at which most is live, where nothing then lies between blocks. Which is lowest differs by program.
  void place_in_time() {
    by_first_ = sorted_indices(blocks_, [](const PlannedBlock& a, const PlannedBlock& b) {
      return a.first != b.first ? a.first < b.first : a.bytes > b.bytes;
    });
    by_end_ = sorted_indices(blocks_, [](const PlannedBlock& a, const PlannedBlock& b) {
      return a.end != b.end ? a.end < b.end : a.bytes < b.bytes;
    });
    // What lives longest lies lowest, so that free memory stays in one piece above it.
    Indices at_peak;
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (blocks_[i].first <= bound_.step && bound_.step < blocks_[i].end) at_peak.push_back(i);
    }
    std::stable_sort(at_peak.begin(), at_peak.end(),
                     [&](size_t a, size_t b) { return length(blocks_[a]) > length(blocks_[b]); });
    best_.offer(std::max(place_forwards(at_peak, bound_.step), place_backwards(at_peak, bound_.step)),
                offsets_);
    constexpr int kBegin = std::numeric_limits<int>::min(), kEnd = std::numeric_limits<int>::max();
    if (best_.height > bound_.bytes) best_.offer(place_backwards({}, kEnd), offsets_);
    if (best_.height > bound_.bytes) best_.offer(place_forwards({}, kBegin), offsets_);
  }

  // Places `live` one above the other, then what begins after that step, or ends by then.
  int64_t place_forwards(const Indices& live, int after) {
    return place_in_turn(
        live, by_first_, by_end_, [&](const PlannedBlock& block) { return block.first > after; },
        [](const PlannedBlock& gone, const PlannedBlock& next) { return gone.end <= next.first; });
  }
  int64_t place_backwards(const Indices& live, int until) {
    return place_in_turn(
        live, {by_end_.rbegin(), by_end_.rend()}, {by_first_.rbegin(), by_first_.rend()},
        [&](const PlannedBlock& block) { return block.end <= until; },
        [](const PlannedBlock& gone, const PlannedBlock& next) { return gone.first >= next.end; });
  }

  template <typename IsPlaced, typename IsGone>
  int64_t place_in_turn(const Indices& live, const Indices& begins, const Indices& ends,
                        const IsPlaced& is_placed, const IsGone& is_gone) {
    // The store knows addresses in units of 256 B: a byte here is a unit there.
    constexpr int64_t kUnitBytes = 256, kAll = int64_t{1} << 60;
    BlockStore store;
    store.add_list();
    std::byte* const base = reinterpret_cast<std::byte*>(kUnitBytes);
    store.add_segment(base, kAll, BlockStore::kFirstList);
    std::vector<bool> is_live(blocks_.size());
    int64_t height = 0;
    const auto take = [&](size_t index) {
      const int64_t units = std::max<int64_t>(1, blocks_[index].bytes) * kUnitBytes;
      const auto gap = store.best_fit(BlockStore::kFirstList, units);
      if (gap == BlockStore::kNone) throw InvalidArgument("more than 4 PiB of blocks cannot be planned");
      const auto taken =
          store.at(gap).bytes > units ? store.take_head(gap, units, units) : store.take(gap, units);
      offsets_[index] = (store.at(taken).pointer - base) / kUnitBytes;
      height = std::max(height, offsets_[index] + blocks_[index].bytes);
      is_live[index] = true;
      ++work_;
    };
    for (const size_t index : live) take(index);
    auto end = ends.begin();
    for (const size_t index : begins) {
      if (!is_placed(blocks_[index])) continue;
      if (length(blocks_[index]) <= 0) {  // in nobody's way
        offsets_[index] = 0;
        height = std::max(height, blocks_[index].bytes);
        continue;
      }
      for (; end != ends.end() && is_gone(blocks_[*end], blocks_[index]); ++end) {
        if (!is_live[*end]) continue;
        store.give_back(base + offsets_[*end] * kUnitBytes,
                        std::max<int64_t>(1, blocks_[*end].bytes) * kUnitBytes, BlockStore::kNobody);
        ++work_;
      }
      take(index);
    }
    return height;
  }

  // Greedy by size is TensorFlow Lite's rule, by lifetime and area XLA's and MiniMalloc's; start order is
  // what an online allocator sees. Which is lowest differs by graph.
  void place_greedily() {
    using Before = std::function<bool(const PlannedBlock&, const PlannedBlock&)>;
    const std::array<Before, 4> kOrders = {
        [](const PlannedBlock& a, const PlannedBlock& b) { return a.bytes > b.bytes; },
        [](const PlannedBlock& a, const PlannedBlock& b) { return length(a) > length(b); },
        [](const PlannedBlock& a, const PlannedBlock& b) {
          // double: bytes times steps can pass 2^63
          return static_cast<double>(a.bytes) * length(a) > static_cast<double>(b.bytes) * length(b);
        },
        [](const PlannedBlock& a, const PlannedBlock& b) { return a.first < b.first; },
    };
    const bool few = blocks_.size() <= kFew;
    Best greedy;
    for (const Before& before : std::span(kOrders).first(few ? kOrders.size() : 1)) {
      const Indices order = sorted_indices(blocks_, before);
      for (const bool best_fit : {false, true}) {
        if (best_fit && !few) break;
        const std::optional<int64_t> height = place(order, best_fit);
        if (!height) return;
        greedy.offer(*height, offsets_, order);
        if (greedy.height == bound_.bytes) break;
      }
      if (greedy.height == bound_.bytes) break;
    }
    improve(greedy);
    best_.offer(greedy.height, greedy.offsets);
  }

  // What still reaches above the bound came too late: it moves forward in the order, and all are placed again
  // ("squeaky wheel" optimization, Joslin, Clements 1999).
  void improve(Best& best) {
    Indices order = best.order;
    const auto count = static_cast<int64_t>(blocks_.size());
    for (int64_t spent = 0, round = 1; best.height > bound_.bytes && spent < kRetryWork;
         spent += count * count, ++round) {
      if (!place(order, round % 2 == 0)) return;
      for (size_t i = 1; i < order.size(); ++i) {
        const size_t index = order[i];
        if (offsets_[index] + blocks_[index].bytes <= bound_.bytes) continue;
        // A pseudo-random stride keeps the rounds from going in circles.
        const size_t stride =
            1 + static_cast<size_t>(random_words(0, static_cast<uint64_t>(round), i)[0] % order.size());
        const size_t to = i > stride ? i - stride : 0;
        std::rotate(order.begin() + static_cast<long>(to), order.begin() + static_cast<long>(i),
                    order.begin() + static_cast<long>(i) + 1);
      }
      const std::optional<int64_t> height = place(order, round % 2 == 0);
      if (!height) return;
      best.offer(*height, offsets_, order);
    }
  }

  // Places the blocks one by one in the given order, each in a gap between those already placed that live at
  // the same time: the lowest gap that fits, or the tightest. Returns the height reached; nothing when that
  // takes too much work.
  std::optional<int64_t> place(const Indices& order, bool best_fit) {
    const int64_t most_work = work_ + kMaxGreedyWork;
    int64_t height = 0;
    Indices placed;  // sorted by offset
    placed.reserve(order.size());
    for (const size_t index : order) {
      const PlannedBlock& block = blocks_[index];
      int64_t offset = -1, tightest = std::numeric_limits<int64_t>::max(), floor = 0;
      auto other = placed.begin();
      for (; other != placed.end(); ++other) {
        if (!live_together(block, blocks_[*other])) continue;
        const int64_t gap = offsets_[*other] - floor;
        if (gap >= block.bytes && gap < tightest) {
          offset = floor;
          tightest = gap;
          if (!best_fit) break;
        }
        floor = std::max(floor, offsets_[*other] + blocks_[*other].bytes);
      }
      work_ += other - placed.begin() + 1;
      if (work_ > most_work) return std::nullopt;
      offsets_[index] = offset >= 0 ? offset : floor;
      height = std::max(height, offsets_[index] + block.bytes);
      placed.insert(std::upper_bound(placed.begin(), placed.end(), index,
                                     [&](size_t a, size_t b) { return offsets_[a] < offsets_[b]; }),
                    index);
    }
    return height;
  }

  const std::span<const PlannedBlock> blocks_;
  const LiveSet bound_;
  std::vector<int64_t> offsets_;  // of the placement being tried
  Indices by_first_, by_end_;
  Best best_;
  int64_t work_ = 0;
};

}  // namespace

int64_t pack(std::span<PlannedBlock> blocks, int64_t* work) {
  if (blocks.empty()) return 0;
  Packer packer(blocks);
  const Best& best = packer.pack();
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i].offset_bytes = best.offsets[i];
  if (work != nullptr) *work += packer.work();
  return best.height;
}

}  // namespace headroom
