// Updates, which change variables in place and have no outputs, and the preceding sum over replicas. A prime
// marks changed operands.
#pragma once

#include "base/shard.h"
#include "ops/op.h"

namespace headroom {

// x.. of any shapes, f32 or bf16 -> their sums over all replicas. With `follows` the first operand is not
// summed: this op comes after the op that made it, so that all replicas reduce in the same order.
struct AllReduce {
  static constexpr OpTraits kTraits{.name = "all_reduce", .differentiable = false};
  int replicas = 1;
  bool follows = false;
  Outputs infer(const OpCheck& c) const;
  // Each sum may take over its own term.
  int in_place_input(size_t output) const { return static_cast<int>(output) + (follows ? 1 : 0); }
};

// The optimizers update any number of variables at once. `gradient_scale` multiplies g first: the inverse of
// the factor by which a loss was scaled. Only `shard` of each variable is updated; if that is not the whole,
// a state is (elements of the shard). With `scaled` a last shared operand f32 [] also multiplies g; if it is
// 0, the op changes nothing. A gradient may be stored in 16 bits.

// lr [], then w', g, velocity' (only if momentum != 0) of each variable:  v = momentum v + g;
// w -= lr (nesterov ? g + momentum v : v)
struct SgdUpdate {
  static constexpr OpTraits kTraits{.name = "sgd_update", .changes = Changes::kWeights};
  float momentum = 0;
  bool nesterov = false;
  float gradient_scale = 1;
  Shard shard = {};
  bool scaled = false;
  Outputs infer(const OpCheck& c) const;
  UpdateOperands operands() const {
    const size_t shared = scaled ? 2 : 1;
    return momentum != 0 ? UpdateOperands{shared, 3, {0, 2}} : UpdateOperands{shared, 2, {0}};
  }
};
// lr [], then w', g, s' of each variable:  s = rho s + (1 - rho) g^2;  w -= lr g / (sqrt(s) + epsilon)
// (Keras)
struct RmspropUpdate {
  static constexpr OpTraits kTraits{.name = "rmsprop_update", .changes = Changes::kWeights};
  float rho = 0.9f;
  float epsilon = 1e-7f;
  float gradient_scale = 1;
  Shard shard = {};
  bool scaled = false;
  Outputs infer(const OpCheck& c) const;
  UpdateOperands operands() const { return {scaled ? 2u : 1u, 3, {0, 2}}; }
};
// lr [], step i32 [] (0 at the first update), then w', g, m', v' of each variable. Adam (Kingma, Ba 2015)
// with bias correction; AdamW (Loshchilov, Hutter 2019) when weight_decay != 0: w -= lr weight_decay w first.
struct AdamUpdate {
  static constexpr OpTraits kTraits{.name = "adam_update", .changes = Changes::kWeights};
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0;
  float gradient_scale = 1;
  Shard shard = {};
  bool scaled = false;
  Outputs infer(const OpCheck& c) const;
  UpdateOperands operands() const { return {scaled ? 3u : 2u, 4, {0, 2, 3}}; }
};
// average', value, any number of times:  average = momentum average + (1 - momentum) value
struct MovingAverageUpdate {
  static constexpr OpTraits kTraits{.name = "moving_average_update", .changes = Changes::kAverages};
  float momentum = 0.99f;
  Outputs infer(const OpCheck& c) const;
  UpdateOperands operands() const { return {0, 2, {0}}; }
};
// finite u8 [], then scale f32 []', streak i32 []', updates i32 []':  a loss scale that adapts. Finite
// gradients count as an update, and `interval` of them in a row multiply the scale by `growth`; others by
// `backoff`, unless it would become infinite or 0.
struct LossScaleUpdate {
  static constexpr OpTraits kTraits{.name = "loss_scale_update", .changes = Changes::kRecords};
  float growth = 2;
  float backoff = 0.5f;
  int32_t interval = 2000;
  Outputs infer(const OpCheck& c) const;
  UpdateOperands operands() const { return {1, 3, {0, 1, 2}}; }
};
// counter i32 []':  counter += 1
struct CounterUpdate {
  static constexpr OpTraits kTraits{.name = "counter_update", .changes = Changes::kRecords};
  Outputs infer(const OpCheck& c) const;
  UpdateOperands operands() const { return {0, 1, {0}}; }
};
// step i32 [], then table' (R, ...), row (...), of any dtype, any number of times: table[step mod R] = row. A
// single read at the end then shows the result of each step of a run. Or N steps, i32 (N), and N rows for
// each table, (..,N,..) for (..,R,..) along the axis.
struct RowUpdate {
  static constexpr OpTraits kTraits{.name = "row_update", .changes = Changes::kRecords};
  int axis = 0;
  Outputs infer(const OpCheck& c) const;
  UpdateOperands operands() const { return {1, 2, {0}}; }
};
// w'.. of any f32 shapes: sets Shard{r, replicas} of each to its content on replica r, the only one that has
// updated it.
struct AllGatherUpdate {
  static constexpr OpTraits kTraits{.name = "all_gather_update", .changes = Changes::kReplicas};
  int replicas = 1;
  Outputs infer(const OpCheck& c) const;
  UpdateOperands operands() const { return {0, 1, {0}}; }
};

}  // namespace headroom
