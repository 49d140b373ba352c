#include "runtime/onnx/item.h"

#include <algorithm>
#include <numeric>

namespace headroom::onnx {

bool all_constant(const std::vector<Item>& items) {
  return std::ranges::all_of(items, [](const Item& item) { return item.constant.has_value(); });
}

Axes in_order(int rank) {
  Axes axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

bool is_in_order(const Axes& axes) {
  return std::ranges::is_sorted(axes);
}

Shape permuted(const Shape& from, const Axes& order) {
  std::vector<int64_t> extents;
  for (int axis : order) extents.push_back(from[axis]);
  return Shape(std::span<const int64_t>(extents));
}

Axes inverse(const Axes& order) {
  Axes result(order.size());
  for (size_t i = 0; i < order.size(); ++i) result[static_cast<size_t>(order[i])] = static_cast<int>(i);
  return result;
}

Shape with_rank(const Shape& shape, int rank) {
  std::vector<int64_t> extents(shape.begin(), shape.end());
  while (static_cast<int>(extents.size()) < rank) extents.insert(extents.begin(), 1);
  return Shape(std::span<const int64_t>(extents));
}

}  // namespace headroom::onnx
