// A convolution whose filter has a row for each result, with what is added to it.
#include "kernels/cpu/cpu_kernels.h"

namespace headroom::cpu {

std::unique_ptr<Kernel> make_kernel(const ConvBias& op, const Request& request) {
  const Shape& given = request.inputs[1].shape;
  const TensorSpec filter{DType::kF32, conv_filter_shape(given)};
  const TensorSpec operands[] = {request.inputs[0], filter};
  const std::shared_ptr<Kernel> conv = make_kernel(op.conv, {operands, request.outputs, request.settings});
  const int64_t results = given[0], taps = given[1] * given[2] * given[3];
  const int64_t filter_bytes = round_up(filter.bytes(), 256);
  return function_kernel(
      [=, relu = op.relu,
       rows = results == 0 ? 0 : request.outputs[0].shape.elements() / results](const Call& call) {
        float* const turned = call.scratch<float>();
        for (int64_t k = 0; k < results; ++k) {
          const float* const row = call.in(1) + k * taps;
          for (int64_t tap = 0; tap < taps; ++tap) turned[tap * results + k] = row[tap];
        }
        const TensorView views[] = {call.inputs[0], {turned, filter}};
        conv->run(views, call.outputs, call.scratch<std::byte>() + filter_bytes, call.stream);
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
      filter_bytes + conv->workspace_bytes());
}

}  // namespace headroom::cpu
