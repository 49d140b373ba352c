#include <algorithm>
#include <array>
#include <functional>
#include <limits>
#include <numeric>

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

}  // namespace

int64_t pack(std::span<Buffer> buffers) {
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
  int64_t least = std::numeric_limits<int64_t>::max();
  std::vector<int64_t> offsets(buffers.size()), best(buffers.size());
  std::vector<size_t> order(buffers.size());
  for (const Before& before : kOrders) {
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return before(buffers[a], buffers[b]); });
    for (bool best_fit : {false, true}) {
      const int64_t height = place(buffers, order, best_fit, offsets);
      if (height >= least) continue;
      least = height;
      best = offsets;
    }
  }
  for (size_t i = 0; i < buffers.size(); ++i) buffers[i].offset_bytes = best[i];
  return buffers.empty() ? 0 : least;
}

}  // namespace headroom
