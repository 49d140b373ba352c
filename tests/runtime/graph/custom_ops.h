// Ops that a program describes itself, for tests of the graph, its gradients and its plans.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "runtime/graph/functions.h"
#include "runtime/graph/gradients.h"

namespace headroom::test {

using Gradients = std::vector<std::optional<Value>>;

// dy0 (R,C), dy1 (R), x (R,C), k i32 (R) -> dx (R,C) of the op below
inline const CustomOp kPowersGrad = {
    .name = "custom_grad",
    .infer = [](const OpCheck& c) { return Outputs{c.input(2)}; },
    .cpu =
        [](const KernelCall& call) {
          const int64_t rows = call.outputs[0].shape()[0], columns = call.outputs[0].shape()[1];
          for (int64_t i = 0; i < rows * columns; ++i) {
            const float x = call.in(2)[i], k = static_cast<float>(call.in<int32_t>(3)[i / columns]);
            call.out()[i] = 2 * x * k * call.in(0)[i] + 3 * x * x * call.in(1)[i / columns];
          }
        },
};

// x (R,C), k i32 (R) -> k[r] x^2 (R,C), the sum of x^3 over each row (R)
inline const CustomOp kPowers = {
    .name = "custom",
    .infer =
        [](const OpCheck& c) {
          c.count(2);
          c.dtype(0, DType::kF32);
          c.rank(0, 2);
          c.dtype(1, DType::kI32);
          c.same_shape(1, {c.shape(0)[0]});
          return Outputs{c.input(0), f32(c.shape(1))};
        },
    .cpu =
        [](const KernelCall& call) {
          const int64_t rows = call.inputs[0].shape()[0], columns = call.inputs[0].shape()[1];
          std::fill_n(call.out(1), rows, 0.0f);
          for (int64_t i = 0; i < rows * columns; ++i) {
            const float x = call.in(0)[i];
            call.out()[i] = static_cast<float>(call.in<int32_t>(1)[i / columns]) * x * x;
            call.out(1)[i / columns] += x * x * x;
          }
        },
    .gradient =
        [](const GradientContext& c) {
          const Value dx = custom(kPowersGrad, {*c.grad_out[0], *c.grad_out[1], c.in[0], c.in[1]})[0];
          return Gradients{dx, std::nullopt};
        },
};

// dy, y -> dy where y > 0: the gradient of relu, as 0 or 1 in the workspace first
inline const CustomOp kCustomReluGrad = {
    .name = "custom_relu_grad",
    .infer =
        [](const OpCheck& c) {
          c.floats(2);
          return Outputs{c.input(0)};
        },
    .cpu =
        [](const KernelCall& call) {
          const int64_t n = call.outputs[0].elements();
          float* const slope = call.scratch<float>();
          for (int64_t i = 0; i < n; ++i) slope[i] = call.in(1)[i] > 0 ? 1.0f : 0.0f;
          for (int64_t i = 0; i < n; ++i) call.out()[i] = slope[i] * call.in(0)[i];
        },
    .workspace_bytes = [](std::span<const TensorSpec> inputs) { return inputs[0].bytes(); },
    .splits_batch = true,
};

// x -> max(x, 0)
inline const CustomOp kCustomRelu = {
    .name = "custom_relu",
    .infer =
        [](const OpCheck& c) {
          c.floats(1);
          return Outputs{c.input(0)};
        },
    .cpu =
        [](const KernelCall& call) {
          for (int64_t i = 0; i < call.outputs[0].elements(); ++i)
            call.out()[i] = std::max(call.in(0)[i], 0.0f);
        },
    .gradient =
        [](const GradientContext& c) {
          return Gradients{custom(kCustomReluGrad, {c.dy(), c.out[0]})[0]};
        },
    .splits_batch = true,
};

}  // namespace headroom::test
