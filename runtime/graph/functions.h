// Functions with which programs write graphs: one per op appends a node and returns its result. Knows no
// gradient and no device. All throw InvalidArgument as Graph::add does. Negative axes count from the end.
// `place` is the caller's line of code, which reports show as the origin of a tensor.
#pragma once

#include <vector>

#include "runtime/graph/graph.h"

namespace headroom {

Value matmul(Value a, Value b, MatMul options = {},
             CodePlace place = CodePlace::here());  // (..,M,K) x (..,K,N) -> (..,M,N)
Value conv2d(Value x, Value filter, Conv2d options = {},
             CodePlace place = CodePlace::here());  // (N,H,W,C) * (KH,KW,C/g,K) -> (N,OH,OW,K)
Value max_pool(Value x, Pool2d options = {},
               CodePlace place = CodePlace::here());  // (N,H,W,C) -> (N,OH,OW,C)
Value avg_pool(Value x, Pool2d options = {}, CodePlace place = CodePlace::here());
Value bias(Value x, Value b, CodePlace place = CodePlace::here());  // (..,C) + (C)
Value relu(Value x, CodePlace place = CodePlace::here());
Value sigmoid(Value x, CodePlace place = CodePlace::here());
Value tanh(Value x, CodePlace place = CodePlace::here());
Value gelu(Value x, CodePlace place = CodePlace::here());
Value unary(UnaryKind kind, Value x, float alpha = 0, float beta = 0, CodePlace place = CodePlace::here());
Value scale(Value x, float factor, CodePlace place = CodePlace::here());
Value add(Value a, Value b,
          CodePlace place = CodePlace::here());  // NumPy broadcasting, likewise the next three
Value sub(Value a, Value b, CodePlace place = CodePlace::here());
Value mul(Value a, Value b, CodePlace place = CodePlace::here());
Value div(Value a, Value b, CodePlace place = CodePlace::here());
Value binary(BinaryKind kind, Value a, Value b, CodePlace place = CodePlace::here());
Value comparison(CompareKind kind, Value a, Value b, CodePlace place = CodePlace::here());
Value where(Value condition, Value a, Value b, CodePlace place = CodePlace::here());
Value cumulative_sum(Value x, CumulativeSum options, CodePlace place = CodePlace::here());
Value sum(Value x, std::vector<int> axes, bool keep_axes = false, CodePlace place = CodePlace::here());
Value mean(Value x, std::vector<int> axes, bool keep_axes = false, CodePlace place = CodePlace::here());
Value max(Value x, std::vector<int> axes, bool keep_axes = false, CodePlace place = CodePlace::here());
Value sum(Value x, CodePlace place = CodePlace::here());  // over all axes -> []
Value mean(Value x, CodePlace place = CodePlace::here());
Value max(Value x, CodePlace place = CodePlace::here());
Value reshape(Value x, const Shape& shape, CodePlace place = CodePlace::here());
Value flatten(Value x, CodePlace place = CodePlace::here());  // (N,...) -> (N, the rest)
// Copies the value to another device; its gradient is copied back.
Value to_device(Value x, std::string_view device, CodePlace place = CodePlace::here());
Value transpose(Value x, std::vector<int> axes, CodePlace place = CodePlace::here());
Value transpose(Value x, CodePlace place = CodePlace::here());  // axes reversed
Value concat(std::vector<Value> values, int axis, CodePlace place = CodePlace::here());
Value slice(Value x, std::vector<int64_t> begin, const Shape& extents, CodePlace place = CodePlace::here());
Value slice(Value x, Slice options, CodePlace place = CodePlace::here());
Value gather(Value table, Value indices,
             CodePlace place = CodePlace::here());  // (V,..), i32 (I..) -> (I..,..)
// The batch of a step out of a table (N,..), or out of its rows `order` i32 (M) -> (batch,..); see TakeBatch.
Value take_batch(Value table, Value step, TakeBatch options, CodePlace place = CodePlace::here());
Value take_batch(Value table, Value step, Value order, TakeBatch options,
                 CodePlace place = CodePlace::here());
Value cast(Value x, DType to, CodePlace place = CodePlace::here());
Value broadcast_to(Value x, const Shape& shape, CodePlace place = CodePlace::here());
Value fill(Graph& graph, float value, const Shape& shape, CodePlace place = CodePlace::here());
// Numbers of [0, 1), others at each step: i32 [].
Value random_uniform(const Shape& shape, uint64_t seed, Value step, CodePlace place = CodePlace::here());
Value dropout(Value x, float rate, uint64_t seed, Value step,
              CodePlace place = CodePlace::here());           // step: i32 [] counter, so that steps differ
Value softmax(Value x, CodePlace place = CodePlace::here());  // over the last axis
Value layer_norm(Value x, Value gamma, Value beta, float epsilon = 1e-5f,
                 CodePlace place = CodePlace::here());  // over the last axis
Value cross_entropy(Value logits, Value labels,
                    CodePlace place = CodePlace::here());                         // (N,C), i32 (N) -> (N)
Value argmax(Value x, int axis = -1, CodePlace place = CodePlace::here());        // -> i32
Value accuracy(Value logits, Value labels, CodePlace place = CodePlace::here());  // (N,C), i32 (N) -> []
// The results of an op that the program describes itself, of one operand or more.
std::vector<Value> custom(const CustomOp& op, const std::vector<Value>& inputs,
                          CodePlace place = CodePlace::here());
std::vector<Value> custom(CustomOp&& op, const std::vector<Value>& inputs,
                          CodePlace place = CodePlace::here()) = delete;  // it must outlive the graph

// The values that a batch normalization keeps between steps.
struct BatchNormState {
  Value gamma, beta;                     // (C), trained
  Value running_mean, running_variance;  // (C), moving averages for inference
};
// Makes the four variables in the current name scope.
BatchNormState batch_norm_state(Graph& graph, int64_t channels, CodePlace place = CodePlace::here());
// Normalizes with the batch's own statistics and appends the update of the moving averages. momentum and
// epsilon default to Keras' values.
Value batch_norm_training(Value x, const BatchNormState& state, float momentum = 0.99f, float epsilon = 1e-3f,
                          CodePlace place = CodePlace::here());
Value batch_norm_inference(Value x, const BatchNormState& state, float epsilon = 1e-3f,
                           CodePlace place = CodePlace::here());

}  // namespace headroom
