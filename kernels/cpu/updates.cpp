// Optimizer steps and other changes of variables in place. A variable, its gradient and its state are
// different memory.
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/half_kernel.h"

namespace headroom::cpu {
namespace {

// The common layout of all optimizers' operands, without their lists, which would be on the heap.
struct Layout {
  size_t shared, per_variable;
  float gradient_scale;
  bool scaled;
  Shard shard;
};

template <typename Update>
Layout layout_of(const Update& op) {
  const UpdateOperands operands = op.operands();
  return {operands.shared, operands.per_variable, op.gradient_scale, op.scaled, op.shard};
}

// Returns the factor of gradients.
float scale_of(const Layout& layout, const Call& call) {
  return layout.gradient_scale * (layout.scaled ? *call.in(layout.shared - 1) : 1);
}

// Calls f(first, g, w_at, state_at, n) for blocks of each variable's shard: the position of the variable's
// first operand, its gradient from there on, and where these elements are in the variable and in its states.
// A scale of 0 says that the step is left out.
template <typename F>
void for_each_block(const Layout& layout, const Call& call, F f) {
  if (layout.scaled && *call.in(layout.shared - 1) == 0) return;
  for (size_t first = layout.shared; first < call.inputs.size(); first += layout.per_variable) {
    const int64_t elements = call.inputs[first].elements(), begin = layout.shard.begin(elements);
    for_each_float_block(call.inputs[first + 1], begin, layout.shard.size(elements),
                         [&](const float* g, int64_t at, int64_t n) { f(first, g, begin + at, at, n); });
  }
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const SgdUpdate& op, const Request&) {
  if (op.momentum == 0) {
    return function_kernel([layout = layout_of(op)](const Call& call) {
      const float rate = *call.in(0) * scale_of(layout, call);
      for_each_block(layout, call, [&](size_t first, const float* g, int64_t w_at, int64_t, int64_t n) {
        float* w = call.mutated(first) + w_at;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) w[i] -= rate * g[i];
      });
    });
  }
  return function_kernel([op, layout = layout_of(op)](const Call& call) {
    const float rate = *call.in(0), scale = scale_of(layout, call);
    const float momentum = op.momentum;
    // The step is g_part g + v_part v, with the new v.
    const float g_part = op.nesterov ? scale : 0.0f, v_part = op.nesterov ? momentum : 1.0f;
    for_each_block(layout, call, [&](size_t first, const float* g, int64_t w_at, int64_t at, int64_t n) {
      float *w = call.mutated(first) + w_at, *v = call.mutated(first + 2) + at;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float velocity = momentum * v[i] + scale * g[i];
        v[i] = velocity;
        w[i] -= rate * (g_part * g[i] + v_part * velocity);
      }
    });
  });
}

std::unique_ptr<Kernel> make_kernel(const RmspropUpdate& op, const Request&) {
  return function_kernel([op, layout = layout_of(op)](const Call& call) {
    const float rate = *call.in(0), scale = scale_of(layout, call);
    const float rho = op.rho, epsilon = op.epsilon;
    for_each_block(layout, call, [&](size_t first, const float* g, int64_t w_at, int64_t at, int64_t n) {
      float *w = call.mutated(first) + w_at, *s = call.mutated(first + 2) + at;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float gradient = scale * g[i];
        const float square = rho * s[i] + (1 - rho) * gradient * gradient;
        s[i] = square;
        w[i] -= rate * gradient / (std::sqrt(square) + epsilon);
      }
    });
  });
}

std::unique_ptr<Kernel> make_kernel(const AdamUpdate& op, const Request&) {
  return function_kernel([op, layout = layout_of(op)](const Call& call) {
    const float rate = *call.in(0), scale = scale_of(layout, call);
    const double updates = static_cast<double>(*call.in<int32_t>(1)) + 1;
    // In double: 1 - beta2^t at the first updates is a small difference of near-equal numbers.
    const auto m_factor = static_cast<float>(1 / (1 - std::pow(static_cast<double>(op.beta1), updates)));
    const auto v_factor = static_cast<float>(1 / (1 - std::pow(static_cast<double>(op.beta2), updates)));
    const float beta1 = op.beta1, beta2 = op.beta2, epsilon = op.epsilon;
    const float kept = 1 - rate * op.weight_decay, step = rate * m_factor;
    for_each_block(layout, call, [&](size_t first, const float* g, int64_t w_at, int64_t at, int64_t n) {
      float *w = call.mutated(first) + w_at, *m = call.mutated(first + 2) + at,
            *v = call.mutated(first + 3) + at;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) {
        const float gradient = scale * g[i];
        const float mean = beta1 * m[i] + (1 - beta1) * gradient;
        const float square = beta2 * v[i] + (1 - beta2) * gradient * gradient;
        m[i] = mean;
        v[i] = square;
        w[i] = kept * w[i] - step * mean / (std::sqrt(square * v_factor) + epsilon);
      }
    });
  });
}

std::unique_ptr<Kernel> make_kernel(const MovingAverageUpdate& op, const Request&) {
  return function_kernel([momentum = op.momentum](const Call& call) {
    for (size_t pair = 0; pair < call.inputs.size(); pair += 2) {
      float* average = call.mutated(pair);
      const float* value = call.in(pair + 1);
      const int64_t n = call.inputs[pair].elements();
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) average[i] = momentum * average[i] + (1 - momentum) * value[i];
    }
  });
}

std::unique_ptr<Kernel> make_kernel(const LossScaleUpdate& op, const Request&) {
  return function_kernel([op](const Call& call) {
    float& scale = *call.mutated(1);
    int32_t &streak = *call.mutated<int32_t>(2), &updates = *call.mutated<int32_t>(3);
    if (*call.in<uint8_t>(0) == 0) {
      if (std::isnormal(scale * op.backoff)) scale *= op.backoff;
      streak = 0;
      return;
    }
    updates += 1;
    streak += 1;
    if (streak < op.interval) return;
    if (std::isfinite(scale * op.growth)) scale *= op.growth;
    streak = 0;
  });
}

std::unique_ptr<Kernel> make_kernel(const CounterUpdate&, const Request&) {
  return function_kernel([](const Call& call) { *call.mutated<int32_t>(0) += 1; });
}

std::unique_ptr<Kernel> make_kernel(const RowUpdate& op, const Request&) {
  return function_kernel([axis = op.axis](const Call& call) {
    for (size_t i = 1; i < call.inputs.size(); i += 2)
      replace_rows(call.inputs[i].spec, axis, call.inputs[0], call.in<std::byte>(i + 1),
                   call.mutated<std::byte>(i));
  });
}

}  // namespace headroom::cpu
