// ONNX ops that move elements, and those that compute shapes.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "runtime/onnx/op_table.h"

namespace headroom::onnx {
namespace {

Shape shape_of_extents(const NodeImport& n, const std::vector<int64_t>& extents) {
  if (extents.size() > static_cast<size_t>(Shape::kMaxRank)) {
    n.fail(fmt::format("makes a tensor of rank {}; {} is the most", extents.size(), Shape::kMaxRank));
  }
  return Shape(std::span<const int64_t>(extents));
}

std::vector<int64_t> extents_of_shape(const Shape& shape) {
  return {shape.begin(), shape.end()};
}

// Parts of x along an axis.
std::vector<Item> split(const NodeImport& n, const Item& x, int axis, const std::vector<int64_t>& sizes) {
  std::vector<Item> parts;
  std::vector<int64_t> begin(static_cast<size_t>(x.rank()), 0);
  for (int64_t size : sizes) {
    parts.push_back(n.im.slice(x, Slice{begin, x.shape.with(axis, size)}));
    begin[static_cast<size_t>(axis)] += size;
  }
  return parts;
}

// Returns one size per part; the last one may be smaller.
std::vector<int64_t> equal_sizes(const NodeImport& n, int64_t extent, int64_t parts, int64_t size) {
  if (size < 1 || parts < 1 || parts > 65536) n.fail(fmt::format("splits {} into {} parts", extent, parts));
  std::vector<int64_t> sizes;
  for (int64_t i = 0; i < parts; ++i) sizes.push_back(std::clamp<int64_t>(extent - i * size, 0, size));
  return sizes;
}

Item without_axes(const NodeImport& n, const Item& x, const std::vector<int>& axes) {
  std::vector<int64_t> extents;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (!std::ranges::binary_search(axes, axis)) {
      extents.push_back(x.shape[axis]);
    } else if (x.shape[axis] != 1) {
      n.fail(fmt::format("squeezes axis {} of extent {}", axis, x.shape[axis]));
    }
  }
  return n.im.reshape(x, shape_of_extents(n, extents));
}

// Returns positions along an axis of its padding: of the reflected, repeated or rotated tensor.
std::vector<int64_t> padded_positions(const NodeImport& n, const std::string& mode, int64_t extent,
                                      int64_t before, int64_t after) {
  std::vector<int64_t> positions;
  for (int64_t i = -before; i < extent + after; ++i) {
    int64_t at = i;
    if (mode == "edge") {
      at = std::clamp<int64_t>(i, 0, extent - 1);
    } else if (mode == "wrap") {
      at = ((i % extent) + extent) % extent;
    } else if (mode == "reflect") {
      const int64_t period = std::max<int64_t>(1, 2 * (extent - 1));
      at = ((i % period) + period) % period;
      at = at < extent ? at : period - at;
    } else {
      n.fail(fmt::format("pads by mode '{}'", mode));
    }
    positions.push_back(at);
  }
  return positions;
}

}  // namespace

void import_constant(NodeImport& n) {
  if (n.node.attributes.empty()) n.fail("has no value");
  const Attribute& value = n.node.attributes.front();
  if (value.name == "value" && value.tensor) {
    const Tensor& tensor = *value.tensor;
    const Shape shape = shape_of_extents(n, tensor.extents);
    const std::vector<std::byte> bytes = convert_elements(tensor.type, tensor.data, tensor.elements());
    return n.out(n.im.constant(HostTensor({dtype_of_element(tensor.type), shape}, bytes), tensor.type));
  }
  if (value.name == "value_int") {
    return n.out(n.im.reshape(n.im.integers({value.integer}), {}));
  }
  if (value.name == "value_ints") return n.out(n.im.integers(value.integers));
  if (value.name == "value_float") return n.out(n.im.number(value.number));
  if (value.name == "value_floats") {
    const auto count = static_cast<int64_t>(value.numbers.size());
    return n.out(n.im.constant(float_tensor({count}, value.numbers), ElementType::kFloat));
  }
  n.fail(fmt::format("its value is a {}", value.name));
}

