// The pleasant way to write a graph: one function per op, each appends a node and returns its result. Knows
// no gradient and no device. All throw InvalidArgument as Graph::add does. Negative axes count from the end.
#pragma once

#include <optional>
#include <vector>

#include "runtime/graph.h"

namespace headroom {

Value matmul(Value a, Value b, MatMul options = {});       // (..,M,K) x (..,K,N) -> (..,M,N)
Value conv2d(Value x, Value filter, Conv2d options = {});  // (N,H,W,C) * (KH,KW,C/g,K) -> (N,OH,OW,K)
Value max_pool(Value x, Pool2d options = {});              // (N,H,W,C) -> (N,OH,OW,C)
Value avg_pool(Value x, Pool2d options = {});
Value bias(Value x, Value b);  // (..,C) + (C)
Value relu(Value x);
Value sigmoid(Value x);
Value tanh(Value x);
Value gelu(Value x);
Value scale(Value x, float factor);
Value add(Value a, Value b);  // NumPy broadcasting, likewise the next three
Value sub(Value a, Value b);
Value mul(Value a, Value b);
Value div(Value a, Value b);
Value sum(Value x, std::vector<int> axes, bool keep_axes = false);
Value mean(Value x, std::vector<int> axes, bool keep_axes = false);
Value max(Value x, std::vector<int> axes, bool keep_axes = false);
Value sum(Value x);  // over all axes -> []
Value mean(Value x);
Value max(Value x);
Value reshape(Value x, const Shape& shape);
Value flatten(Value x);  // (N,...) -> (N, the rest)
Value transpose(Value x, std::vector<int> axes);
Value transpose(Value x);  // axes reversed
Value concat(std::vector<Value> values, int axis);
Value slice(Value x, std::vector<int64_t> begin, const Shape& extents);
Value gather(Value table, Value indices);  // (V,..), i32 (I..) -> (I..,..)
// The batch of a step out of a table (N,..), or out of its rows `order` i32 (M) -> (batch,..); see TakeBatch.
Value take_batch(Value table, Value step, TakeBatch options);
Value take_batch(Value table, Value step, Value order, TakeBatch options);
Value cast(Value x, DType to);
Value broadcast_to(Value x, const Shape& shape);
Value fill(Graph& graph, float value, const Shape& shape);
Value dropout(Value x, float rate, uint64_t seed, Value step);  // step: i32 [] counter, so that steps differ
Value softmax(Value x);                                         // over the last axis
Value cross_entropy(Value logits, Value labels);                // (N,C), i32 (N) -> (N)
Value argmax(Value x, int axis = -1);                           // -> i32
Value accuracy(Value logits, Value labels);                     // (N,C), i32 (N) -> []

// What a batch normalisation keeps between steps.
struct BatchNormState {
  Value gamma, beta;                     // (C), trained
  Value running_mean, running_variance;  // (C), moving averages for inference
};
// Makes the four variables under the present name scope.
BatchNormState batch_norm_state(Graph& graph, int64_t channels);
// Normalises with the batch's own statistics and appends the update of the moving averages. momentum and
// epsilon default to Keras' values.
Value batch_norm_training(Value x, const BatchNormState& state, float momentum = 0.99f,
                          float epsilon = 1e-3f);
Value batch_norm_inference(Value x, const BatchNormState& state, float epsilon = 1e-3f);

}  // namespace headroom
