// ONNX ops that pick elements by indices, or find indices.
#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "runtime/onnx/op_table.h"

namespace headroom::onnx {
namespace {

Item as_indices(const NodeImport& n, const Item& item) {
  if (is_float(item.type)) n.fail("its indices are floats");
  return n.im.cast(item, ElementType::kInt64);
}

// Indices below 0 count from the end.
Item wrapped(const NodeImport& n, const Item& indices, int64_t extent) {
  return n.im.wrapped(indices, extent);
}

// The numbers of rows or elements have to be i32.
void require_countable(const NodeImport& n, const Item& x) {
  if (x.shape.elements() > INT32_MAX) n.fail("indexes more than 2^31 elements");
}

}  // namespace

void import_gather(NodeImport& n) {
  const Item& x = n.in(0);
  if (x.rank() == 0) n.fail("takes from a scalar");
  const int axis = n.axis(n.integer("axis", 0), x.rank());
  const int64_t extent = x.shape[axis];
  Item indices = as_indices(n, n.in(1));
  if (indices.constant) {
    indices = wrapped(n, indices, extent);
    const HostTensor all = n.im.dense(indices);
    for (int64_t index : onnx::integers_of(all)) {
      if (index < 0 || index >= extent)
        n.fail(fmt::format("index {} is outside the extent of {}", index, extent));
    }
    if (all.elements() == 1 && indices.rank() == 0) {  // one slice: it is not copied row by row
      Slice slice{std::vector<int64_t>(static_cast<size_t>(x.rank()), 0), x.shape.with(axis, 1)};
      slice.begin[static_cast<size_t>(axis)] = all.data<int32_t>()[0];
      std::vector<int64_t> extents(x.shape.begin(), x.shape.end());
      extents.erase(extents.begin() + axis);
      return n.out(n.im.reshape(n.im.slice(x, slice), Shape(std::span<const int64_t>(extents))));
    }
  }
  if (x.rank() - 1 + indices.rank() > Shape::kMaxRank) n.fail("makes a tensor of too high a rank");
  n.out(n.im.gather(x, indices, axis, axis == 0 ? n.padding_row : -1));
}

void import_gather_elements(NodeImport& n) {
  const Item& x = n.in(0);
  const int axis = n.axis(n.integer("axis", 0), x.rank());
  require_countable(n, x);
  const Item indices = wrapped(n, as_indices(n, n.in(1)), x.shape[axis]);
  if (indices.rank() != x.rank()) n.fail("its indices have another rank");
  // The number of each element in x.
  Item flat =
      n.im.binary(BinaryKind::kMul, indices, n.im.whole(strides_of(x.shape)[static_cast<size_t>(axis)]));
  for (int other = 0; other < x.rank(); ++other) {
    if (other == axis) continue;
    if (indices.shape[other] > x.shape[other]) n.fail("its indices have more rows than its data");
    const int64_t stride = strides_of(x.shape)[static_cast<size_t>(other)];
    flat = n.im.binary(BinaryKind::kAdd, flat, n.im.positions(other, x.rank(), indices.shape[other], stride));
  }
  n.out(n.im.gather(n.im.reshape(x, {x.shape.elements()}), flat, 0));
}

void import_gather_nd(NodeImport& n) {
  const Item& x = n.in(0);
  const Item indices = as_indices(n, n.in(1));
  const int batch = static_cast<int>(n.integer("batch_dims", 0));
  if (indices.rank() == 0 || batch < 0 || batch >= indices.rank() || batch >= x.rank())
    n.fail("its batch_dims are wrong");
  require_countable(n, x);
  const int last = indices.rank() - 1;
  const int64_t depth = indices.shape[last];
  if (batch + depth > x.rank() || depth < 1) n.fail(fmt::format("indexes {} axes of {}", depth, x.rank()));
  // Rows are the elements after the indexed axes; each index is the number of a row.
  std::vector<int64_t> rest, before(indices.shape.begin(), indices.shape.end() - 1);
  int64_t rows = 1;
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (axis < batch + depth) {
      rows *= x.shape[axis];
    } else {
      rest.push_back(x.shape[axis]);
    }
  }
  const Shape of_indices{std::span<const int64_t>(before)};
  std::optional<Item> number;
  const auto add = [&](const Item& item) {
    number = number ? n.im.binary(BinaryKind::kAdd, *number, item) : item;
  };
  int64_t stride = rows;
  for (int axis = 0; axis < batch + depth; ++axis) {
    stride /= std::max<int64_t>(1, x.shape[axis]);
    if (axis < batch) {
      if (x.shape[axis] != indices.shape[axis]) n.fail("its batches differ");
      add(n.im.positions(axis, of_indices.rank(), x.shape[axis], stride));
      continue;
    }
    Slice one{std::vector<int64_t>(static_cast<size_t>(indices.rank()), 0), indices.shape.with(last, 1)};
    one.begin[static_cast<size_t>(last)] = axis - batch;
    const Item component = n.im.reshape(n.im.slice(indices, one), of_indices);
    add(n.im.binary(BinaryKind::kMul, wrapped(n, component, x.shape[axis]), n.im.whole(stride)));
  }
  std::vector<int64_t> table = rest;
  table.insert(table.begin(), rows);
  if (of_indices.rank() + static_cast<int>(rest.size()) > Shape::kMaxRank)
    n.fail("makes a tensor of too high a rank");
  const Item all = n.im.expand(*number, of_indices);
  n.out(n.im.gather(n.im.reshape(x, Shape(std::span<const int64_t>(table))), all, 0));
}

