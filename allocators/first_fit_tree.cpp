#include "allocators/first_fit_tree.h"

#include <algorithm>
#include <bit>

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
  if (wanted <= places()) return;
  std::vector<std::vector<Node>> levels;
  // Twice as many as now, so that growing stays rare.
  size_t nodes = (std::max(wanted, 2 * places()) + kFanOut - 1) / kFanOut;
  for (levels.emplace_back(nodes); nodes > 1; levels.emplace_back(nodes))
    nodes = (nodes + kFanOut - 1) / kFanOut;
  if (!levels_.empty()) std::copy(levels_.front().begin(), levels_.front().end(), levels.front().begin());
  for (size_t level = 0; level + 1 < levels.size(); ++level) {
    for (size_t i = 0; i < levels[level].size(); ++i) {
      levels[level + 1][i / kFanOut].set(i % kFanOut, most_of(levels[level][i]));
    }
  }
  levels_ = std::move(levels);
}

// Nothing changes further up unless this was the most below a node, or is now.
void FirstFitTree::set(size_t place, int32_t amount) noexcept {
  for (size_t level = 0;; ++level) {
    Node& node = levels_[level][place / kFanOut];
    const int32_t before = node.get(place % kFanOut);
    node.set(place % kFanOut, amount);
    if (level + 1 == levels_.size()) return;
    place /= kFanOut;
    const int32_t most = levels_[level + 1][place / kFanOut].get(place % kFanOut);
    if (std::max(before, amount) < most) return;
    if (amount < before) amount = most_of(node);
    if (amount == most) return;
  }
}

int64_t FirstFitTree::first_with(int32_t amount) const noexcept {
  size_t place = 0;
  for (auto level = levels_.rbegin(); level != levels_.rend(); ++level) {
    const size_t lane = first_lane((*level)[place], amount);
    if (lane == kFanOut) return -1;  // not below the topmost level
    place = place * kFanOut + lane;
  }
  return levels_.empty() ? -1 : static_cast<int64_t>(place);
}

}  // namespace headroom
