// A convolution of single pixels and the following norm, whose statistics are known.
#include <array>
#include <cmath>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/workspace_parts.h"

namespace headroom::cpu {

std::unique_ptr<Kernel> make_kernel(const ConvNormApply& op, const Request& request) {
  const int64_t c = request.outputs[0].shape.last(), rows = request.outputs[0].shape.elements() / c;
  const int64_t k = request.inputs[0].shape.last();
  const std::array<TensorSpec, 2> operands = {
      TensorSpec{DType::kF32, {rows, k}},
      TensorSpec{DType::kF32, op.filter_by_result ? Shape{c, k} : Shape{k, c}}};
  const std::array<TensorSpec, 1> results = {TensorSpec{DType::kF32, {rows, c}}};
  const std::shared_ptr<Kernel> product =
      make_kernel(MatMul{false, op.filter_by_result}, Request{operands, results, request.settings});
  const int64_t scale_bytes = round_up(c * static_cast<int64_t>(sizeof(float)), 256);
  return function_kernel(
      [=](const Call& call) {
        auto* const scale = call.scratch<float>();
        const std::array in = {TensorView{call.inputs[0].data, operands[0]},
                               TensorView{call.inputs[1].data, operands[1]}};
        const std::array out = {TensorView{call.outputs[0].data, results[0]}};
        product->run(in, out, call.scratch<std::byte>() + scale_bytes, call.stream);
        const float *gamma = call.in(2), *beta = call.in(3), *mean = call.in(4), *variance = call.in(5);
        for (int64_t i = 0; i < c; ++i) scale[i] = gamma[i] / std::sqrt(variance[i] + op.epsilon);
        const float* residual = call.inputs.size() > 6 ? call.in(6) : nullptr;
        float* y = call.out();
        for (int64_t row = 0; row < rows; ++row, y += c) {
#pragma omp simd
          for (int64_t i = 0; i < c; ++i) y[i] = (y[i] - mean[i]) * scale[i] + beta[i];
          if (residual != nullptr) {
#pragma omp simd
            for (int64_t i = 0; i < c; ++i) y[i] += residual[i];
            residual += c;
          }
          if (!op.relu) continue;
#pragma omp simd
          for (int64_t i = 0; i < c; ++i) y[i] = y[i] < 0 ? 0 : y[i];
        }
      },
      scale_bytes + product->workspace_bytes());
}

}  // namespace headroom::cpu