void import_one_hot(NodeImport& n) {
  const Item &indices = n.in(0), &values = n.in(2);
  const int64_t depth = n.integer_in(1);
  if (depth < 1 || depth > Importer::kMaxFolded) n.fail(fmt::format("a depth of {}", depth));
  const int rank = indices.rank() + 1, axis = n.axis(n.integer("axis", -1), rank);
  if (rank > Shape::kMaxRank) n.fail("makes a tensor of too high a rank");
  std::vector<int64_t> extents(indices.shape.begin(), indices.shape.end());
  extents.insert(extents.begin() + axis, 1);
  const Item whole = wrapped(n, n.im.cast(indices, ElementType::kInt64), depth);
  const Item apart = n.im.reshape(whole, Shape(std::span<const int64_t>(extents)));
  const Item is_hot = n.im.compare(CompareKind::kEqual, apart, n.im.positions(axis, rank, depth, 1));
  const auto value = [&](int64_t at) { return n.im.reshape(n.im.slice(values, Slice{{at}, {1}}), Shape()); };
  n.out(n.im.where(is_hot, value(1), value(0)));
}

void import_cum_sum(NodeImport& n) {
  const Item& x = n.in(0);
  const int axis = n.axis(n.integer_in(1), x.rank());
  const Item numbers = x.dtype() == DType::kU8 ? n.im.cast(x, ElementType::kInt32) : x;
  const CumulativeSum op{axis, n.integer("exclusive", 0) != 0, n.integer("reverse", 0) != 0};
  Item result = n.im.apply(op, {numbers}, x.type);
  n.out(result);
}

namespace {

void add_arg_max(NodeImport& n, bool is_min) {
  Item x = n.im.cast(n.in(0), ElementType::kFloat);
  const int axis = n.axis(n.integer("axis", 0), x.rank());
  const bool is_last = n.integer("select_last_index", 0) != 0;
  if (is_min) x = n.im.binary(BinaryKind::kMul, x, n.im.number(-1));
  if (is_last) {  // the first of the reversed
    Slice back{std::vector<int64_t>(static_cast<size_t>(x.rank()), 0), x.shape,
               std::vector<int64_t>(static_cast<size_t>(x.rank()), 1)};
    back.begin[static_cast<size_t>(axis)] = x.shape[axis] - 1;
    back.steps[static_cast<size_t>(axis)] = -1;
    x = n.im.slice(x, back);
  }
  Item result = n.im.apply(ArgMax{axis}, {x}, ElementType::kInt64);
  if (is_last) result = n.im.binary(BinaryKind::kSub, n.im.whole(x.shape[axis] - 1), result);
  if (n.integer("keepdims", 1) != 0) result = n.im.reshape(result, x.shape.with(axis, 1));
  n.out(result);
}

}  // namespace

void import_arg_max(NodeImport& n) {
  add_arg_max(n, false);
}
void import_arg_min(NodeImport& n) {
  add_arg_max(n, true);
}

