#include "allocators/pack.h"

#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <vector>

#include "runtime/base/random.h"

namespace headroom {
namespace {

// From here on one order has to do: each takes time that grows with the square, 0.2 s for 20,000 blocks.
constexpr size_t kMany = 4096;

int length(const PlannedBlock& block) {
  return block.end - block.first;
}

bool live_together(const PlannedBlock& a, const PlannedBlock& b) {
  return a.first < b.end && b.first < a.end;
}

// Places the blocks one by one in the given order, each in a gap between those already placed that live at
// the same time: the lowest gap that fits, or the tightest. Returns the height reached.
int64_t place(std::span<const PlannedBlock> blocks, std::span<const size_t> order, bool best_fit,
              std::vector<int64_t>& offsets) {
  int64_t height = 0;
  std::vector<size_t> placed;  // sorted by offset
  for (size_t index : order) {
    const PlannedBlock& block = blocks[index];
    int64_t offset = -1, tightest = std::numeric_limits<int64_t>::max(), floor = 0;
    for (size_t other : placed) {
      if (!live_together(block, blocks[other])) continue;
      const int64_t gap = offsets[other] - floor;
      if (gap >= block.bytes && gap < tightest) {
        offset = floor;
        tightest = best_fit ? gap : 0;
      }
      floor = std::max(floor, offsets[other] + blocks[other].bytes);
    }
    offsets[index] = offset >= 0 ? offset : floor;
    height = std::max(height, offsets[index] + block.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), index,
                                   [&](size_t a, size_t b) { return offsets[a] < offsets[b]; }),
                  index);
  }
  return height;
}

// The largest sum of sizes live at one step: no placement is lower.
int64_t largest_live_set(std::span<const PlannedBlock> blocks) {
  std::map<int, int64_t> change;
  for (const PlannedBlock& block : blocks) {
    change[block.first] += block.bytes;
    change[block.end] -= block.bytes;
  }
  int64_t live = 0, largest = 0;
  for (const auto& [step, bytes] : change) largest = std::max(largest, live += bytes);
  return largest;
}

// The lowest placement found so far.
struct Best {
  int64_t height = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> offsets;
  std::vector<size_t> order;

  void offer(int64_t new_height, const std::vector<int64_t>& new_offsets,
             const std::vector<size_t>& new_order) {
    if (new_height >= height) return;
    height = new_height;
    offsets = new_offsets;
    order = new_order;
  }
};

}  // namespace

int64_t pack(std::span<PlannedBlock> blocks) {
  if (blocks.empty()) return 0;
  const int64_t bound = largest_live_set(blocks);
  std::vector<int64_t> offsets(blocks.size());
  std::vector<size_t> order(blocks.size());
  Best best;

  // Greedy by size is TensorFlow Lite's rule, by lifetime and area XLA's and MiniMalloc's; start order is
  // what an online allocator sees. Which one wins differs by graph, so all are tried.
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
  const bool many = blocks.size() > kMany;
  for (const Before& before : std::span(kOrders).first(many ? 1 : kOrders.size())) {
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return before(blocks[a], blocks[b]); });
    for (bool best_fit : {false, true}) {
      if (best_fit && many) break;
      best.offer(place(blocks, order, best_fit, offsets), offsets, order);
    }
  }

  // What still reaches above the bound came too late: it moves forward in the order, and all are placed again
  // ("squeaky wheel" optimization, Joslin, Clements 1999). The effort is bounded by the number of blocks
  // looked at, some 30 ms.
  constexpr int64_t kEffort = int64_t{1} << 22;
  const auto count = static_cast<int64_t>(blocks.size());
  order = best.order;
  for (int64_t spent = 0, round = 1; best.height > bound && spent < kEffort;
       spent += count * count, ++round) {
    place(blocks, order, round % 2 == 0, offsets);
    for (size_t i = 1; i < order.size(); ++i) {
      const size_t index = order[i];
      if (offsets[index] + blocks[index].bytes <= bound) continue;
      // A pseudo-random stride keeps the rounds from going in circles.
      const size_t stride =
          1 + static_cast<size_t>(random_words(0, static_cast<uint64_t>(round), i)[0] % order.size());
      const size_t to = i > stride ? i - stride : 0;
      std::rotate(order.begin() + static_cast<long>(to), order.begin() + static_cast<long>(i),
                  order.begin() + static_cast<long>(i) + 1);
    }
    best.offer(place(blocks, order, round % 2 == 0, offsets), offsets, order);
  }
  for (size_t i = 0; i < blocks.size(); ++i) blocks[i].offset_bytes = best.offsets[i];
  return best.height;
}

}  // namespace headroom
