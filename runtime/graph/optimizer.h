// Optimizers append the updates of a training step to the graph. Knows no device and no plan.
#pragma once

#include <span>
#include <string_view>
#include <variant>

#include "runtime/graph/graph.h"

namespace headroom {

struct Sgd {
  float momentum = 0;
  bool nesterov = false;
};
struct Rmsprop {  // defaults of Keras
  float rho = 0.9f;
  float epsilon = 1e-7f;
};
struct Adam {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
};
struct AdamW {
  float beta1 = 0.9f;
  float beta2 = 0.999f;
  float epsilon = 1e-8f;
  float weight_decay = 0.01f;
};
using Optimizer = std::variant<Sgd, Rmsprop, Adam, AdamW>;

// "sgd", "momentum" (0.9), "rmsprop", "adam" or "adamw" with their defaults. Throws InvalidArgument listing
// them.
Optimizer parse_optimizer(std::string_view name);
std::span<const std::string_view> optimizer_names();

// A loss scale for f16 that adapts: half after gradients that are not all finite, whose step is left out, and
// twice as large after 2,000 steps in a row that are.
struct AdaptiveScale {
  Value scale;    // f32 [], that the loss is multiplied by
  Value streak;   // i32 [], steps since it changed
  Value updates;  // i32 [], steps that were not left out
};
// Makes the three variables in the current name scope; the scale starts at 65,536.
AdaptiveScale adaptive_scale(Graph& graph, CodePlace place = CodePlace::here());

// Appends one update of all variables on a device, for each device, with state variables named
// "<variable>/momentum" and so on, and the increment of `step`. learning_rate is an f32 [], step an i32
// [] variable that counts finished steps from 0. The gradients are those of the loss times loss_scale.
// With a shard, each of `shard.of` replicas keeps the states of its own shard of each variable, updates
// that shard and receives the others (ZeRO stage 1: Rajbhandari et al. 2020).
void add_updates(const Optimizer& optimizer, std::span<const Value> variables,
                 std::span<const Value> gradients, Value learning_rate, Value step, float loss_scale = 1,
                 const Shard& shard = {}, CodePlace place = CodePlace::here());
// Adds updates for gradients of the loss times an adaptive scale, and the update of the scale.
void add_scaled_updates(const Optimizer& optimizer, std::span<const Value> variables,
                        std::span<const Value> gradients, Value learning_rate, Value step,
                        const AdaptiveScale& scale, CodePlace place = CodePlace::here());

}  // namespace headroom
