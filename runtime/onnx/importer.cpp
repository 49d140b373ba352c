#include "runtime/onnx/importer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <numeric>

#include "runtime/base/errors.h"
#include "runtime/onnx/variable_data.h"

namespace headroom::onnx {
namespace {

// The shape without its leading axes of extent 1, down to `rank`.
Shape with_rank(const Shape& shape, int rank) {
  std::vector<int64_t> extents(shape.begin(), shape.end());
  while (static_cast<int>(extents.size()) < rank) extents.insert(extents.begin(), 1);
  return Shape(std::span<const int64_t>(extents));
}

bool all_constant(const std::vector<Item>& items) {
  return std::all_of(items.begin(), items.end(), [](const Item& item) { return item.constant.has_value(); });
}

}  // namespace

Axes in_order(int rank) {
  Axes axes(static_cast<size_t>(rank));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

bool is_in_order(const Axes& axes) {
  return std::is_sorted(axes.begin(), axes.end());
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

// ---- items

Item Importer::constant(HostTensor tensor, ElementType type) const {
  Item item;
  item.type = type;
  item.shape = tensor.shape();
  item.constant = std::move(tensor);
  return item;
}

Item Importer::integers(const std::vector<int64_t>& values) const {
  return constant(integers_tensor(values), ElementType::kInt64);
}

Item Importer::number(float value) const {
  return constant(float_tensor({}, {value}), ElementType::kFloat);
}

Item Importer::item_of(Value value, ElementType type, const Axes& order) const {
  Item item;
  item.type = type;
  item.value = value;
  item.axes = inverse(order);
  item.shape = permuted(value.shape(), item.axes);
  return item;
}

Item Importer::add_source(Source source) {
  Item item;
  item.type = source.type;
  item.shape = source.shape;
  item.source = static_cast<int>(sources.size());
  item.axes = in_order(source.shape.rank());
  sources.push_back(std::move(source));
  return item;
}

Axes Importer::order_of(const Item& item) const {
  if (item.constant) return in_order(item.rank());
  const Source* source = item.source < 0 ? nullptr : &sources[static_cast<size_t>(item.source)];
  if (source == nullptr) return inverse(item.axes);
  if (!source->value) return in_order(item.rank());
  // Where the item's axis of each axis of the value is.
  const Axes of_tensor = inverse(item.axes);
  Axes order;
  for (int axis : source->order) order.push_back(of_tensor[static_cast<size_t>(axis)]);
  return order;
}

Value Importer::value_in(const Item& item, const Axes& order) {
  if (item.constant) {
    if (item.constant->elements() == 1 && item.dtype() == DType::kF32) {  // however many times it is repeated
      const float number = item.constant->data<float>()[0];
      if (item.shape.elements() > 1) return repeated_constant(number, permuted(item.shape, order));
    }
    HostTensor all = dense(item);
    if (!is_in_order(order)) all = compute(Transpose{order}, std::vector{all});
    return constant_value(all);
  }
  if (item.list) throw Unsupported{"takes a sequence where a tensor is needed"};
  if (item.source >= 0) return source_value(item, order);
  Axes axes;
  for (int axis : order) axes.push_back(item.axes[static_cast<size_t>(axis)]);
  return transposed(item.value, axes);
}

Value Importer::source_value(const Item& item, const Axes& order) {
  Source& source = sources[static_cast<size_t>(item.source)];
  Axes wanted;  // axes of the file's tensor
  for (int axis : order) wanted.push_back(item.axes[static_cast<size_t>(axis)]);
  if (!source.value) {
    const TensorSpec spec{dtype_of_element(source.type), permuted(source.shape, wanted)};
    source.order = wanted;
    if (source.kind == SourceKind::kInput) {
      source.value = graph.input(source.name, spec, place());
    } else {
      source.value = graph.variable(source.name, spec, first_value(source, seed), place());
    }
  }
  const Axes place_of = inverse(source.order);
  Axes axes;
  for (int axis : wanted) axes.push_back(place_of[static_cast<size_t>(axis)]);
  return transposed(*source.value, axes);
}

Value Importer::transposed(Value value, const Axes& axes) {
  if (is_in_order(axes)) return value;
  auto [found, is_new] = transposed_.try_emplace({value.id, axes});
  if (!is_new) return found->second;
  // Where only axes of extent 1 move, the bytes stay.
  Axes long_axes;
  for (int axis : axes) {
    if (value.shape()[axis] != 1) long_axes.push_back(axis);
  }
  if (is_in_order(long_axes)) {
    found->second = add_one(Reshape{permuted(value.shape(), axes)}, {value});
  } else {
    found->second = add_one(Transpose{axes}, {value});
  }
  return found->second;
}

Value Importer::constant_value(const HostTensor& tensor) {
  const auto variable = [&](const Initializer& initializer) {
    return graph.variable(fmt::format("constant_{}", constants_++), tensor.spec(), initializer, place());
  };
  if (tensor.elements() == 1 && tensor.shape().rank() == 0) {
    uint32_t bits = 0;
    std::memcpy(&bits, tensor.bytes().data(), tensor.bytes().size());
    auto [found, is_new] = scalars_.try_emplace({bits, tensor.spec().dtype});
    if (is_new) {
      found->second = variable(
          given([tensor] { return std::vector<std::byte>(tensor.bytes().begin(), tensor.bytes().end()); }));
    }
    return found->second;
  }
  return variable(
      given([tensor] { return std::vector<std::byte>(tensor.bytes().begin(), tensor.bytes().end()); }));
}

Value Importer::repeated_constant(float number, const Shape& shape) {
  return graph.variable(fmt::format("constant_{}", constants_++), {DType::kF32, shape}, constant_of(number),
                        place());
}

HostTensor Importer::dense(const Item& item) const {
  if (!item.constant) throw Unsupported{"needs a constant that is not one"};
  if (item.constant->shape() == item.shape) return *item.constant;
  if (item.shape.elements() > kMostFolded) throw Unsupported{"needs a constant that is too large"};
  return compute(BroadcastTo{item.shape}, std::vector{*item.constant});
}

CodePlace Importer::place() {
  if (node == nullptr) return CodePlace::named(model.graph_name.c_str());
  const size_t colon = node->source.rfind(':');
  if (colon != std::string::npos) {
    // The text is read before this returns to the caller of the graph.
    thread_local std::string file;
    file = node->source.substr(0, colon);
    return CodePlace::named(file.c_str(), std::atoi(node->source.c_str() + colon + 1));
  }
  return CodePlace::named(node->module.empty() ? node->name.c_str() : node->module.c_str());
}

// ---- ops

std::vector<Value> Importer::add(const Op& op, const std::vector<Value>& operands) {
  std::string name;
  if (node != nullptr) {
    name = node->module.empty() ? node->name : node->module;
    std::replace(name.begin(), name.end(), '.', '/');
    name = fmt::format("{}/{}", name.starts_with('/') ? name.substr(1) : name, op_name(op));
  }
  return graph.add(op, operands, name, place());
}

Item Importer::apply(const Op& op, const std::vector<Item>& operands, ElementType type) {
  if (all_constant(operands)) {
    std::vector<TensorSpec> specs;
    for (const Item& operand : operands) specs.push_back({operand.dtype(), operand.shape});
    const Outputs outputs = infer_outputs(op, specs);
    if (outputs[0].shape.elements() <= kMostFolded) {
      std::vector<HostTensor> tensors;
      for (const Item& operand : operands) tensors.push_back(dense(operand));
      Item result = constant(compute(op, tensors), type);
      constexpr int64_t kSmall = 4096;
      if (result.constant->elements() > kSmall) result.constant = compacted(*result.constant);
      return result;
    }
  }
  std::vector<Value> values;
  for (const Item& operand : operands) values.push_back(plain(operand));
  const Value result = add_one(op, values);
  return item_of(result, type, in_order(result.shape().rank()));
}

Item Importer::elementwise(const Op& op, const std::vector<Item>& operands, ElementType type) {
  Shape shape;
  for (const Item& operand : operands) {
    if (operand.list) throw Unsupported{"takes a sequence where a tensor is needed"};
    Shape next;
    if (!broadcast(shape, operand.shape, &next)) {
      throw Unsupported{
          fmt::format("its operands {} and {} do not broadcast", to_string(shape), to_string(operand.shape))};
    }
    shape = next;
  }
  if (all_constant(operands)) {
    std::vector<TensorSpec> specs;
    std::vector<HostTensor> tensors;
    for (const Item& operand : operands) {
      tensors.push_back(*operand.constant);
      specs.push_back(operand.constant->spec());
    }
    if (infer_outputs(op, specs)[0].shape.elements() <= kMostFolded) {
      Item result = constant(compute(op, tensors), type);
      result.shape = shape;
      return result;
    }
  }
  // The order of the largest operand of full rank: moving the others is cheaper.
  const Item* largest = nullptr;
  for (const Item& operand : operands) {
    if (!operand.is_runtime() || operand.rank() != shape.rank()) continue;
    if (largest == nullptr || operand.shape.elements() > largest->shape.elements()) largest = &operand;
  }
  const Axes order = largest == nullptr ? in_order(shape.rank()) : order_of(*largest);
  std::vector<Value> values;
  for (const Item& operand : operands) {
    if (operand.constant && operand.constant->elements() == 1) {
      values.push_back(constant_value(operand.constant->with_shape({})));
      continue;
    }
    if (operand.rank() == shape.rank() && !operand.constant) {
      values.push_back(value_in(operand, order));
      continue;
    }
    Item whole = operand;
    if (operand.constant) whole.shape = operand.constant->shape();  // it broadcasts as it is
    if (!is_in_order(order)) {
      whole = reshape(whole, with_rank(whole.shape, shape.rank()));
      Value value = value_in(whole, order);
      // Without leading axes of extent 1: a bias is then a vector.
      int leading = 0;
      while (leading < value.shape().rank() && value.shape()[leading] == 1) ++leading;
      if (leading > 0 && !operand.constant) {
        const std::span<const int64_t> extents(value.shape().begin(), value.shape().end());
        value = add_one(Reshape{Shape(extents.subspan(static_cast<size_t>(leading)))}, {value});
      }
      values.push_back(value);
    } else {
      values.push_back(plain(whole));
    }
  }
  return item_of(add_one(op, values), type, order);
}

Item Importer::unary(UnaryKind kind, const Item& x, float alpha, float beta) {
  return elementwise(Unary{kind, alpha, beta}, {x}, x.type);
}

Item Importer::binary(BinaryKind kind, const Item& a, const Item& b) {
  const auto scalar_of = [](const Item& item) -> std::optional<float> {
    if (!item.constant || item.constant->elements() != 1 || item.dtype() != DType::kF32) return std::nullopt;
    return item.constant->data<float>()[0];
  };
  const std::optional<float> left = scalar_of(a), right = scalar_of(b);
  const auto keeps_shape = [](const Item& x, const Item& other) {
    Shape both;
    return x.is_runtime() && broadcast(x.shape, other.shape, &both) && both == x.shape;
  };
  if (right && keeps_shape(a, b)) {
    if (kind == BinaryKind::kMul) return elementwise(Scale{*right}, {a}, a.type);
    if (kind == BinaryKind::kDiv && std::isnormal(*right)) return elementwise(Scale{1 / *right}, {a}, a.type);
    if (kind == BinaryKind::kPow) {
      return *right == 0.5f ? unary(UnaryKind::kSqrt, a) : unary(UnaryKind::kPower, a, *right);
    }
    if ((kind == BinaryKind::kAdd || kind == BinaryKind::kSub) && *right == 0) return a;
  }
  if (left && keeps_shape(b, a)) {
    if (kind == BinaryKind::kMul) return elementwise(Scale{*left}, {b}, b.type);
    if (kind == BinaryKind::kDiv && *left == 1) return unary(UnaryKind::kReciprocal, b);
    if (kind == BinaryKind::kAdd && *left == 0) return b;
  }
  return elementwise(Binary{kind}, {a, b}, a.type);
}

Item Importer::compare(CompareKind kind, const Item& a, const Item& b) {
  return elementwise(Compare{kind}, {a, b}, ElementType::kBool);
}

Item Importer::where(const Item& condition, const Item& a, const Item& b) {
  return elementwise(Where{}, {condition, a, b}, a.type);
}

Item Importer::cast(const Item& x, ElementType type) {
  if (stored_bytes(type) == 0) throw Unsupported{fmt::format("casts to {}", to_string(type))};
  if (type == x.type) return x;
  if (type == ElementType::kBool) {
    const Item zero = cast(number(0), x.type);
    Item result = compare(CompareKind::kNotEqual, x, zero);
    return result;
  }
  const DType to = dtype_of_element(type);
  if (to == x.dtype()) {
    Item same = x;
    same.type = type;
    return same;
  }
  return elementwise(Cast{to}, {x}, type);
}

Item Importer::reduce(ReduceKind kind, const Item& x, std::vector<int> axes, bool keep_axes) {
  std::sort(axes.begin(), axes.end());
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  if (x.dtype() != DType::kF32)
    return cast(reduce(kind, cast(x, ElementType::kFloat), axes, keep_axes), x.type);
  if (x.constant) return apply(Reduce{kind, axes, keep_axes}, {x}, x.type);
  const Axes order = order_of(x);
  const Value value = value_in(x, order);
  const Axes place_of = inverse(order);
  std::vector<int> moved;
  for (int axis : axes) moved.push_back(place_of[static_cast<size_t>(axis)]);
  std::sort(moved.begin(), moved.end());
  const Value result = add_one(Reduce{kind, moved, keep_axes}, {value});
  if (keep_axes) return item_of(result, x.type, order);
  // The axes that are left, numbered anew.
  Axes left;
  for (int axis : order) {
    if (std::find(axes.begin(), axes.end(), axis) != axes.end()) continue;
    left.push_back(axis - static_cast<int>(std::lower_bound(axes.begin(), axes.end(), axis) - axes.begin()));
  }
  return item_of(result, x.type, left);
}

Item Importer::matmul(const Item& a, const Item& b) {
  if (a.rank() == 0 || b.rank() == 0) throw Unsupported{"multiplies a scalar"};
  if (a.rank() == 1) {
    const Item product = matmul(reshape(a, {1, a.shape[0]}), b);
    std::vector<int64_t> extents(product.shape.begin(), product.shape.end());
    extents.erase(extents.end() - (b.rank() == 1 ? 1 : 2));
    return reshape(product, Shape(std::span<const int64_t>(extents)));
  }
  if (b.rank() == 1) {
    const Item product = matmul(a, reshape(b, {b.shape[0], 1}));
    const std::span<const int64_t> extents(product.shape.begin(), product.shape.end());
    return reshape(product, Shape(extents.first(extents.size() - 1)));
  }
  if (a.constant && b.constant) return apply(MatMul{}, {a, b}, a.type);
  if (a.dtype() != DType::kF32 || b.dtype() != DType::kF32)
    throw Unsupported{"multiplies matrices of integers"};
  // A matrix that lies in memory with its axes exchanged is multiplied so.
  const auto operand = [&](const Item& item, bool& is_transposed) {
    Axes order = in_order(item.rank());
    is_transposed = false;
    if (!item.constant) {
      const bool is_new = item.source >= 0 && !sources[static_cast<size_t>(item.source)].value;
      const Axes place_of = is_new ? item.axes : inverse(order_of(item));
      const size_t rank = place_of.size();
      is_transposed = place_of[rank - 1] < place_of[rank - 2];
      if (is_transposed) std::swap(order[rank - 1], order[rank - 2]);
    }
    return value_in(item, order);
  };
  MatMul op;
  const Value left = operand(a, op.transpose_a), right = operand(b, op.transpose_b);
  const Value result = add_one(op, {left, right});
  return item_of(result, a.type, in_order(result.shape().rank()));
}

Item Importer::reshape(const Item& x, const Shape& shape) {
  if (x.shape == shape) return x;
  if (x.shape.elements() != shape.elements()) {
    throw Unsupported{fmt::format("reshapes {} to {}", to_string(x.shape), to_string(shape))};
  }
  if (x.constant) {
    Item result = x;
    result.shape = shape;
    if (x.constant->elements() != 1) result.constant = dense(x).with_shape(shape);
    if (result.constant->elements() == 1) result.constant = result.constant->with_shape({});
    return result;
  }
  const Axes order = order_of(x);
  if (!is_in_order(order) && x.shape.elements() > 0) {
    // Axes that lie side by side in memory may be joined, and any may be split: group by group of axes with
    // equal products.
    const Axes place_of = inverse(order);
    std::vector<std::vector<int>> from_groups, to_groups;
    int i = 0, j = 0;
    bool is_possible = true;
    while (i < x.rank() || j < shape.rank()) {
      std::vector<int> from, to;
      int64_t left = 1, right = 1;
      do {
        if ((left <= right && i < x.rank()) || j >= shape.rank()) {
          left *= x.shape[i];
          from.push_back(i++);
        } else {
          right *= shape[j];
          to.push_back(j++);
        }
      } while (left != right && (i < x.rank() || j < shape.rank()));
      // Axes of extent 1 lie anywhere.
      int last = -1;
      for (int axis : from) {
        if (x.shape[axis] == 1) continue;
        const int place = place_of[static_cast<size_t>(axis)];
        if (last >= 0) {
          for (int between = last + 1; between < place; ++between) {
            is_possible = is_possible && x.shape[order[static_cast<size_t>(between)]] == 1;
          }
          is_possible = is_possible && place > last;
        }
        last = place;
      }
      from_groups.push_back(from);
      to_groups.push_back(to);
    }
    if (is_possible) {
      // Groups in the order in which their first long axis lies in memory.
      std::vector<size_t> groups(from_groups.size());
      std::iota(groups.begin(), groups.end(), size_t{0});
      const auto first_place = [&](size_t group) {
        for (int axis : from_groups[group]) {
          if (x.shape[axis] != 1) return place_of[static_cast<size_t>(axis)];
        }
        return -1;
      };
      std::stable_sort(groups.begin(), groups.end(),
                       [&](size_t a, size_t b) { return first_place(a) < first_place(b); });
      Axes new_order;
      for (size_t group : groups)
        new_order.insert(new_order.end(), to_groups[group].begin(), to_groups[group].end());
      const Value value = add_one(Reshape{permuted(shape, new_order)}, {value_in(x, order)});
      return item_of(value, x.type, new_order);
    }
  }
  const Value value = add_one(Reshape{shape}, {plain(x)});
  return item_of(value, x.type, in_order(shape.rank()));
}

Item Importer::transpose(const Item& x, const Axes& order) const {
  Item result = x;
  result.shape = permuted(x.shape, order);
  if (x.constant) {
    const HostTensor whole = x.constant->with_shape(with_rank(x.constant->shape(), x.rank()));
    result.constant = compute(Transpose{order}, std::vector{whole});
    return result;
  }
  for (size_t i = 0; i < order.size(); ++i) result.axes[i] = x.axes[static_cast<size_t>(order[i])];
  return result;
}

Item Importer::expand(const Item& x, const Shape& shape) {
  Shape both;
  if (!broadcast(x.shape, shape, &both)) {
    throw Unsupported{fmt::format("expands {} to {}", to_string(x.shape), to_string(shape))};
  }
  if (both == x.shape) return x;
  if (x.constant) {
    Item result = x;
    result.shape = both;
    return result;
  }
  const Item whole = reshape(x, with_rank(x.shape, both.rank()));
  const Axes order = order_of(whole);
  return item_of(add_one(BroadcastTo{permuted(both, order)}, {value_in(whole, order)}), x.type, order);
}

Item Importer::slice(const Item& x, const Slice& options) {
  const bool is_whole = options.extents == x.shape && std::all_of(options.steps.begin(), options.steps.end(),
                                                                  [](int64_t s) { return s == 1; });
  if (is_whole) return x;
  if (x.constant) return apply(options, {x}, x.type);
  const Axes order = order_of(x);
  Slice moved{{}, permuted(options.extents, order), {}};
  for (int axis : order) {
    moved.begin.push_back(options.begin[static_cast<size_t>(axis)]);
    if (!options.steps.empty()) moved.steps.push_back(options.steps[static_cast<size_t>(axis)]);
  }
  return item_of(add_one(moved, {value_in(x, order)}), x.type, order);
}

Item Importer::pad(const Item& x, const std::vector<int64_t>& before, const std::vector<int64_t>& after) {
  std::vector<int64_t> extents;
  for (int axis = 0; axis < x.rank(); ++axis) {
    extents.push_back(x.shape[axis] + before[static_cast<size_t>(axis)] + after[static_cast<size_t>(axis)]);
  }
  const Shape whole{std::span<const int64_t>(extents)};
  if (whole == x.shape) return x;
  if (x.constant) return apply(SliceGrad{before, whole}, {x}, x.type);
  const Axes order = order_of(x);
  std::vector<int64_t> begin;
  for (int axis : order) begin.push_back(before[static_cast<size_t>(axis)]);
  return item_of(add_one(SliceGrad{begin, permuted(whole, order)}, {value_in(x, order)}), x.type, order);
}

Item Importer::concat(const std::vector<Item>& items, int axis) {
  if (items.size() == 1) return items[0];
  if (all_constant(items)) return apply(Concat{axis}, items, items[0].type);
  const Item* largest = nullptr;
  for (const Item& item : items) {
    if (!item.is_runtime()) continue;
    if (largest == nullptr || item.shape.elements() > largest->shape.elements()) largest = &item;
  }
  const Axes order = order_of(*largest);
  std::vector<Value> values;
  for (const Item& item : items) {
    if (item.rank() != largest->rank()) throw Unsupported{"joins tensors of different ranks"};
    values.push_back(value_in(item, order));
  }
  const int moved = inverse(order)[static_cast<size_t>(axis)];
  return item_of(add_one(Concat{moved}, values), items[0].type, order);
}

Item Importer::gather(const Item& x, const Item& indices, int axis) {
  // The axis first: rows are what is gathered.
  Axes first = {axis};
  for (int other = 0; other < x.rank(); ++other) {
    if (other != axis) first.push_back(other);
  }
  const int index_rank = indices.rank();
  Item rows;
  if (x.constant && indices.constant) {
    rows = apply(Gather{}, {transpose(x, first), indices}, x.type);
  } else {
    const Value result = add_one(Gather{}, {value_in(x, first), plain(indices)});
    rows = item_of(result, x.type, in_order(result.shape().rank()));
  }
  // (indices, others) -> others before the axis, indices, others after it
  Axes order;
  for (int other = 0; other < axis; ++other) order.push_back(index_rank + other);
  for (int i = 0; i < index_rank; ++i) order.push_back(i);
  for (int other = axis; other < x.rank() - 1; ++other) order.push_back(index_rank + other);
  return transpose(rows, order);
}

}  // namespace headroom::onnx
