// Sums, means and maxima over any axes, the gradient of a maximum, and the test for finite numbers.
#include <algorithm>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/half_kernel.h"
#include "kernels/cpu/reduced.h"
#include "kernels/loop_nest.h"

namespace headroom::cpu {
std::unique_ptr<Kernel> make_kernel(const Reduce& op, const Request& request) {
  const Shape& x = request.inputs[0].shape;
  const LoopNest<2> nest(x, {strides_of(x), reduced_strides(x, op.axes)});
  const Reduction reduction(op.kind, x.elements(), request.outputs[0].shape.elements());
  return function_kernel(
      [=](const Call& call) {
        Reduction running = reduction;
        running.begin(call.workspace, call.out());
        nest.for_each_row([&](const auto& at) {
          running.add(at[1], call.in(0) + at[0], nest.row_extent(), nest.row_strides()[1] == 0);
        });
        running.finish();
      },
      reduction.workspace_bytes());
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