namespace {

// The rows of x with those at `rows`, which are constant, replaced: a gather from both, which has a gradient
// to both. x (R,W), updates (K,W).
Item with_rows(const NodeImport& n, const Item& x, const Item& updates, const std::vector<int64_t>& rows) {
  if (x.shape[0] > Importer::kMaxFolded) n.fail("is too large");
  std::vector<int64_t> origins;
  for (int64_t i = 0; i < x.shape[0]; ++i) origins.push_back(i);
  for (size_t i = 0; i < rows.size(); ++i)
    origins[static_cast<size_t>(rows[i])] = x.shape[0] + static_cast<int64_t>(i);
  return n.im.gather(n.im.concat({x, updates}, 0), n.im.integers(origins), 0);
}

// x with the rows along its first axis replaced that `indices` (N,1) name: they depend on the data. The rows
// stay where the memory of x has them.
Item with_rows_at(const NodeImport& n, const Item& x, const Item& updates, const Item& indices) {
  const Value places = n.im.checked_rows(as_indices(n, indices), x.shape[0]);
  const Axes order = n.im.order_of(x);
  const auto axis = static_cast<int>(std::ranges::find(order, 0) - order.begin());
  const Value replaced = n.im.add_one(
      ReplaceRows{axis}, {n.im.value_in(x, order), places, n.im.value_in(n.im.cast(updates, x.type), order)});
  return n.im.item_of(replaced, x.type, order);
}

// The elements of a constant operand.
std::vector<int64_t> constant_indices(const NodeImport& n, size_t i) {
  if (!n.in(i).constant) n.fail("its indices depend on the data");
  return onnx::integers_of(n.im.dense(as_indices(n, n.in(i))));
}

int64_t checked_index(const NodeImport& n, int64_t index, int64_t extent) {
  const int64_t wrapped_index = index < 0 ? index + extent : index;
  if (wrapped_index < 0 || wrapped_index >= extent)
    n.fail(fmt::format("index {} is outside the extent of {}", index, extent));
  return wrapped_index;
}

void refuse_reduction(const NodeImport& n) {
  const std::string reduction = n.text("reduction", "none");
  if (reduction != "none") n.fail(fmt::format("its reduction '{}' is not supported", printable(reduction)));
}

}  // namespace

void import_scatter_nd(NodeImport& n) {
  refuse_reduction(n);
  const Item &x = n.in(0), &places = n.in(1), &updates = n.in(2);
  if (places.rank() < 1 || places.shape.last() > x.rank()) n.fail("its indices have too many parts");
  const auto depth = static_cast<int>(places.shape.last());
  int64_t rows = 1, width = 1;
  for (int axis = 0; axis < x.rank(); ++axis) (axis < depth ? rows : width) *= x.shape[axis];
  const int64_t count = depth == 0 ? 1 : places.shape.elements() / depth;
  if (updates.shape.elements() != count * width)
    n.fail(fmt::format("its updates are {}", to_string(updates.shape)));
  require_countable(n, x);
  if (!places.constant && depth == 1 && places.rank() == 2) {
    return n.out(with_rows_at(n, x, n.im.reshape(updates, x.shape.with(0, count)), places));
  }
  const std::vector<int64_t> indices = constant_indices(n, 1);
  std::vector<int64_t> changed;
  for (int64_t i = 0; i < count; ++i) {
    int64_t row = 0;
    for (int axis = 0; axis < depth; ++axis) {
      const int64_t index = indices[static_cast<size_t>(i * depth + axis)];
      row = row * x.shape[axis] + checked_index(n, index, x.shape[axis]);
    }
    changed.push_back(row);
  }
  n.out(n.im.reshape(
      with_rows(n, n.im.reshape(x, {rows, width}), n.im.reshape(updates, {count, width}), changed), x.shape));
}

void import_scatter_elements(NodeImport& n) {
  refuse_reduction(n);
  const Item &x = n.in(0), &places = n.in(1), &updates = n.in(2);
  const int axis = n.axis(n.integer("axis", 0), x.rank());
  if (places.rank() != x.rank() || updates.shape != places.shape)
    n.fail("its updates do not fit its indices");
  require_countable(n, x);
  const std::vector<int64_t> indices = constant_indices(n, 1);
  const auto strides = strides_of(x.shape);
  std::vector<int64_t> changed;
  for (size_t i = 0; i < indices.size(); ++i) {
    auto rest = static_cast<int64_t>(i);
    int64_t element = 0;
    for (int other = x.rank() - 1; other >= 0; --other) {
      const int64_t place = rest % places.shape[other];
      rest /= places.shape[other];
      element +=
          strides[static_cast<size_t>(other)] * (other == axis ? checked_index(n, indices[i], x.shape[axis])
                                                               : checked_index(n, place, x.shape[other]));
    }
    changed.push_back(element);
  }
  const int64_t count = updates.shape.elements();
  n.out(n.im.reshape(
      with_rows(n, n.im.reshape(x, {x.shape.elements(), 1}), n.im.reshape(updates, {count, 1}), changed),
      x.shape));
}

}  // namespace headroom::onnx