void import_constant_of_shape(NodeImport& n) {
  const Shape shape = shape_of_extents(n, n.integers_in(0));
  const Attribute* value = n.node.find("value");
  Item one = n.im.number(0);
  if (value != nullptr && value->tensor) {
    const Tensor& tensor = *value->tensor;
    if (tensor.elements() != 1) n.fail("its value has more than one element");
    const std::vector<std::byte> bytes = convert_elements(tensor.type, tensor.data, 1);
    one = n.im.constant(HostTensor({dtype_of_element(tensor.type), {}}, bytes), tensor.type);
  }
  one.shape = shape;
  n.out(one);
}

void import_shape(NodeImport& n) {
  const int rank = n.in(0).rank();
  const auto bound = [&](std::string_view name, int64_t otherwise) {
    const int64_t at = n.integer(name, otherwise);
    return std::clamp<int64_t>(at < 0 ? at + rank : at, 0, rank);
  };
  const int64_t start = bound("start", 0), end = std::max(start, bound("end", rank));
  const Shape& shape = n.in(0).shape;
  n.out(n.im.integers({shape.begin() + start, shape.begin() + end}));
}

void import_size(NodeImport& n) {
  n.out(n.im.reshape(n.im.integers({n.in(0).shape.elements()}), {}));
}

void import_range(NodeImport& n) {
  const Item& start = n.in(0);
  if (is_float(start.type)) {
    const auto first = static_cast<double>(n.number_in(0)), delta = static_cast<double>(n.number_in(2));
    const double count = std::max(0.0, std::ceil((static_cast<double>(n.number_in(1)) - first) / delta));
    if (!(count <= static_cast<double>(Importer::kMaxFolded))) n.fail("is too long");
    std::vector<float> values;
    for (int64_t i = 0; i < static_cast<int64_t>(count); ++i) {
      values.push_back(static_cast<float>(first + static_cast<double>(i) * delta));
    }
    return n.out(n.im.constant(float_tensor({static_cast<int64_t>(values.size())}, values), start.type));
  }
  const int64_t first = n.integer_in(0), limit = n.integer_in(1), delta = n.integer_in(2);
  if (delta == 0) n.fail("has a step of 0");
  std::vector<int64_t> values;
  for (int64_t at = first; delta > 0 ? at < limit : at > limit;) {
    values.push_back(at);
    if (static_cast<int64_t>(values.size()) > Importer::kMaxFolded) n.fail("is too long");
    if (__builtin_add_overflow(at, delta, &at)) break;  // beyond every limit
  }
  Item result = n.im.integers(values);
  result.type = start.type;
  n.out(result);
}

void import_reshape(NodeImport& n) {
  const Item& x = n.in(0);
  std::vector<int64_t> extents = n.opset < 5 ? n.integers("shape") : n.integers_in(1);
  const bool allows_zero = n.integer("allowzero", 0) != 0;
  int64_t known = 1;
  std::optional<size_t> free;
  for (size_t i = 0; i < extents.size(); ++i) {
    if (extents[i] == 0 && !allows_zero) {
      if (static_cast<int>(i) >= x.rank()) n.fail("keeps an axis that there is not");
      extents[i] = x.shape[static_cast<int>(i)];
    }
    if (extents[i] == -1) {
      if (free) n.fail("leaves two extents open");
      free = i;
    } else if (extents[i] < 0) {
      n.fail(fmt::format("has an extent of {}", extents[i]));
    } else if (__builtin_mul_overflow(known, extents[i], &known)) {
      n.fail("has more elements than there can be");
    }
  }
  if (free) {
    if (known == 0 || x.shape.elements() % known != 0) {
      n.fail(fmt::format("reshapes {} to multiples of {} elements (was the batch fixed by the export?)",
                         to_string(x.shape), known));
    }
    extents[*free] = x.shape.elements() / known;
  }
  const Shape shape = shape_of_extents(n, extents);
  if (shape.elements() != x.shape.elements()) {
    n.fail(fmt::format("reshapes {} to {} (was the batch fixed by the export?)", to_string(x.shape),
                       to_string(shape)));
  }
  n.out(n.im.reshape(x, shape));
}

