// Optimizer steps and other changes of variables in place. A variable, its gradient and its state are
// different memory.
#include <cmath>
#include <cstring>

#include "kernels/cpu/cpu_kernels.h"

namespace headroom::cpu {
namespace {

// Calls f(first, begin, n) for each variable of an update: the position of its first operand, and the
// elements [begin, begin + n) of it that are this shard.
template <typename F>
void for_each_variable(const Call& call, size_t shared, size_t operands, const Shard& shard, F f) {
  for (size_t first = shared; first < call.inputs.size(); first += operands) {
    const int64_t elements = call.inputs[first].elements();
    f(first, shard.begin(elements), shard.size(elements));
  }
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const SgdUpdate& op, const Request&) {
  if (op.momentum == 0) {
    return function_kernel([op](const Call& call) {
      const float rate = *call.in(0) * op.gradient_scale;
      for_each_variable(call, 1, 2, op.shard, [&](size_t first, int64_t begin, int64_t n) {
        float* w = call.mutated(first) + begin;
        const float* g = call.in(first + 1) + begin;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) w[i] -= rate * g[i];
      });
    });
  }
  return function_kernel([op](const Call& call) {
    const float rate = *call.in(0), momentum = op.momentum, scale = op.gradient_scale;
    // The step is g_part g + v_part v, with the new v.
    const float g_part = op.nesterov ? scale : 0.0f, v_part = op.nesterov ? momentum : 1.0f;
    for_each_variable(call, 1, 3, op.shard, [&](size_t first, int64_t begin, int64_t n) {
      float *w = call.mutated(first) + begin, *v = call.mutated(first + 2);
      const float* g = call.in(first + 1) + begin;
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
  return function_kernel([op](const Call& call) {
    const float rate = *call.in(0), rho = op.rho, epsilon = op.epsilon, scale = op.gradient_scale;
    for_each_variable(call, 1, 3, op.shard, [&](size_t first, int64_t begin, int64_t n) {
      float *w = call.mutated(first) + begin, *s = call.mutated(first + 2);
      const float* g = call.in(first + 1) + begin;
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
  return function_kernel([op](const Call& call) {
    const float rate = *call.in(0);
    const double updates = static_cast<double>(*call.in<int32_t>(1)) + 1;
    // In double: 1 - beta2^t at the first updates is a small difference of near-equal numbers.
    const auto m_factor = static_cast<float>(1 / (1 - std::pow(static_cast<double>(op.beta1), updates)));
    const auto v_factor = static_cast<float>(1 / (1 - std::pow(static_cast<double>(op.beta2), updates)));
    const float beta1 = op.beta1, beta2 = op.beta2, epsilon = op.epsilon, scale = op.gradient_scale;
    const float kept = 1 - rate * op.weight_decay, step = rate * m_factor;
    for_each_variable(call, 2, 4, op.shard, [&](size_t first, int64_t begin, int64_t n) {
      float *w = call.mutated(first) + begin, *m = call.mutated(first + 2), *v = call.mutated(first + 3);
      const float* g = call.in(first + 1) + begin;
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

std::unique_ptr<Kernel> make_kernel(const MovingAverageUpdate& op, const Request& request) {
  return function_kernel([momentum = op.momentum, n = request.inputs[0].shape.elements()](const Call& call) {
    float* average = call.mutated(0);
    const float* value = call.in(1);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) average[i] = momentum * average[i] + (1 - momentum) * value[i];
  });
}

std::unique_ptr<Kernel> make_kernel(const CounterUpdate&, const Request&) {
  return function_kernel([](const Call& call) { *call.mutated<int32_t>(0) += 1; });
}

std::unique_ptr<Kernel> make_kernel(const RowUpdate&, const Request&) {
  return function_kernel([](const Call& call) {
    for (size_t i = 1; i < call.inputs.size(); i += 2) {
      const int64_t row = turn_of_step(*call.in<int32_t>(0), call.inputs[i].shape()[0]);
      const int64_t bytes = call.inputs[i + 1].spec.bytes();
      if (bytes == 0) continue;
      std::memcpy(call.mutated<std::byte>(i) + row * bytes, call.in<std::byte>(i + 1),
                  static_cast<size_t>(bytes));
    }
  });
}

}  // namespace headroom::cpu
