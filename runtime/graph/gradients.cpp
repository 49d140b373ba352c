#include "runtime/graph/gradients.h"

#include <fmt/format.h>

#include "base/errors.h"
#include "runtime/graph/functions.h"

namespace headroom {
namespace {

// One node, as the rules below see it. The gradient of the first result exists whenever one is called, except
// that of custom ops.
struct Context : GradientContext {
  const Node& node;

  Value add(const Op& op, std::vector<Value> inputs) const { return graph.add(op, inputs)[0]; }
};

using Grads = std::vector<std::optional<Value>>;  // one per operand; absent: none flows there

// Sums a gradient back over the axes along which its operand was broadcast.
Value sum_to(Value grad, const Shape& shape) {
  if (grad.shape() == shape) return grad;
  const int lead = grad.shape().rank() - shape.rank();
  std::vector<int> axes;
  for (int axis = 0; axis < grad.shape().rank(); ++axis) {
    if (axis < lead || (shape[axis - lead] == 1 && grad.shape()[axis] != 1)) axes.push_back(axis);
  }
  const Value summed = axes.empty() ? grad : sum(grad, axes);
  return summed.shape() == shape ? summed : reshape(summed, shape);
}

// (..,M,K) -> (rows,K), one matrix of all rows
Value as_matrix(Value x) {
  int64_t rows = 1;
  for (int axis = 0; axis + 1 < x.shape().rank(); ++axis) rows *= x.shape()[axis];
  return reshape(x, {rows, x.shape().last()});
}

// y = a b: da = dy b^T, db = a^T dy; with a stored transposed, its gradient is transposed too.
Grads matmul_grads(const MatMul& op, Value a, Value b, Value dy) {
  return {op.transpose_a ? matmul(b, dy, {op.transpose_b, true}) : matmul(dy, b, {false, !op.transpose_b}),
          op.transpose_b ? matmul(dy, a, {true, op.transpose_a}) : matmul(a, dy, {!op.transpose_a, false})};
}

Grads rule(const MatMul& op, const Context& c) {
  const Value a = c.in[0], b = c.in[1];
  if (a.shape().rank() > 2 && b.shape().rank() == 2 && !op.transpose_a) {
    // One b multiplies all: its gradient is one product over all rows, not the sum of one for each leading
    // index, which together take that many times b's bytes.
    const Grads of_rows = matmul_grads(op, as_matrix(a), b, as_matrix(c.dy()));
    return {matmul(c.dy(), b, {false, !op.transpose_b}), of_rows[1]};
  }
  const Grads grads = matmul_grads(op, a, b, c.dy());
  return {sum_to(*grads[0], a.shape()), sum_to(*grads[1], b.shape())};
}

Grads rule(const Dense& op, const Context& c) {
  const bool has_bias = c.in[2].shape().rank() == 1;
  const Value g = op.relu ? c.add(UnaryGrad{UnaryKind::kRelu}, {c.dy(), c.out[0]}) : c.dy();
  Grads grads;
  if (op.transpose_b || c.in[0].shape().rank() > 2 || !has_bias) {
    grads = matmul_grads({false, op.transpose_b}, as_matrix(c.in[0]), c.in[1], as_matrix(g));
    grads = {reshape(*grads[0], c.in[0].shape()), grads[1], sum_to(g, c.in[2].shape())};
  } else {
    const Value rows = as_matrix(g);
    const std::vector<Value> parameters = c.graph.add(DenseFilterGrad{}, std::vector<Value>{c.in[0], rows});
    grads = {matmul(rows, c.in[1], {false, true}), parameters[0], parameters[1]};
  }
  if (c.in.size() == 4) grads.push_back(g);
  return grads;
}

Grads rule(const Conv2d& op, const Context& c) {
  // The gradient of the images costs as much as the others, and the first layer's is rarely wanted.
  Grads grads(2);
  if (c.wanted[0]) grads[0] = c.add(Conv2dInputGrad{op, c.in[0].shape()}, {c.dy(), c.in[1]});
  if (c.wanted[1]) grads[1] = c.add(Conv2dFilterGrad{op, c.in[1].shape()}, {c.in[0], c.dy()});
  return grads;
}

Grads rule(const Conv2dInputGrad& op, const Context& c) {
  Grads grads(2);
  if (c.wanted[0]) grads[0] = c.add(op.conv, {c.dy(), c.in[1]});
  if (c.wanted[1]) grads[1] = c.add(Conv2dFilterGrad{op.conv, c.in[1].shape()}, {c.dy(), c.in[0]});
  return grads;
}

Grads rule(const MaxPool& op, const Context& c) {
  return {c.add(MaxPoolGrad{op.pool, c.in[0].shape()}, {c.dy(), c.out[1]})};
}

Grads rule(const AvgPool& op, const Context& c) {
  return {c.add(AvgPoolGrad{op.pool, c.in[0].shape()}, {c.dy()})};
}

Grads rule(const ConvBlock& op, const Context& c) {
  const Value route = op.pool ? c.out[1] : c.out[0];
  std::optional<Value> dx;
  if (c.wanted[0]) dx = c.add(ConvBlockInputGrad{op, c.in[0].shape()}, {c.dy(), route, c.in[1]});
  const std::vector<Value> parameters =
      c.graph.add(ConvBlockFilterGrad{op, c.in[1].shape()}, std::vector<Value>{c.in[0], c.dy(), route});
  return {dx, parameters[0], parameters[1]};
}

Grads rule(const Unary& op, const Context& c) {
  if (!has_gradient(op.kind)) return {std::nullopt};  // a step: its slope is 0
  const Value saved = gradient_needs_input(op.kind) ? c.in[0] : c.out[0];
  return {c.add(UnaryGrad{op.kind, op.alpha, op.beta}, {c.dy(), saved})};
}

Grads rule(const Scale& op, const Context& c) {
  return {scale(c.dy(), op.factor)};
}

Grads rule(const Binary& op, const Context& c) {
  const Value a = c.in[0], b = c.in[1], dy = c.dy();
  const auto to_a = [&](Value grad) { return sum_to(grad, a.shape()); };
  const auto to_b = [&](Value grad) { return sum_to(grad, b.shape()); };
  switch (op.kind) {
    case BinaryKind::kAdd:
      return {to_a(dy), to_b(dy)};
    case BinaryKind::kSub:
      return {to_a(dy), scale(to_b(dy), -1)};
    case BinaryKind::kMul:
      return {to_a(mul(dy, b)), to_b(mul(dy, a))};
    case BinaryKind::kDiv:
      // d(a/b)/db = -(a/b)/b
      return {to_a(div(dy, b)), scale(to_b(div(mul(dy, c.out[0]), b)), -1)};
    case BinaryKind::kPow: {
      // d(a^b)/da = b a^(b-1), d(a^b)/db = a^b log(a)
      Grads grads(2);
      if (c.wanted[0]) {
        const Value less = sub(b, fill(c.graph, 1, {}));
        grads[0] = to_a(mul(dy, mul(b, binary(BinaryKind::kPow, a, less))));
      }
      if (c.wanted[1]) grads[1] = to_b(mul(dy, mul(c.out[0], unary(UnaryKind::kLog, a))));
      return grads;
    }
    case BinaryKind::kMax:
    case BinaryKind::kMin: {
      // If both are equal, the whole gradient goes to a.
      const bool is_max = op.kind == BinaryKind::kMax;
      const Value from_a = comparison(CompareKind::kLessEqual, is_max ? b : a, is_max ? a : b);
      const Value none = fill(c.graph, 0, {});
      return {to_a(where(from_a, dy, none)), to_b(where(from_a, none, dy))};
    }
    case BinaryKind::kMod:
      // a - b floor(a / b), and the floor is a step
      return {to_a(dy), scale(to_b(mul(dy, unary(UnaryKind::kFloor, div(a, b)))), -1)};
  }
  return {};
}

Grads rule(const Where&, const Context& c) {
  const Value none = fill(c.graph, 0, {});
  Grads grads(3);
  if (c.wanted[1]) grads[1] = sum_to(where(c.in[0], c.dy(), none), c.in[1].shape());
  if (c.wanted[2]) grads[2] = sum_to(where(c.in[0], none, c.dy()), c.in[2].shape());
  return grads;
}

Grads rule(const Dropout& op, const Context& c) {
  return {c.add(op, {c.dy(), c.in[1]}), std::nullopt};
}

Grads rule(const Reshape&, const Context& c) {
  return {reshape(c.dy(), c.in[0].shape())};
}

Grads rule(const CopyToDevice&, const Context& c) {
  return {to_device(c.dy(), c.graph.value(c.in[0].id).device)};
}

Grads rule(const Transpose& op, const Context& c) {
  std::vector<int> inverse(op.axes.size());
  for (size_t i = 0; i < op.axes.size(); ++i) inverse[static_cast<size_t>(op.axes[i])] = static_cast<int>(i);
  return {transpose(c.dy(), inverse)};
}

Grads rule(const Concat& op, const Context& c) {
  Grads grads;
  std::vector<int64_t> begin(static_cast<size_t>(c.dy().shape().rank()), 0);
  for (const Value& input : c.in) {
    grads.push_back(slice(c.dy(), begin, input.shape()));
    begin[static_cast<size_t>(op.axis)] += input.shape()[op.axis];
  }
  return grads;
}

Grads rule(const Slice& op, const Context& c) {
  return {c.add(SliceGrad{op.begin, c.in[0].shape(), op.steps}, {c.dy()})};
}

Grads rule(const SliceGrad& op, const Context& c) {
  return {slice(c.dy(), Slice{op.begin, c.in[0].shape(), op.steps})};
}

Grads rule(const Gather& op, const Context& c) {
  Value dy = c.dy();
  if (op.padding_row >= 0) {
    const Value row = cast(fill(c.graph, static_cast<float>(op.padding_row), {}), DType::kI32);
    std::vector<int64_t> extents(c.in[1].shape().begin(), c.in[1].shape().end());
    extents.resize(static_cast<size_t>(dy.shape().rank()), 1);
    const Value is_padding = comparison(CompareKind::kEqual, c.in[1], row);
    dy = where(reshape(is_padding, Shape(std::span<const int64_t>(extents))), fill(c.graph, 0, {}), dy);
  }
  return {c.add(GatherGrad{c.in[0].shape()}, {dy, c.in[1]}), std::nullopt};
}

Grads rule(const GatherGrad&, const Context& c) {
  return {gather(c.dy(), c.in[1]), std::nullopt};
}

Grads rule(const ReplaceRows& op, const Context& c) {
  Grads grads(3);
  if (c.wanted[0]) grads[0] = c.add(op, {c.dy(), c.in[1], fill(c.graph, 0, c.in[2].shape())});
  if (c.wanted[2]) {
    std::vector<int> to_front = {op.axis}, back;
    for (int axis = 0; axis < c.dy().shape().rank(); ++axis) {
      if (axis != op.axis) to_front.push_back(axis);
      back.push_back(axis == op.axis ? 0 : axis + (axis < op.axis ? 1 : 0));
    }
    grads[2] = transpose(gather(transpose(c.dy(), to_front), c.in[1]), back);
  }
  return grads;
}

Grads rule(const BroadcastTo&, const Context& c) {
  return {sum_to(c.dy(), c.in[0].shape())};
}

Grads rule(const Reduce& op, const Context& c) {
  const Shape& whole = c.in[0].shape();
  Shape kept = whole;
  for (int axis : op.axes) kept = kept.with(axis, 1);
  const Value dy = c.dy().shape() == kept ? c.dy() : reshape(c.dy(), kept);
  if (op.kind == ReduceKind::kMax) {
    const Value y = c.out[0].shape() == kept ? c.out[0] : reshape(c.out[0], kept);
    return {c.add(ReduceMaxGrad{op.axes}, {c.in[0], y, dy})};
  }
  const auto share = static_cast<float>(kept.elements()) / static_cast<float>(whole.elements());
  return {broadcast_to(op.kind == ReduceKind::kMean ? scale(dy, share) : dy, whole)};
}

Grads rule(const Softmax& op, const Context& c) {
  Grads grads = {c.add(SoftmaxGrad{op.scale}, {c.dy(), c.out[0]})};
  if (c.in.size() < 2) return grads;
  std::optional<Value> of_mask;
  if (c.wanted[1]) {
    const Value unscaled = op.scale == 1 ? *grads[0] : c.add(SoftmaxGrad{}, {c.dy(), c.out[0]});
    of_mask = sum_to(unscaled, c.in[1].shape());
  }
  grads.push_back(of_mask);
  return grads;
}

Grads rule(const Attention& op, const Context& c) {
  const size_t factors = op.packed ? 1 : 3;
  const bool has_mask = c.in.size() > factors;
  if (has_mask && c.wanted[factors]) throw InvalidArgument("attention has no gradient for its mask");
  std::vector<Value> operands = {c.dy()};
  for (size_t i = 0; i < factors; ++i) operands.push_back(c.in[i]);
  operands.insert(operands.end(), {c.out[0], c.out[1]});
  if (has_mask) operands.insert(operands.end(), {c.in[factors], c.in[factors + 1]});
  const std::vector<Value> grads = c.graph.add(AttentionGrad{op.scale, op.packed, op.softcap}, operands);
  Grads results(grads.begin(), grads.end());
  if (has_mask) results.resize(results.size() + 2);
  return results;
}

Grads rule(const CrossEntropy& op, const Context& c) {
  return {c.add(CrossEntropyGrad{op.classes}, {c.in[0], c.in[1], c.dy()}), std::nullopt};
}

Grads rule(const BatchNorm& op, const Context& c) {
  const bool adds = c.in.size() > 3;
  std::vector<Value> operands = {c.dy(), c.in[0], c.in[1], c.out[1], c.out[2]};
  if (op.relu) operands.push_back(adds ? c.out[0] : c.in[2]);
  std::vector<Value> grads = c.graph.add(BatchNormGrad{op.epsilon, op.relu, op.relu && adds}, operands);
  if (adds && !op.relu) grads.push_back(c.dy());
  return {grads.begin(), grads.end()};
}

Grads rule(const LayerNorm&, const Context& c) {
  const std::vector<Value> grads =
      c.graph.add(LayerNormGrad{}, std::vector<Value>{c.dy(), c.in[0], c.in[1], c.out[1], c.out[2]});
  return {grads[0], grads[1], grads[2]};
}

Grads rule(const CumulativeSum& op, const Context& c) {
  return {cumulative_sum(c.dy(), {op.axis, op.exclusive, !op.reverse})};
}

// A cast between integers and floats passes no gradient, as in every framework.
Grads rule(const Cast& op, const Context& c) {
  Grads grads;
  for (size_t i = 0; i < c.in.size(); ++i) {
    const DType from = c.in[i].spec().dtype;
    const bool passes = is_real(from) && is_real(op.to) && c.grad_out[i];
    grads.push_back(passes ? std::optional(cast(*c.grad_out[i], from)) : std::nullopt);
  }
  return grads;
}

[[noreturn]] void refuse(const Node& node) {
  throw InvalidArgument(
      fmt::format("gradients: the path to the loss goes through {}, which has no gradient ({})", node.name,
                  op_name(node.op)));
}

void check_gradient(const Value& gradient, const Context& c, size_t operand) {
  const auto fail = [&](std::string_view why) {
    throw InvalidArgument(
        fmt::format("gradients: {}: its gradient of operand {} {}", c.node.name, operand, why));
  };
  const TensorSpec& spec = c.in[operand].spec();
  if (gradient.graph != &c.graph) fail("belongs to another graph");
  if (!is_real(spec.dtype)) fail(fmt::format("must be absent, because the operand is {}", to_string(spec)));
  if (gradient.spec() != spec)
    fail(fmt::format("is {}, but the operand is {}", to_string(gradient.spec()), to_string(spec)));
}

Grads rule(const Custom& custom, const Context& c) {
  if (!custom.op->gradient) refuse(c.node);
  GradientContext given = c;
  for (size_t i = 0; i < given.out.size(); ++i) {
    const TensorSpec& spec = given.out[i].spec();
    if (given.grad_out[i] || !is_real(spec.dtype)) continue;
    const Value none = fill(c.graph, 0, spec.shape);
    given.grad_out[i] = spec.dtype == DType::kF32 ? none : cast(none, spec.dtype);
  }
  Grads grads = custom.op->gradient(given);
  if (grads.size() != c.in.size()) {
    throw InvalidArgument(fmt::format("gradients: {}: its gradient gives {} values for {} operands",
                                      c.node.name, grads.size(), c.in.size()));
  }
  for (size_t i = 0; i < grads.size(); ++i) {
    if (grads[i]) check_gradient(*grads[i], c, i);
  }
  return grads;
}

// An op without a rule does not compile, unless its traits say that it is not differentiable.
Grads gradients_of(const Context& c) {
  return std::visit(
      [&]<typename T>(const T& op) -> Grads {
        if constexpr (T::kTraits.has_gradient()) {
          return rule(op, c);
        } else {
          refuse(c.node);
        }
      },
      c.node.op);
}

// Returns, for each value, true if it depends on one of `variables`.
std::vector<bool> reached_from(const Graph& graph, std::span<const Value> variables) {
  std::vector<bool> reached(graph.values().size());
  for (const Value& variable : variables) reached[static_cast<size_t>(variable.id)] = true;
  for (const Node& node : graph.nodes()) {
    bool any = false;
    for (int input : node.inputs) any = any || reached[static_cast<size_t>(input)];
    for (int output : node.outputs) reached[static_cast<size_t>(output)] = any;
  }
  return reached;
}

}  // namespace

std::vector<Value> gradients(Value loss, std::span<const Value> variables) {
  if (loss.graph == nullptr || loss.spec() != TensorSpec{DType::kF32, {}}) {
    throw InvalidArgument("gradients: the loss must be an f32 scalar, take a sum or a mean first");
  }
  Graph& graph = *loss.graph;
  for (const Value& variable : variables) {
    if (variable.graph != &graph) throw InvalidArgument("gradients: a variable belongs to another graph");
  }
  const NameScope scope(graph, "gradients");
  const BackwardScope backward(graph, loss);
  const std::vector<bool> wanted = reached_from(graph, variables);
  std::vector<std::optional<Value>> grad(graph.values().size());
  grad[static_cast<size_t>(loss.id)] = fill(graph, 1, {});

  const auto count = static_cast<int>(graph.nodes().size()) - 1;  // the nodes before the fill
  for (int id = count - 1; id >= 0; --id) {
    const Node& node = graph.node(id);
    Context context{{graph, {}, {}, {}, {}}, node};
    bool flows = false, needed = false;
    for (int output : node.outputs) {
      context.out.push_back({&graph, output});
      context.grad_out.push_back(grad[static_cast<size_t>(output)]);
      flows = flows || context.grad_out.back().has_value();
    }
    for (int input : node.inputs) {
      context.in.push_back({&graph, input});
      context.wanted.push_back(wanted[static_cast<size_t>(input)]);
      needed = needed || context.wanted.back();
    }
    if (!flows || !needed) continue;
    if (!context.grad_out[0] && !std::holds_alternative<Custom>(node.op)) {
      throw InvalidArgument(fmt::format("gradients: the loss depends on a side result of {}", node.name));
    }
    const BackwardScope of_node(graph, context.out[0]);
    const Grads grads = gradients_of(context);
    for (size_t i = 0; i < grads.size(); ++i) {
      auto& sum_so_far = grad[static_cast<size_t>(node.inputs[i])];
      if (!grads[i] || !wanted[static_cast<size_t>(node.inputs[i])]) continue;
      // The gradient lives on the value's device, regardless of its readers.
      const DeviceScope of_value(graph, graph.value(node.inputs[i]).device);
      sum_so_far = sum_so_far ? add(*sum_so_far, *grads[i]) : *grads[i];
    }
  }

  std::vector<Value> results;
  for (const Value& variable : variables) {
    const auto& result = grad[static_cast<size_t>(variable.id)];
    const DeviceScope of_variable(graph, graph.value(variable.id).device);
    results.push_back(result ? *result : fill(graph, 0, variable.shape()));
  }
  return results;
}

}  // namespace headroom
