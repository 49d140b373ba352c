// One ONNX value while a model is imported. Knows no op.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "runtime/graph/graph.h"
#include "runtime/onnx/element_type.h"
#include "runtime/onnx/host_tensor.h"

namespace headroom::onnx {

using Axes = std::vector<int>;

struct Quantized;

// An item is a constant known now, a tensor with a source (a weight or an input), a value of our graph, or a
// list of items. The last two but one are seen through a permutation, so that a transposition costs nothing
// until an op needs the axes in another order.
struct Item {
  ElementType type = ElementType::kFloat;
  Shape shape;                         // as ONNX sees it
  std::optional<HostTensor> constant;  // may be smaller: it broadcasts to `shape`
  int source = -1;                     // position in Importer::sources()
  Value value;
  Axes axes;  // axis i of the item is axis axes[i] of the source's tensor or of the value
  std::optional<std::vector<Item>> list;
  std::shared_ptr<const Quantized> quantized;  // the weight that it is dequantized from, at each use
  bool is_missing = false;                     // the node that makes it could not be imported

  DType dtype() const { return dtype_of_element(type); }
  int rank() const { return shape.rank(); }
  bool is_runtime() const { return !constant && !list; }
};

// Whole numbers q, and the floats (q - zero_point) * scale that they stand for.
struct Quantized {
  Item numbers, scale;
  std::optional<Item> zero_point;
  // Numbers along the axis for each of the scales, which are one for each `block` of them; one scale for all
  // if it is a scalar.
  int axis = 0;
  int64_t block = 1;
};

bool all_constant(const std::vector<Item>& items);

// 0, 1, ..., rank - 1.
Axes in_order(int rank);
bool is_in_order(const Axes& axes);
// The axes of `to` are those of `from`, in that order.
Shape permuted(const Shape& from, const Axes& order);
Axes inverse(const Axes& order);
// The shape with leading axes of extent 1 up to that rank.
Shape with_rank(const Shape& shape, int rank);

}  // namespace headroom::onnx
