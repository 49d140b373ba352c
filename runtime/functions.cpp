#include "runtime/functions.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "runtime/core/errors.h"

namespace headroom {
namespace {

Value one(const Op& op, std::initializer_list<Value> inputs) {
  const std::vector<Value> operands(inputs);
  if (operands.front().graph == nullptr) {
    throw InvalidArgument(std::string(op_name(op)) + ": operand 0 is no value of a graph");
  }
  return operands.front().graph->add(op, operands)[0];
}

int from_end(int axis, const Value& x) {
  return axis < 0 ? axis + x.shape().rank() : axis;
}

Value reduce(ReduceKind kind, Value x, std::vector<int> axes, bool keep_axes) {
  for (int& axis : axes) axis = from_end(axis, x);
  std::sort(axes.begin(), axes.end());
  return one(Reduce{kind, std::move(axes), keep_axes}, {x});
}

std::vector<int> all_axes(const Value& x) {
  std::vector<int> axes(static_cast<size_t>(x.shape().rank()));
  std::iota(axes.begin(), axes.end(), 0);
  return axes;
}

}  // namespace

Value matmul(Value a, Value b, MatMul options) {
  return one(options, {a, b});
}
Value conv2d(Value x, Value filter, Conv2d options) {
  return one(options, {x, filter});
}
Value max_pool(Value x, Pool2d options) {
  return one(MaxPool{options}, {x});
}
Value avg_pool(Value x, Pool2d options) {
  return one(AvgPool{options}, {x});
}
Value bias(Value x, Value b) {
  // A plain add would also take vectors of one element and matrices.
  if (b.shape() != Shape{x.shape().last()}) {
    throw InvalidArgument("bias(" + to_string(x.spec()) + ", " + to_string(b.spec()) +
                          "): operand 1 must have shape [" + std::to_string(x.shape().last()) + "]");
  }
  return one(Binary{BinaryKind::kAdd}, {x, b});
}
Value relu(Value x) {
  return one(Unary{UnaryKind::kRelu}, {x});
}
Value sigmoid(Value x) {
  return one(Unary{UnaryKind::kSigmoid}, {x});
}
Value tanh(Value x) {
  return one(Unary{UnaryKind::kTanh}, {x});
}
Value gelu(Value x) {
  return one(Unary{UnaryKind::kGelu}, {x});
}
Value scale(Value x, float factor) {
  return one(Scale{factor}, {x});
}
Value add(Value a, Value b) {
  return one(Binary{BinaryKind::kAdd}, {a, b});
}
Value sub(Value a, Value b) {
  return one(Binary{BinaryKind::kSub}, {a, b});
}
Value mul(Value a, Value b) {
  return one(Binary{BinaryKind::kMul}, {a, b});
}
Value div(Value a, Value b) {
  return one(Binary{BinaryKind::kDiv}, {a, b});
}
Value sum(Value x, std::vector<int> axes, bool keep) {
  return reduce(ReduceKind::kSum, x, std::move(axes), keep);
}
Value mean(Value x, std::vector<int> axes, bool keep) {
  return reduce(ReduceKind::kMean, x, std::move(axes), keep);
}
Value max(Value x, std::vector<int> axes, bool keep) {
  return reduce(ReduceKind::kMax, x, std::move(axes), keep);
}
Value sum(Value x) {
  return reduce(ReduceKind::kSum, x, all_axes(x), false);
}
Value mean(Value x) {
  return reduce(ReduceKind::kMean, x, all_axes(x), false);
}
Value max(Value x) {
  return reduce(ReduceKind::kMax, x, all_axes(x), false);
}
Value reshape(Value x, const Shape& shape) {
  return one(Reshape{shape}, {x});
}
Value flatten(Value x) {
  const int64_t rows = x.shape().rank() == 0 ? 1 : x.shape()[0];
  return reshape(x, {rows, rows == 0 ? 0 : x.shape().elements() / rows});
}
Value transpose(Value x, std::vector<int> axes) {
  for (int& axis : axes) axis = from_end(axis, x);
  return one(Transpose{std::move(axes)}, {x});
}
Value transpose(Value x) {
  std::vector<int> axes = all_axes(x);
  std::reverse(axes.begin(), axes.end());
  return transpose(x, std::move(axes));
}
Value concat(std::vector<Value> values, int axis) {
  if (values.empty()) throw InvalidArgument("concat(): takes at least one operand");
  return values[0].graph->add(Concat{from_end(axis, values[0])}, values)[0];
}
Value slice(Value x, std::vector<int64_t> begin, const Shape& extents) {
  return one(Slice{std::move(begin), extents}, {x});
}
Value gather(Value table, Value indices) {
  return one(Gather{}, {table, indices});
}
Value take_batch(Value table, Value step, TakeBatch options) {
  return one(options, {table, step});
}
Value take_batch(Value table, Value step, Value order, TakeBatch options) {
  return one(options, {table, step, order});
}
Value cast(Value x, DType to) {
  return one(Cast{to}, {x});
}
Value broadcast_to(Value x, const Shape& shape) {
  return one(BroadcastTo{shape}, {x});
}
Value fill(Graph& graph, float value, const Shape& shape) {
  return graph.add(Fill{value, shape}, {})[0];
}
Value dropout(Value x, float rate, uint64_t seed, Value step) {
  return one(Dropout{rate, seed}, {x, step});
}
Value softmax(Value x) {
  return one(Softmax{}, {x});
}
Value cross_entropy(Value logits, Value labels) {
  return one(CrossEntropy{}, {logits, labels});
}
Value argmax(Value x, int axis) {
  return one(ArgMax{from_end(axis, x)}, {x});
}
Value accuracy(Value logits, Value labels) {
  return one(Accuracy{}, {logits, labels});
}

BatchNormState batch_norm_state(Graph& graph, int64_t channels) {
  const TensorSpec vector{DType::kF32, {channels}};
  return {graph.variable("gamma", vector, ones()), graph.variable("beta", vector, zeros()),
          graph.variable("running_mean", vector, zeros()),
          graph.variable("running_variance", vector, ones())};
}

Value batch_norm_training(Value x, const BatchNormState& state, float momentum, float epsilon) {
  const std::vector<Value> results =
      x.graph->add(BatchNorm{epsilon}, std::vector<Value>{x, state.gamma, state.beta});
  const MovingAverageUpdate update{momentum};
  x.graph->add(update, std::vector<Value>{state.running_mean, results[1]});
  x.graph->add(update, std::vector<Value>{state.running_variance, results[2]});
  return results[0];
}

Value batch_norm_inference(Value x, const BatchNormState& state, float epsilon) {
  return one(BatchNormInference{epsilon},
             {x, state.gamma, state.beta, state.running_mean, state.running_variance});
}

}  // namespace headroom
