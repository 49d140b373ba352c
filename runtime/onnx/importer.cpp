#include "runtime/onnx/importer.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>

#include "base/errors.h"
#include "runtime/onnx/variable_data.h"

namespace headroom::onnx {
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

Item Importer::whole(int64_t value) const {
  return constant(integers_tensor({value}).with_shape({}), ElementType::kInt64);
}

Item Importer::number(float value) const {
  return constant(float_tensor({}, {value}), ElementType::kFloat);
}

Item Importer::positions(int axis, int rank, int64_t extent, int64_t factor) const {
  std::vector<int64_t> values, extents(static_cast<size_t>(rank), 1);
  if (extent > kMaxFolded) throw Unsupported{"has too long an axis"};
  for (int64_t i = 0; i < extent; ++i) values.push_back(i * factor);
  extents[static_cast<size_t>(axis)] = extent;
  return constant(integers_tensor(values).with_shape(Shape(std::span<const int64_t>(extents))),
                  ElementType::kInt64);
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
  item.source = static_cast<int>(sources_.size());
  item.axes = in_order(source.shape.rank());
  sources_.push_back(std::move(source));
  return item;
}

Axes Importer::order_of(const Item& item) const {
  if (item.constant) return in_order(item.rank());
  const Source* source = item.source < 0 ? nullptr : &sources_[static_cast<size_t>(item.source)];
  if (source == nullptr) return inverse(item.axes);
  if (!source->value) return in_order(item.rank());
  // Finds the item's axis for each axis of the value.
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
  return transposed(item.quantized ? plain(dequantized(*item.quantized)) : item.value, axes);
}

Value Importer::source_value(const Item& item, const Axes& order) {
  Source& source = sources_[static_cast<size_t>(item.source)];
  Axes wanted;  // axes of the file's tensor
  for (int axis : order) wanted.push_back(item.axes[static_cast<size_t>(axis)]);
  if (!source.value) {
    const TensorSpec spec{dtype_of_element(source.type), permuted(source.shape, wanted)};
    source.order = wanted;
    if (source.kind == SourceKind::kInput) {
      source.value = graph_.input(source.name, spec, place());
    } else {
      source.value = graph_.variable(source.name, spec, first_value(source, model_, seed_), place());
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
  // If only axes of extent 1 move, the bytes stay.
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
  const auto variable = [&] {
    return graph_.variable(fmt::format("constant_{}", constants_++), tensor.spec(), given([tensor] {
                             return std::vector<std::byte>(tensor.bytes().begin(), tensor.bytes().end());
                           }),
                           place());
  };
  if (tensor.elements() == 1 && tensor.shape().rank() == 0) {
    uint32_t bits = 0;
    std::memcpy(&bits, tensor.bytes().data(), tensor.bytes().size());
    auto [found, is_new] = scalars_.try_emplace({bits, tensor.spec().dtype});
    if (is_new) found->second = variable();
    return found->second;
  }
  // Layers have equal masks, each computed anew.
  const std::string_view bytes(reinterpret_cast<const char*>(tensor.bytes().data()), tensor.bytes().size());
  auto& alike = constants_by_hash_[std::hash<std::string_view>()(bytes)];
  for (const auto& [other, value] : alike) {
    if (other.spec() == tensor.spec() && std::ranges::equal(other.bytes(), tensor.bytes())) return value;
  }
  return alike.emplace_back(tensor, variable()).second;
}

std::map<int, float> Importer::scalar_values() const {
  std::map<int, float> numbers;
  for (const auto& [key, value] : scalars_) {
    if (key.second == DType::kF32) numbers[value.id] = std::bit_cast<float>(key.first);
  }
  return numbers;
}

Value Importer::repeated_constant(float number, const Shape& shape) {
  return graph_.variable(fmt::format("constant_{}", constants_++), {DType::kF32, shape}, constant_of(number),
                         place());
}

HostTensor Importer::dense(const Item& item) const {
  if (!item.constant) throw Unsupported{"needs a constant that is not one"};
  if (item.constant->shape() == item.shape) return *item.constant;
  if (item.shape.elements() > kMaxFolded) throw Unsupported{"needs a constant that is too large"};
  return compute(BroadcastTo{item.shape}, std::vector{*item.constant});
}

CodePlace Importer::place() {
  if (node_ == nullptr) return CodePlace::named(model_.graph_name.c_str());
  const size_t colon = node_->source.rfind(':');
  if (colon != std::string::npos) {
    // The text is read before this returns to the caller of the graph_.
    thread_local std::string file;
    file = node_->source.substr(0, colon);
    return CodePlace::named(file.c_str(), std::atoi(node_->source.c_str() + colon + 1));
  }
  return CodePlace::named(node_->module.empty() ? node_->name.c_str() : node_->module.c_str());
}

// ---- ops

std::vector<Value> Importer::add(const Op& op, const std::vector<Value>& operands) {
  std::string name;
  if (node_ != nullptr) {
    name = node_->module.empty() ? node_->name : node_->module;
    std::ranges::replace(name, '.', '/');
    name = fmt::format("{}/{}", name.starts_with('/') ? name.substr(1) : name, op_name(op));
  }
  return graph_.add(op, operands, name, place());
}

// A small file must not ask for much work: its nodes, or the turns of its loops, share it.
bool Importer::may_fold(const Op& op, const std::vector<TensorSpec>& operands) {
  constexpr double kMostFolded = 0x1p32;
  const auto size_of = [](const Shape& shape) { return static_cast<double>(shape.elements()); };
  const Shape result = infer_outputs(op, operands)[0].shape;
  if (result.elements() > kMaxFolded) return false;
  const bool is_product = std::holds_alternative<MatMul>(op);
  folded_ += size_of(result) * (is_product ? static_cast<double>(operands[0].shape.last()) : 1);
  for (const TensorSpec& operand : operands) folded_ += size_of(operand.shape);
  if (folded_ > kMostFolded) throw Unsupported{"is one of too many constants to compute"};
  return true;
}

Item Importer::apply(const Op& op, const std::vector<Item>& operands, ElementType type) {
  if (all_constant(operands)) {
    std::vector<TensorSpec> specs;
    for (const Item& operand : operands) specs.push_back({operand.dtype(), operand.shape});
    if (may_fold(op, specs)) {
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
    if (may_fold(op, specs)) {
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
      // Drops leading axes of extent 1, so that a bias is a vector.
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
  const Value value = add_one(op, values);
  // Less than the whole where only a constant of equal numbers has the longer axes.
  return expand(
      item_of(value, type, value.shape().rank() == shape.rank() ? order : in_order(value.shape().rank())),
      shape);
}

Item Importer::wrapped(const Item& indices, int64_t extent) {
  const Item from_end = binary(BinaryKind::kAdd, indices, whole(extent));
  return where(compare(CompareKind::kLess, indices, whole(0)), from_end, indices);
}

Value Importer::checked_rows(const Item& indices, int64_t rows) {
  const auto [found, is_new] = checked_rows_.try_emplace({plain(indices).id, rows});
  if (is_new) {
    const Item flat = reshape(wrapped(indices, rows), {indices.shape.elements()});
    found->second = plain(gather(positions(0, 1, rows), flat, 0));
  }
  return found->second;
}

Item Importer::unary(UnaryKind kind, const Item& x, float alpha, float beta) {
  return elementwise(Unary{kind, alpha, beta}, {x}, x.type);
}

// Constants of 64 bits are clipped to 32, which is enough for the end of a slice and for a comparison.
void Importer::require_unclipped(const Item& item) const {
  const bool may_be_clipped = item.type == ElementType::kInt64 || item.type == ElementType::kUint64 ||
                              item.type == ElementType::kUint32;
  if (!may_be_clipped || !item.constant) return;
  const std::span<const int32_t> numbers = item.constant->data<int32_t>();
  const bool is_clipped =
      std::ranges::any_of(numbers, [](int32_t number) { return number == INT32_MAX || number == INT32_MIN; });
  if (is_clipped) throw Unsupported{"computes with a whole number beyond 32 bits"};
}

Item Importer::binary(BinaryKind kind, const Item& a, const Item& b) {
  if (kind != BinaryKind::kMax && kind != BinaryKind::kMin) {
    require_unclipped(a);
    require_unclipped(b);
  }
  // The number that all elements of a constant are, as those of a mask that masks nothing.
  const auto scalar_of = [](const Item& item) -> std::optional<float> {
    if (!item.constant || item.constant->elements() == 0 || item.dtype() != DType::kF32) return std::nullopt;
    const std::span<const float> numbers = item.constant->data<float>();
    if (std::ranges::any_of(numbers, [&](float x) { return x != numbers[0]; })) return std::nullopt;
    return numbers[0];
  };
  const std::optional<float> left = scalar_of(a), right = scalar_of(b);
  const auto keeps_shape = [](const Item& x, const Item& other) {
    Shape both;
    return x.is_runtime() && broadcast(x.shape, other.shape, &both) && both == x.shape;
  };
  if (right && keeps_shape(a, b)) {
    if ((kind == BinaryKind::kMul || kind == BinaryKind::kDiv) && *right == 1) return a;
    if (kind == BinaryKind::kMul) return elementwise(Scale{*right}, {a}, a.type);
    if (kind == BinaryKind::kDiv && std::isnormal(*right)) return elementwise(Scale{1 / *right}, {a}, a.type);
    if (kind == BinaryKind::kPow) {
      return *right == 0.5f ? unary(UnaryKind::kSqrt, a) : unary(UnaryKind::kPower, a, *right);
    }
    if ((kind == BinaryKind::kAdd || kind == BinaryKind::kSub) && *right == 0) return a;
  }
  if (left && keeps_shape(b, a)) {
    if (kind == BinaryKind::kMul && *left == 1) return b;
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
  if (to == DType::kF32) require_unclipped(x);
  if (to == x.dtype()) {
    Item same = x;
    same.type = type;
    return same;
  }
  if (!x.constant || x.dtype() != DType::kF32 || to != DType::kI32) return elementwise(Cast{to}, {x}, type);
  // ONNX leaves open which whole number an infinite or undefined float becomes, and nets mask it. The one
  // taken here is in the range of 32 bits, since require_unclipped() refuses its ends.
  const std::span<const float> numbers = x.constant->data<float>();
  std::vector<float> finite(numbers.begin(), numbers.end());
  for (float& each : finite)
    if (!std::isfinite(each)) each = std::copysign(0x1.fffffep30f, each);
  return elementwise(Cast{to}, {constant(float_tensor(x.constant->shape(), finite), x.type)}, type);
}

Item Importer::rounded(const Item& x, ElementType half) {
  const DType stored = half == ElementType::kFloat16 ? DType::kF16 : DType::kBf16;
  const Item narrow = elementwise(Cast{stored}, {cast(x, ElementType::kFloat)}, half);
  return elementwise(Cast{DType::kF32}, {narrow}, half);
}

Item Importer::reduce(ReduceKind kind, const Item& x, std::vector<int> axes, bool keep_axes) {
  std::ranges::sort(axes);
  axes.erase(std::unique(axes.begin(), axes.end()), axes.end());
  if (x.dtype() != DType::kF32)
    return cast(reduce(kind, cast(x, ElementType::kFloat), axes, keep_axes), x.type);
  if (x.constant) return apply(Reduce{kind, axes, keep_axes}, {x}, x.type);
  const Axes order = order_of(x);
  const Value value = value_in(x, order);
  const Axes place_of = inverse(order);
  std::vector<int> moved;
  for (int axis : axes) moved.push_back(place_of[static_cast<size_t>(axis)]);
  std::ranges::sort(moved);
  const Value result = add_one(Reduce{kind, moved, keep_axes}, {value});
  if (keep_axes) return item_of(result, x.type, order);
  // The axes that are left, numbered anew.
  Axes left;
  for (int axis : order) {
    if (std::ranges::find(axes, axis) != axes.end()) continue;
    left.push_back(axis - static_cast<int>(std::lower_bound(axes.begin(), axes.end(), axis) - axes.begin()));
  }
  return item_of(result, x.type, left);
}

Item Importer::matmul(const Item& a, const Item& b) {
  constexpr int64_t kFewRows = 16;
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
      const bool is_new = item.source >= 0 && !sources_[static_cast<size_t>(item.source)].value;
      const Axes place_of = is_new ? item.axes : inverse(order_of(item));
      const size_t rank = place_of.size();
      is_transposed = place_of[rank - 1] < place_of[rank - 2];
      // Where rows are few, reading the weights takes the time, and each column is read as a whole.
      if (&item == &b && is_new && stores_half_ && !is_training_ && rank == 2 &&
          a.shape.elements() <= kFewRows * a.shape.last())
        is_transposed = true;
      if (is_transposed) std::swap(order[rank - 1], order[rank - 2]);
    }
    return value_in(item, order);
  };
  MatMul op;
  const Value left = operand(a, op.transpose_a), right = operand(b, op.transpose_b);
  const Value result = add_one(op, {left, right});
  const Item product = item_of(result, a.type, in_order(result.shape().rank()));
  if (adapters_ == nullptr || node_ == nullptr) return product;
  const std::optional<Item> adapted = adapters_->product(*this, a, b, *node_, model_);
  return adapted ? binary(BinaryKind::kAdd, product, *adapted) : product;
}

}  // namespace headroom::onnx
