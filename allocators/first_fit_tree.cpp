#include "allocators/first_fit_tree.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace headroom {

// Vector extensions of GCC and Clang: left to themselves they make sixteen branches of the loops that these
// stand for.
inline int32_t FirstFitTree::most_of(const Node& node) {
  const auto larger = [](Four a, Four b) {
    const Four a_is = a > b;
    return (a & a_is) | (b & ~a_is);
  };
  const Four four = larger(larger(node.most[0], node.most[1]), larger(node.most[2], node.most[3]));
  return std::max(std::max(four[0], four[1]), std::max(four[2], four[3]));
}

inline size_t FirstFitTree::first_lane(const Node& node, int32_t amount) {
  const Four less = Four{amount, amount, amount, amount} - 1;
  const Four bits = ((node.most[0] > less) & Four{1, 2, 4, 8}) |
                    ((node.most[1] > less) & Four{16, 32, 64, 128}) |
                    ((node.most[2] > less) & Four{1 << 8, 1 << 9, 1 << 10, 1 << 11}) |
                    ((node.most[3] > less) & Four{1 << 12, 1 << 13, 1 << 14, 1 << 15});
  const auto lanes = static_cast<uint32_t>(bits[0] | bits[1] | bits[2] | bits[3]);
  return static_cast<size_t>(std::countr_zero(lanes | 1u << kFanOut));
}

void FirstFitTree::grow(size_t wanted) {
  if (wanted <= places_) return;
  std::array<size_t, kMostLevels> begins = {};
  size_t height = 0, count = 0;
  // Twice as many as now, so that growing stays rare.
  for (size_t width = std::max(wanted, 2 * places_); height == 0 || width > 1;) {
    width = (width + kFanOut - 1) / kFanOut;
    begins[height++] = count;
    count += width;
  }
  std::vector<Node> nodes(count);
  std::copy_n(nodes_.begin(), places_ / kFanOut, nodes.begin());
  nodes_ = std::move(nodes);
  height_ = height;
  for (size_t level = 0; level < height; ++level) levels_[level] = nodes_.data() + begins[level];
  places_ = (height == 1 ? count : begins[1]) * kFanOut;
  for (size_t level = 0; level + 1 < height; ++level) {
    const size_t width = begins[level + 1] - begins[level];
    for (size_t i = 0; i < width; ++i) {
      levels_[level + 1][i / kFanOut].set(i % kFanOut, most_of(levels_[level][i]));
    }
  }
}

// Nothing changes further up unless this was the most below a node, or is now.
void FirstFitTree::set(size_t place, int32_t amount) noexcept {
  Node* node = levels_[0] + place / kFanOut;
  int32_t before = node->get(place % kFanOut);
  node->set(place % kFanOut, amount);
  for (size_t level = 1; level < height_; ++level) {
    place /= kFanOut;
    Node* const above = levels_[level] + place / kFanOut;
    const int32_t most = above->get(place % kFanOut);
    if (amount < before) {
      if (before < most) return;
      amount = most_of(*node);
      if (amount == most) return;
    } else if (amount <= most) {
      return;
    }
    before = most;
    above->set(place % kFanOut, amount);
    node = above;
  }
}

int64_t FirstFitTree::first_with(int32_t amount) const noexcept {
  size_t place = 0;
  for (size_t level = height_; level > 0; --level) {
    const size_t lane = first_lane(levels_[level - 1][place], amount);
    if (lane == kFanOut) return -1;  // not below the topmost level
    place = place * kFanOut + lane;
  }
  return height_ == 0 ? -1 : static_cast<int64_t>(place);
}

}  // namespace headroom
