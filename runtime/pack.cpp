#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <map>
#include <numeric>

#include "runtime/core/random.h"
#include "runtime/plan.h"

namespace headroom {
namespace {

int length(const Buffer& buffer) {
  return buffer.end_step - buffer.first_step;
}

bool live_together(const Buffer& a, const Buffer& b) {
  return a.first_step < b.end_step && b.first_step < a.end_step;
}

// Places the buffers one by one in the given order, each in a gap between those already placed that live at
// the same time: the lowest gap that fits, or the tightest. Returns the height reached.
int64_t place(std::span<const Buffer> buffers, std::span<const size_t> order, bool best_fit,
              std::vector<int64_t>& offsets) {
  int64_t height = 0;
  std::vector<size_t> placed;  // sorted by offset
  for (size_t index : order) {
    const Buffer& buffer = buffers[index];
    int64_t offset = -1, tightest = std::numeric_limits<int64_t>::max(), floor = 0;
    for (size_t other : placed) {
      if (!live_together(buffer, buffers[other])) continue;
      const int64_t gap = offsets[other] - floor;
      if (gap >= buffer.bytes && gap < tightest) {
        offset = floor;
        tightest = best_fit ? gap : 0;
      }
      floor = std::max(floor, offsets[other] + buffers[other].bytes);
    }
    offsets[index] = offset >= 0 ? offset : floor;
    height = std::max(height, offsets[index] + buffer.bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), index,
                                   [&](size_t a, size_t b) { return offsets[a] < offsets[b]; }),
                  index);
  }
  return height;
}

// The largest sum of sizes live at one step: no placement is lower.
int64_t largest_live_set(std::span<const Buffer> buffers) {
  std::map<int, int64_t> change;
  for (const Buffer& buffer : buffers) {
    change[buffer.first_step] += buffer.bytes;
    change[buffer.end_step] -= buffer.bytes;
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

int64_t pack(std::span<Buffer> buffers) {
  if (buffers.empty()) return 0;
  const int64_t bound = largest_live_set(buffers);
  std::vector<int64_t> offsets(buffers.size());
  std::vector<size_t> order(buffers.size());
  Best best;

  // Greedy by size is TensorFlow Lite's rule, by lifetime and area XLA's and MiniMalloc's; start order is
  // what an online allocator sees. Which one wins differs by graph, so all are tried.
  using Before = std::function<bool(const Buffer&, const Buffer&)>;
  const std::array<Before, 4> kOrders = {
      [](const Buffer& a, const Buffer& b) { return a.bytes > b.bytes; },
      [](const Buffer& a, const Buffer& b) { return length(a) > length(b); },
      [](const Buffer& a, const Buffer& b) {
        // double: bytes times steps can pass 2^63
        return static_cast<double>(a.bytes) * length(a) > static_cast<double>(b.bytes) * length(b);
      },
      [](const Buffer& a, const Buffer& b) { return a.first_step < b.first_step; },
  };
  for (const Before& before : kOrders) {
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return before(buffers[a], buffers[b]); });
    for (bool best_fit : {false, true}) best.offer(place(buffers, order, best_fit, offsets), offsets, order);
  }

  // What still reaches above the bound came too late: it moves forward in the order, and all are placed again
  // ("squeaky wheel" optimization, Joslin, Clements 1999). The effort is bounded by the number of buffers
  // looked at, some 30 ms.
  constexpr int64_t kEffort = int64_t{1} << 22;
  const auto count = static_cast<int64_t>(buffers.size());
  order = best.order;
  for (int64_t spent = 0, round = 1; best.height > bound && spent < kEffort;
       spent += count * count, ++round) {
    place(buffers, order, round % 2 == 0, offsets);
    for (size_t i = 1; i < order.size(); ++i) {
      const size_t index = order[i];
      if (offsets[index] + buffers[index].bytes <= bound) continue;
      // A pseudo-random stride keeps the rounds from going in circles.
      const size_t stride =
          1 + static_cast<size_t>(random_words(0, static_cast<uint64_t>(round), i)[0] % order.size());
      const size_t to = i > stride ? i - stride : 0;
      std::rotate(order.begin() + static_cast<long>(to), order.begin() + static_cast<long>(i),
                  order.begin() + static_cast<long>(i) + 1);
    }
    best.offer(place(buffers, order, round % 2 == 0, offsets), offsets, order);
  }
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].offset_bytes = best.offsets[i];
  return best.height;
}

}  // namespace headroom
