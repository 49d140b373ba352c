#include "runtime/graph/functions.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/errors.h"

namespace headroom {
namespace {

std::vector<Value> all(const Op& op, const std::vector<Value>& operands, CodePlace place) {
  if (operands.empty() || operands.front().graph == nullptr) {
    throw InvalidArgument(std::string(op_name(op)) + ": operand 0 is not a value of a graph");
  }
  return operands.front().graph->add(op, operands, {}, place);
}

Value one(const Op& op, std::initializer_list<Value> inputs, CodePlace place) {
  return all(op, inputs, place)[0];
}

int from_end(int axis, const Value& x) {
  return axis < 0 ? axis + x.shape().rank() : axis;
}

Value reduce(ReduceKind kind, Value x, std::vector<int> axes, bool keep_axes, CodePlace place) {
  for (int& axis : axes) axis = from_end(axis, x);
  std::ranges::sort(axes);
  return one(Reduce{kind, std::move(axes), keep_axes}, {x}, place);
}

std::vector<int> all_axes(const Value& x) {
  std::vector<int> axes(static_cast<size_t>(x.shape().rank()));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

}  // namespace

Value matmul(Value a, Value b, MatMul options, CodePlace place) {
  return one(options, {a, b}, place);
}
Value conv2d(Value x, Value filter, Conv2d options, CodePlace place) {
  return one(options, {x, filter}, place);
}
Value max_pool(Value x, Pool2d options, CodePlace place) {
  return one(MaxPool{options}, {x}, place);
}
Value avg_pool(Value x, Pool2d options, CodePlace place) {
  return one(AvgPool{options}, {x}, place);
}
Value bias(Value x, Value b, CodePlace place) {
  // A plain add would also take vectors of one element and matrices.
  if (b.shape() != Shape{x.shape().last()}) {
    throw InvalidArgument("bias(" + to_string(x.spec()) + ", " + to_string(b.spec()) +
                          "): operand 1 must have shape [" + std::to_string(x.shape().last()) + "]");
  }
  return one(Binary{BinaryKind::kAdd}, {x, b}, place);
}
Value relu(Value x, CodePlace place) {
  return one(Unary{UnaryKind::kRelu}, {x}, place);
}
Value sigmoid(Value x, CodePlace place) {
  return one(Unary{UnaryKind::kSigmoid}, {x}, place);
}
Value tanh(Value x, CodePlace place) {
  return one(Unary{UnaryKind::kTanh}, {x}, place);
}
Value gelu(Value x, CodePlace place) {
  return one(Unary{UnaryKind::kGelu}, {x}, place);
}
Value unary(UnaryKind kind, Value x, float alpha, float beta, CodePlace place) {
  return one(Unary{kind, alpha, beta}, {x}, place);
}
Value scale(Value x, float factor, CodePlace place) {
  return one(Scale{factor}, {x}, place);
}
Value add(Value a, Value b, CodePlace place) {
  return one(Binary{BinaryKind::kAdd}, {a, b}, place);
}
Value sub(Value a, Value b, CodePlace place) {
  return one(Binary{BinaryKind::kSub}, {a, b}, place);
}
Value mul(Value a, Value b, CodePlace place) {
  return one(Binary{BinaryKind::kMul}, {a, b}, place);
}
Value div(Value a, Value b, CodePlace place) {
  return one(Binary{BinaryKind::kDiv}, {a, b}, place);
}
Value binary(BinaryKind kind, Value a, Value b, CodePlace place) {
  return one(Binary{kind}, {a, b}, place);
}
Value comparison(CompareKind kind, Value a, Value b, CodePlace place) {
  return one(Compare{kind}, {a, b}, place);
}
Value where(Value condition, Value a, Value b, CodePlace place) {
  return one(Where{}, {condition, a, b}, place);
}
Value cumulative_sum(Value x, CumulativeSum options, CodePlace place) {
  options.axis = from_end(options.axis, x);
  return one(options, {x}, place);
}
Value sum(Value x, std::vector<int> axes, bool keep, CodePlace place) {
  return reduce(ReduceKind::kSum, x, std::move(axes), keep, place);
}
Value mean(Value x, std::vector<int> axes, bool keep, CodePlace place) {
  return reduce(ReduceKind::kMean, x, std::move(axes), keep, place);
}
Value max(Value x, std::vector<int> axes, bool keep, CodePlace place) {
  return reduce(ReduceKind::kMax, x, std::move(axes), keep, place);
}
Value sum(Value x, CodePlace place) {
  return reduce(ReduceKind::kSum, x, all_axes(x), false, place);
}
Value mean(Value x, CodePlace place) {
  return reduce(ReduceKind::kMean, x, all_axes(x), false, place);
}
Value max(Value x, CodePlace place) {
  return reduce(ReduceKind::kMax, x, all_axes(x), false, place);
}
Value reshape(Value x, const Shape& shape, CodePlace place) {
  return one(Reshape{shape}, {x}, place);
}
Value flatten(Value x, CodePlace place) {
  const int64_t rows = x.shape().rank() == 0 ? 1 : x.shape()[0];
  return reshape(x, {rows, rows == 0 ? 0 : x.shape().elements() / rows}, place);
}
Value to_device(Value x, std::string_view device, CodePlace place) {
  if (x.graph == nullptr) throw InvalidArgument("to_device: operand 0 is not a value of a graph");
  const DeviceScope scope(*x.graph, device);
  return one(CopyToDevice{}, {x}, place);
}
Value transpose(Value x, std::vector<int> axes, CodePlace place) {
  for (int& axis : axes) axis = from_end(axis, x);
  return one(Transpose{std::move(axes)}, {x}, place);
}
Value transpose(Value x, CodePlace place) {
  std::vector<int> axes = all_axes(x);
  std::ranges::reverse(axes);
  return transpose(x, std::move(axes), place);
}
Value concat(std::vector<Value> values, int axis, CodePlace place) {
  if (values.empty()) throw InvalidArgument("concat(): takes at least one operand");
  return values[0].graph->add(Concat{from_end(axis, values[0])}, values, {}, place)[0];
}
Value slice(Value x, std::vector<int64_t> begin, const Shape& extents, CodePlace place) {
  return one(Slice{std::move(begin), extents}, {x}, place);
}
Value slice(Value x, Slice options, CodePlace place) {
  return one(std::move(options), {x}, place);
}
Value gather(Value table, Value indices, CodePlace place) {
  return one(Gather{}, {table, indices}, place);
}
Value take_batch(Value table, Value step, TakeBatch options, CodePlace place) {
  return one(options, {table, step}, place);
}
Value take_batch(Value table, Value step, Value order, TakeBatch options, CodePlace place) {
  return one(options, {table, step, order}, place);
}
Value cast(Value x, DType to, CodePlace place) {
  return one(Cast{to}, {x}, place);
}
Value broadcast_to(Value x, const Shape& shape, CodePlace place) {
  return one(BroadcastTo{shape}, {x}, place);
}
Value fill(Graph& graph, float value, const Shape& shape, CodePlace place) {
  return graph.add(Fill{value, shape}, {}, {}, place)[0];
}
Value random_uniform(const Shape& shape, uint64_t seed, Value step, CodePlace place) {
  return one(RandomUniform{shape, seed}, {step}, place);
}

Value dropout(Value x, float rate, uint64_t seed, Value step, CodePlace place) {
  return one(Dropout{rate, seed}, {x, step}, place);
}
Value softmax(Value x, CodePlace place) {
  return one(Softmax{}, {x}, place);
}
Value layer_norm(Value x, Value gamma, Value beta, float epsilon, CodePlace place) {
  return one(LayerNorm{epsilon}, {x, gamma, beta}, place);
}
Value cross_entropy(Value logits, Value labels, CodePlace place) {
  return one(CrossEntropy{}, {logits, labels}, place);
}
Value argmax(Value x, int axis, CodePlace place) {
  return one(ArgMax{from_end(axis, x)}, {x}, place);
}
Value accuracy(Value logits, Value labels, CodePlace place) {
  return one(Accuracy{}, {logits, labels}, place);
}

std::vector<Value> custom(const CustomOp& op, const std::vector<Value>& inputs, CodePlace place) {
  return all(Custom(op), inputs, place);
}

BatchNormState batch_norm_state(Graph& graph, int64_t channels, CodePlace place) {
  const TensorSpec vector{DType::kF32, {channels}};
  return {graph.variable("gamma", vector, ones(), place), graph.variable("beta", vector, zeros(), place),
          graph.variable("running_mean", vector, zeros(), place),
          graph.variable("running_variance", vector, ones(), place)};
}

Value batch_norm_training(Value x, const BatchNormState& state, float momentum, float epsilon,
                          CodePlace place) {
  const std::vector<Value> results =
      x.graph->add(BatchNorm{epsilon}, std::vector<Value>{x, state.gamma, state.beta}, {}, place);
  const MovingAverageUpdate update{momentum};
  x.graph->add(update, std::vector<Value>{state.running_mean, results[1]}, {}, place);
  x.graph->add(update, std::vector<Value>{state.running_variance, results[2]}, {}, place);
  return results[0];
}

Value batch_norm_inference(Value x, const BatchNormState& state, float epsilon, CodePlace place) {
  return one(BatchNormApply{epsilon},
             {x, state.gamma, state.beta, state.running_mean, state.running_variance}, place);
}

}  // namespace headroom