void import_flatten(NodeImport& n) {
  const Item& x = n.in(0);
  const int64_t given = n.integer("axis", 1);
  const int axis = given == x.rank() ? x.rank() : n.axis(given, x.rank());
  int64_t rows = 1;
  for (int i = 0; i < axis; ++i) rows *= x.shape[i];
  int64_t columns = 1;
  for (int i = axis; i < x.rank(); ++i) columns *= x.shape[i];
  n.out(n.im.reshape(x, {rows, columns}));
}

void import_squeeze(NodeImport& n) {
  const Item& x = n.in(0);
  std::vector<int> axes;
  if (const auto given = n.integers_of("axes", 1)) {
    axes = n.axes(*given, x.rank());
  } else {
    for (int axis = 0; axis < x.rank(); ++axis) {
      if (x.shape[axis] == 1) axes.push_back(axis);
    }
  }
  n.out(without_axes(n, x, axes));
}

void import_unsqueeze(NodeImport& n) {
  const Item& x = n.in(0);
  const auto given = n.integers_of("axes", 1);
  if (!given) n.fail("names no axes");
  const int rank = x.rank() + static_cast<int>(given->size());
  const std::vector<int> axes = n.axes(*given, rank);
  std::vector<int64_t> extents, compact;
  const Shape inner = x.constant ? x.constant->shape() : x.shape;
  // A constant that broadcasts stays small.
  const int shift = x.rank() - inner.rank();
  int at = 0;
  for (int axis = 0; axis < rank; ++axis) {
    const bool is_new = std::ranges::binary_search(axes, axis);
    extents.push_back(is_new ? 1 : x.shape[at]);
    compact.push_back(is_new || at < shift ? 1 : inner[at - shift]);
    if (!is_new) ++at;
  }
  const Shape shape = shape_of_extents(n, extents);
  if (!x.constant) return n.out(n.im.reshape(x, shape));
  Item result = x;
  result.shape = shape;
  result.constant = x.constant->with_shape(shape_of_extents(n, compact));
  n.out(result);
}

void import_transpose(NodeImport& n) {
  const Item& x = n.in(0);
  Axes order;
  for (int64_t axis : n.integers("perm")) order.push_back(n.axis(axis, x.rank()));
  if (order.empty()) {
    order = in_order(x.rank());
    std::ranges::reverse(order);
  }
  Axes sorted = order;
  std::ranges::sort(sorted);
  if (sorted != in_order(x.rank())) n.fail("its perm is not a permutation");
  n.out(n.im.transpose(x, order));
}

void import_expand(NodeImport& n) {
  n.out(n.im.expand(n.in(0), shape_of_extents(n, n.integers_in(1))));
}

void import_tile(NodeImport& n) {
  Item x = n.in(0);
  const std::vector<int64_t> repeats = n.integers_in(1);
  if (static_cast<int>(repeats.size()) != x.rank()) n.fail("repeats other axes than there are");
  for (int axis = 0; axis < x.rank(); ++axis) {
    const int64_t times = repeats[static_cast<size_t>(axis)];
    if (times < 0 || times > 65536) n.fail(fmt::format("repeats {} times", times));
    if (times == 0) x = n.im.slice(x, Slice{std::vector<int64_t>(repeats.size(), 0), x.shape.with(axis, 0)});
    if (times < 2) continue;
    // (.., 1, extent, ..) -> (.., times, extent, ..) -> (.., times extent, ..)
    std::vector<int64_t> extents = extents_of_shape(x.shape);
    const Shape whole = x.shape.with(axis, x.shape[axis] * times);
    if (x.rank() < Shape::kMaxRank) {
      extents.insert(extents.begin() + axis, 1);
      const Item apart = n.im.reshape(x, shape_of_extents(n, extents));
      extents[static_cast<size_t>(axis)] = times;
      x = n.im.reshape(n.im.expand(apart, shape_of_extents(n, extents)), whole);
    } else {
      x = n.im.concat(std::vector<Item>(static_cast<size_t>(times), x), axis);
    }
  }
  n.out(x);
}

