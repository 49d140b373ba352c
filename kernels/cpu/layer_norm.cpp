// Layer normalization over the last axis (Ba et al. 2016). Statistics are summed in double.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_kernels.h"

namespace headroom::cpu {

std::unique_ptr<Kernel> make_kernel(const LayerNorm& op, const Request& request) {
  const int64_t n = request.inputs[0].shape.last(), rows = request.inputs[0].shape.elements() / n;
  return function_kernel([=](const Call& call) {
    const float *gamma = call.in(1), *beta = call.in(2);
    for (int64_t row = 0; row < rows; ++row) {
      const float* x = call.in(0) + row * n;
      float* y = call.out() + row * n;
      double sum = 0, squares = 0;
#pragma omp simd reduction(+ : sum)
      for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(x[i]);
      const double mean = sum / static_cast<double>(n);
      // A second pass: the mean of squares less the squared mean would cancel.
#pragma omp simd reduction(+ : squares)
      for (int64_t i = 0; i < n; ++i) {
        const double centered = static_cast<double>(x[i]) - mean;
        squares += centered * centered;
      }
      const double variance = squares / static_cast<double>(n);
      const auto center = static_cast<float>(mean);
      const auto deviation = static_cast<float>(1 / std::sqrt(variance + static_cast<double>(op.epsilon)));
      call.out(1)[row] = center;
      call.out(2)[row] = deviation;
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) y[i] = (x[i] - center) * deviation * gamma[i] + beta[i];
    }
  });
}

// With x' = (x - mean) deviation and g = dy gamma:
//   dx = deviation (g - mean of g - x' mean of g x'),  dgamma = sum over rows of dy x',  dbeta = sum of dy
std::unique_ptr<Kernel> make_kernel(const LayerNormGrad&, const Request& request) {
  const int64_t n = request.inputs[1].shape.last(), rows = request.inputs[1].shape.elements() / n;
  return function_kernel(
      [=](const Call& call) {
        const float* gamma = call.in(2);
        double *dgamma = call.scratch<double>(), *dbeta = dgamma + n;
        std::fill_n(dgamma, 2 * n, 0.0);
        for (int64_t row = 0; row < rows; ++row) {
          const float *dy = call.in(0) + row * n, *x = call.in(1) + row * n;
          float* dx = call.out() + row * n;
          const float center = call.in(3)[row], deviation = call.in(4)[row];
          double sum = 0, product = 0;
#pragma omp simd reduction(+ : sum, product)
          for (int64_t i = 0; i < n; ++i) {
            const float normal = (x[i] - center) * deviation, g = dy[i] * gamma[i];
            sum += static_cast<double>(g);
            product += static_cast<double>(g * normal);
            dgamma[i] += static_cast<double>(dy[i] * normal);
            dbeta[i] += static_cast<double>(dy[i]);
          }
          const auto mean = static_cast<float>(sum / static_cast<double>(n));
          const auto slope = static_cast<float>(product / static_cast<double>(n));
#pragma omp simd
          for (int64_t i = 0; i < n; ++i) {
            const float normal = (x[i] - center) * deviation;
            dx[i] = deviation * (dy[i] * gamma[i] - mean - normal * slope);
          }
          if (call.inputs.size() < 6) continue;
          const float* added = call.in(5) + row * n;
#pragma omp simd
          for (int64_t i = 0; i < n; ++i) dx[i] += added[i];
        }
        for (int64_t i = 0; i < n; ++i) call.out(1)[i] = static_cast<float>(dgamma[i]);
        for (int64_t i = 0; i < n; ++i) call.out(2)[i] = static_cast<float>(dbeta[i]);
      },
      2 * n * static_cast<int64_t>(sizeof(double)));
}

}  // namespace headroom::cpu
