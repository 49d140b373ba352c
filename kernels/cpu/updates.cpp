// Optimizer steps and other changes of variables in place. A variable, its gradient and its state are
// different memory.
#include <cmath>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/function_kernel.h"

namespace headroom::cpu {

std::unique_ptr<Kernel> make_kernel(const SgdUpdate& op, Specs inputs, Specs) {
  const int64_t n = inputs[0].shape.elements();
  if (op.momentum == 0) {
    return function_kernel([n](const Call& call) {
      float* w = call.mutated(0);
      const float* g = call.in(1);
      const float rate = *call.in(2);
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) w[i] -= rate * g[i];
    });
  }
  return function_kernel([op, n](const Call& call) {
    float *w = call.mutated(0), *v = call.mutated(3);
    const float* g = call.in(1);
    const float rate = *call.in(2), momentum = op.momentum;
    // The step is g_part g + v_part v, with the new v.
    const float g_part = op.nesterov ? 1.0f : 0.0f, v_part = op.nesterov ? momentum : 1.0f;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const float velocity = momentum * v[i] + g[i];
      v[i] = velocity;
      w[i] -= rate * (g_part * g[i] + v_part * velocity);
    }
  });
}

std::unique_ptr<Kernel> make_kernel(const RmspropUpdate& op, Specs inputs, Specs) {
  return function_kernel([op, n = inputs[0].shape.elements()](const Call& call) {
    float *w = call.mutated(0), *s = call.mutated(3);
    const float* g = call.in(1);
    const float rate = *call.in(2), rho = op.rho, epsilon = op.epsilon;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const float square = rho * s[i] + (1 - rho) * g[i] * g[i];
      s[i] = square;
      w[i] -= rate * g[i] / (std::sqrt(square) + epsilon);
    }
  });
}

std::unique_ptr<Kernel> make_kernel(const AdamUpdate& op, Specs inputs, Specs) {
  return function_kernel([op, n = inputs[0].shape.elements()](const Call& call) {
    float *w = call.mutated(0), *m = call.mutated(4), *v = call.mutated(5);
    const float* g = call.in(1);
    const float rate = *call.in(2);
    const double updates = static_cast<double>(*call.in<int32_t>(3)) + 1;
    // In double: 1 - beta2^t at the first updates is a small difference of near-equal numbers.
    const auto m_factor = static_cast<float>(1 / (1 - std::pow(static_cast<double>(op.beta1), updates)));
    const auto v_factor = static_cast<float>(1 / (1 - std::pow(static_cast<double>(op.beta2), updates)));
    const float beta1 = op.beta1, beta2 = op.beta2, epsilon = op.epsilon;
    const float kept = 1 - rate * op.weight_decay, step = rate * m_factor;
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) {
      const float mean = beta1 * m[i] + (1 - beta1) * g[i];
      const float square = beta2 * v[i] + (1 - beta2) * g[i] * g[i];
      m[i] = mean;
      v[i] = square;
      w[i] = kept * w[i] - step * mean / (std::sqrt(square * v_factor) + epsilon);
    }
  });
}

std::unique_ptr<Kernel> make_kernel(const MovingAverageUpdate& op, Specs inputs, Specs) {
  return function_kernel([momentum = op.momentum, n = inputs[0].shape.elements()](const Call& call) {
    float* average = call.mutated(0);
    const float* value = call.in(1);
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) average[i] = momentum * average[i] + (1 - momentum) * value[i];
  });
}

std::unique_ptr<Kernel> make_kernel(const CounterUpdate&, Specs, Specs) {
  return function_kernel([](const Call& call) { *call.mutated<int32_t>(0) += 1; });
}

}  // namespace headroom::cpu