void import_concat(NodeImport& n) {
  std::vector<Item> items;
  for (size_t i = 0; i < n.operands(); ++i) {
    // Some exporters join nothing to something.
    const bool is_empty = n.in(i).rank() == 1 && n.in(i).shape.elements() == 0;
    if (!is_empty || n.operands() == 1) items.push_back(n.in(i));
  }
  if (items.empty()) items.push_back(n.in(0));
  const int axis = n.axis(n.integer("axis", 1), items[0].rank());
  for (const Item& item : items) {
    if (item.rank() != items[0].rank() || item.shape.with(axis, 0) != items[0].shape.with(axis, 0)) {
      n.fail(fmt::format("joins {} and {} along axis {}", to_string(items[0].shape), to_string(item.shape),
                         axis));
    }
    if (item.dtype() != items[0].dtype()) n.fail("joins tensors of different types");
  }
  n.out(n.im.concat(items, axis));
}

void import_split(NodeImport& n) {
  const Item& x = n.in(0);
  const int axis = n.axis(n.integer("axis", 0), x.rank());
  const int64_t extent = x.shape[axis];
  std::vector<int64_t> sizes;
  if (const auto given = n.integers_of("split", 1)) {
    sizes = *given;
  } else {
    const int64_t parts = n.integer("num_outputs", static_cast<int64_t>(n.node.outputs.size()));
    sizes = equal_sizes(n, extent, parts, (extent + parts - 1) / std::max<int64_t>(1, parts));
  }
  int64_t sum = 0;
  for (int64_t size : sizes) {
    if (size < 0 || size > extent) n.fail(fmt::format("a part of extent {}", size));
    sum += size;
  }
  if (sum != extent) n.fail(fmt::format("splits {} into parts of {}", extent, sum));
  for (Item& part : split(n, x, axis, sizes)) n.out(std::move(part));
}

void import_split_to_sequence(NodeImport& n) {
  const Item& x = n.in(0);
  const int axis = n.axis(n.integer("axis", 0), x.rank());
  const int64_t extent = x.shape[axis];
  std::vector<int64_t> sizes;
  const bool keeps_axis = n.has(1) || n.integer("keepdims", 1) != 0;
  if (!n.has(1)) {
    sizes = equal_sizes(n, extent, extent, 1);
  } else if (n.in(1).rank() == 0) {
    const int64_t size = n.integer_in(1);
    sizes = equal_sizes(n, extent, size < 1 ? 0 : (extent + size - 1) / size, size);
  } else {
    sizes = n.integers_in(1);
    int64_t sum = 0;
    for (int64_t size : sizes) sum += std::max<int64_t>(0, size);
    if (sum != extent) n.fail(fmt::format("splits {} into parts of {}", extent, sum));
  }
  Item list;
  list.type = x.type;
  list.list = split(n, x, axis, sizes);
  if (!keeps_axis) {
    for (Item& part : *list.list) part = without_axes(n, part, {axis});
  }
  n.out(list);
}

void import_sequence_at(NodeImport& n) {
  const Item& list = n.in(0);
  if (!list.list) n.fail("takes from a tensor as if it were a sequence");
  const std::vector<int64_t> position = n.integers_in(1);
  const auto size = static_cast<int64_t>(list.list->size());
  int64_t at = position.empty() ? 0 : position[0];
  if (at < 0) at += size;
  if (at < 0 || at >= size) n.fail(fmt::format("takes element {} of a sequence of {}", at, size));
  n.out((*list.list)[static_cast<size_t>(at)]);
}

