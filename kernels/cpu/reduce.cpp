// Sums, means and maxima over any axes, the gradient of a maximum, and the test for finite numbers.
#include <Eigen/Core>
#include <algorithm>
#include <limits>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/half_kernel.h"
#include "kernels/cpu/sums.h"
#include "kernels/loop_nest.h"

namespace headroom::cpu {
namespace {

// Returns the strides of the result of reducing x over `axes`, as a shape of equal rank.
Strides reduced_strides(const Shape& x, std::span<const int> axes) {
  Shape kept = x;
  for (int axis : axes) kept = kept.with(axis, 1);
  Strides strides = strides_of(kept);
  for (int axis : axes) strides[static_cast<size_t>(axis)] = 0;
  return strides;
}

std::unique_ptr<Kernel> make_sum(const LoopNest<2>& nest, int64_t results, double factor) {
  return function_kernel(
      [=](const Call& call) {
        const float* x = call.in(0);
        double* sums = call.scratch<double>();
        std::fill_n(sums, results, 0.0);
        const int64_t n = nest.row_extent();
        const bool into_one = nest.row_strides()[1] == 0;
        nest.for_each_row([&](const auto& at) {
          if (into_one) {
            sums[at[1]] += sum(x + at[0], n);
          } else {
            add_to(sums + at[1], x + at[0], n);
          }
        });
        float* y = call.out();
        for (int64_t i = 0; i < results; ++i) y[i] = static_cast<float>(sums[i] * factor);
      },
      results * static_cast<int64_t>(sizeof(double)));
}

// The larger of two; NaN if either is.
float larger(float a, float b) {
  const bool first = (a >= b) | (a != a);
  return first ? a : b;
}

std::unique_ptr<Kernel> make_max(const LoopNest<2>& nest, int64_t results) {
  return function_kernel([=](const Call& call) {
    const float* x = call.in(0);
    float* y = call.out();
    std::fill_n(y, results, -std::numeric_limits<float>::infinity());
    const int64_t n = nest.row_extent();
    const bool into_one = nest.row_strides()[1] == 0;
    nest.for_each_row([&](const auto& at) {
      const float* row = x + at[0];
      float* result = y + at[1];
      if (into_one) {
        const Eigen::Map<const Eigen::ArrayXf> values(row, n);
        *result = larger(*result, values.maxCoeff<Eigen::PropagateNaN>());
      } else {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) result[i] = larger(result[i], row[i]);
      }
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Reduce& op, const Request& request) {
  const Shape& x = request.inputs[0].shape;
  const LoopNest<2> nest(x, {strides_of(x), reduced_strides(x, op.axes)});
  const int64_t results = request.outputs[0].shape.elements();
  switch (op.kind) {
    case ReduceKind::kSum:
      return make_sum(nest, results, 1);
    case ReduceKind::kMean:
      return make_sum(nest, results, static_cast<double>(results) / static_cast<double>(x.elements()));
    case ReduceKind::kMax:
      return make_max(nest, results);
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_kernel(const ReduceMaxGrad& op, const Request& request) {
  const Shape& x_shape = request.inputs[0].shape;
  const LoopNest<2> nest(x_shape, {strides_of(x_shape), reduced_strides(x_shape, op.axes)});
  const int64_t results = request.inputs[1].shape.elements();
  return function_kernel(
      [=](const Call& call) {
        const float *x = call.in(0), *y = call.in(1), *dy = call.in(2);
        float* dx = call.out();
        const int64_t n = nest.row_extent(), step = nest.row_strides()[1];
        // A NaN is the maximum that it made.
        const auto ties = [](float value, float maximum) { return (value == maximum) | (value != value); };
        double* counts = call.scratch<double>();
        std::fill_n(counts, results, 0.0);
        nest.for_each_row([&](const auto& at) {
          for (int64_t i = 0; i < n; ++i)
            counts[at[1] + i * step] += ties(x[at[0] + i], y[at[1] + i * step]) ? 1 : 0;
        });
        nest.for_each_row([&](const auto& at) {
          for (int64_t i = 0; i < n; ++i) {
            const int64_t result = at[1] + i * step;
            const bool tied = ties(x[at[0] + i], y[result]);
            dx[at[0] + i] = tied ? static_cast<float>(dy[result] / counts[result]) : 0;
          }
        });
      },
      results * static_cast<int64_t>(sizeof(double)));
}

std::unique_ptr<Kernel> make_kernel(const AllFinite&, const Request&) {
  return function_kernel([](const Call& call) {
    bool all = true;
    for (const TensorView& view : call.inputs) {
      for_each_float_block(view, 0, view.elements(), [&](const float* x, int64_t, int64_t n) {
        // A product with 0 is NaN for numbers that are not finite, and a sum with NaN stays NaN.
        float sum = 0;
        for (int64_t i = 0; i < n; ++i) sum += 0 * x[i];
        all = all && sum == 0;
      });
    }
    *call.out<uint8_t>() = all ? 1 : 0;
  });
}

}  // namespace headroom::cpu
