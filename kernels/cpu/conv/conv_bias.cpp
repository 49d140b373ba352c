// A convolution with its bias, residual and relu.
#include <array>

#include "kernels/cpu/cpu_kernels.h"

namespace headroom::cpu {

std::unique_ptr<Kernel> make_kernel(const ConvBias& op, const Request& request) {
  const std::array<TensorSpec, 2> operands = {request.inputs[0], request.inputs[1]};
  const std::shared_ptr<Kernel> conv = make_kernel(op.conv, {operands, request.outputs, request.settings});
  const int64_t results = request.outputs[0].shape.last();
  return function_kernel(
      [=, relu = op.relu,
       rows = results == 0 ? 0 : request.outputs[0].shape.elements() / results](const Call& call) {
        conv->run(call.inputs.first(2), call.outputs, call.workspace, call.stream);
        const float* const bias = call.in(2);
        const float* residual = call.inputs.size() > 3 ? call.in(3) : nullptr;
        float* y = call.out();
        for (int64_t i = 0; i < rows; ++i, y += results) {
#pragma omp simd
          for (int64_t k = 0; k < results; ++k) y[k] += bias[k];
          if (residual != nullptr) {
#pragma omp simd
            for (int64_t k = 0; k < results; ++k) y[k] += residual[k];
            residual += results;
          }
          if (!relu) continue;
#pragma omp simd
          for (int64_t k = 0; k < results; ++k) y[k] = y[k] <= 0 ? 0 : y[k];
        }
      },
      conv->workspace_bytes());
}

}  // namespace headroom::cpu