void import_slice(NodeImport& n) {
  const Item& x = n.in(0);
  const auto starts = n.integers_of("starts", 1), ends = n.integers_of("ends", 2);
  if (!starts || !ends || starts->size() != ends->size()) n.fail("its starts and ends differ in number");
  std::vector<int64_t> axes(starts->size()), steps(starts->size(), 1);
  for (size_t i = 0; i < axes.size(); ++i) axes[i] = static_cast<int64_t>(i);
  if (const auto given = n.integers_of("axes", 3)) axes = *given;
  if (n.has(4)) steps = n.integers_in(4);
  if (axes.size() != starts->size() || steps.size() != starts->size())
    n.fail("its axes and starts differ in number");
  Slice slice{std::vector<int64_t>(static_cast<size_t>(x.rank()), 0), x.shape,
              std::vector<int64_t>(static_cast<size_t>(x.rank()), 1)};
  for (size_t i = 0; i < axes.size(); ++i) {
    const int axis = n.axis(axes[i], x.rank());
    const int64_t extent = x.shape[axis], step = steps[i];
    if (step == 0) n.fail("has a step of 0");
    const auto bounded = [&](int64_t at) {
      if (at < 0) at += extent;
      return step > 0 ? std::clamp<int64_t>(at, 0, extent) : std::clamp<int64_t>(at, -1, extent - 1);
    };
    const int64_t begin = bounded((*starts)[i]), end = bounded((*ends)[i]);
    const int64_t way = step > 0 ? end - begin : begin - end, length = step > 0 ? step : -step;
    const int64_t count = std::max<int64_t>(0, (way + length - 1) / length);
    slice.begin[static_cast<size_t>(axis)] = count == 0 ? 0 : begin;
    slice.steps[static_cast<size_t>(axis)] = count < 2 ? 1 : step;
    slice.extents = slice.extents.with(axis, count);
  }
  const bool is_dense = std::ranges::all_of(slice.steps, [](int64_t step) { return step == 1; });
  if (is_dense) slice.steps = {};
  n.out(n.im.slice(x, slice));
}

void import_pad(NodeImport& n) {
  Item x = n.in(0);
  const int rank = x.rank();
  std::vector<int64_t> pads;
  if (const auto given = n.integers_of(n.has_attribute("paddings") ? "paddings" : "pads", 1)) pads = *given;
  std::vector<int> axes = in_order(rank);
  if (n.has(3)) {
    axes.clear();
    for (int64_t axis : n.integers_in(3)) axes.push_back(n.axis(axis, rank));
  }
  if (pads.size() != 2 * axes.size()) n.fail("its pads are not two for each axis");
  std::vector<int64_t> before(static_cast<size_t>(rank), 0), after = before;
  constexpr int64_t kMaxPad = int64_t{1} << 30;
  for (size_t i = 0; i < axes.size(); ++i) {
    before[static_cast<size_t>(axes[i])] = pads[i];
    after[static_cast<size_t>(axes[i])] = pads[i + axes.size()];
    if (std::abs(pads[i]) > kMaxPad || std::abs(pads[i + axes.size()]) > kMaxPad)
      n.fail("its pads are too large");
  }
  // A negative pad cuts.
  Slice cut{before, x.shape};
  for (int axis = 0; axis < rank; ++axis) {
    const auto i = static_cast<size_t>(axis);
    const int64_t front = std::max<int64_t>(0, -before[i]), back = std::max<int64_t>(0, -after[i]);
    if (front + back > x.shape[axis]) n.fail("cuts more than there is");
    cut.begin[i] = front;
    cut.extents = cut.extents.with(axis, x.shape[axis] - front - back);
    before[i] = std::max<int64_t>(0, before[i]);
    after[i] = std::max<int64_t>(0, after[i]);
  }
  x = n.im.slice(x, cut);
  const std::string mode = n.text("mode", "constant");
  if (mode != "constant") {
    for (int axis = 0; axis < rank; ++axis) {
      const auto i = static_cast<size_t>(axis);
      if (before[i] + after[i] == 0) continue;
      if (x.shape[axis] == 0) n.fail("pads what is empty");
      x = n.im.gather(x, n.im.integers(padded_positions(n, mode, x.shape[axis], before[i], after[i])), axis);
    }
    return n.out(x);
  }
  const Item value =
      n.has(2) ? n.im.reshape(n.in(2), {}) : n.im.cast(n.im.number(n.number("value", 0)), x.type);
  if (!value.constant) n.fail("pads with a value that depends on the data");
  const Item padded = n.im.pad(x, before, after);
  if (onnx::integers_of(*value.constant) == std::vector<int64_t>{0} &&
      (!is_float(value.type) || value.constant->data<float>()[0] == 0)) {
    return n.out(padded);
  }
  Item inside = n.im.cast(n.im.number(1), ElementType::kBool);
  inside.shape = x.shape;
  n.out(n.im.where(n.im.pad(inside, before, after), padded, value));
}

void import_trilu(NodeImport& n) {
  const Item& x = n.in(0);
  if (x.rank() < 2) n.fail("takes a matrix");
  const int64_t offset = n.has(1) ? n.integer_in(1) : 0;
  const bool is_upper = n.integer("upper", 1) != 0;
  const int64_t rows = x.shape[x.rank() - 2], columns = x.shape[x.rank() - 1];
  if (rows * columns > Importer::kMaxFolded) n.fail("is too large");
  const HostTensor kept({DType::kU8, {rows, columns}});
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const bool is_kept = is_upper ? column - row >= offset : column - row <= offset;
      kept.data<uint8_t>()[static_cast<size_t>(row * columns + column)] = is_kept ? 1 : 0;
    }
  }
  n.out(n.im.where(n.im.constant(kept, ElementType::kBool), x, n.im.cast(n.im.number(0), x.type)));
}

void import_eye_like(NodeImport& n) {
  const Item& x = n.in(0);
  if (x.rank() != 2) n.fail("takes a matrix");
  const int64_t offset = n.integer("k", 0), rows = x.shape[0], columns = x.shape[1];
  if (rows * columns > Importer::kMaxFolded) n.fail("is too large");
  const HostTensor eye({DType::kF32, {rows, columns}});
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t column = row + offset;
    if (column >= 0 && column < columns) eye.data<float>()[static_cast<size_t>(row * columns + column)] = 1;
  }
  const auto type = static_cast<ElementType>(n.integer("dtype", static_cast<int64_t>(x.type)));
  n.out(n.im.cast(n.im.constant(eye, ElementType::kFloat), type));
}

// (N, C, H, W) with blocks of b x b pixels in the channels
void import_depth_to_space(NodeImport& n) {
  const Item& x = n.in(0);
  const int64_t b = n.integer("blocksize", 1);
  if (x.rank() != 4 || b < 1 || x.shape[1] % (b * b) != 0) n.fail("its channels are no blocks");
  const int64_t c = x.shape[1] / (b * b), h = x.shape[2], w = x.shape[3];
  const bool blocks_first = n.text("mode", "DCR") == "DCR";
  const Item apart =
      n.im.reshape(x, blocks_first ? Shape{x.shape[0], b, b, c, h, w} : Shape{x.shape[0], c, b, b, h, w});
  const Item moved = n.im.transpose(apart, blocks_first ? Axes{0, 3, 4, 1, 5, 2} : Axes{0, 1, 4, 2, 5, 3});
  n.out(n.im.reshape(moved, {x.shape[0], c, h * b, w * b}));
}

void import_space_to_depth(NodeImport& n) {
  const Item& x = n.in(0);
  const int64_t b = n.integer("blocksize", 1);
  if (x.rank() != 4 || b < 1 || x.shape[2] % b != 0 || x.shape[3] % b != 0) n.fail("its image is no blocks");
  const int64_t c = x.shape[1], h = x.shape[2] / b, w = x.shape[3] / b;
  const Item apart = n.im.reshape(x, {x.shape[0], c, h, b, w, b});
  const std::string mode = n.text("mode", "DCR");
  if (mode != "DCR" && mode != "CRD") n.fail(fmt::format("its mode '{}' is not supported", printable(mode)));
  const Axes order = mode == "DCR" ? Axes{0, 3, 5, 1, 2, 4} : Axes{0, 1, 3, 5, 2, 4};
  n.out(n.im.reshape(n.im.transpose(apart, order), {x.shape[0], c * b * b, h, w}));
}

}  // namespace headroom::onnx
