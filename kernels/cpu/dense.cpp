// Dense layers: the kernels of their parts; bias, residual and relu follow the product row by row.
#include <algorithm>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/tiled_product.h"
#include "kernels/sequence_kernel.h"

namespace headroom::cpu {

std::unique_ptr<Kernel> make_kernel(const Dense& op, const Request& request) {
  const Shape& x = request.inputs[0].shape;
  const int64_t columns = request.outputs[0].shape.last();
  // A residual may give the result another shape.
  const TensorSpec of_product{request.outputs[0].dtype, x.with(x.rank() - 1, columns)};
  const std::shared_ptr<Kernel> product = make_kernel(
      MatMul{false, op.transpose_b}, {request.inputs.first(2), {&of_product, 1}, request.settings});
  const int64_t rows = columns == 0 ? 0 : request.outputs[0].shape.elements() / columns;
  const bool has_bias = request.inputs[2].shape.rank() == 1, adds = !has_bias || request.inputs.size() == 4;
  if (!adds && rows > kMostFewRows && columns > 1) {
    const int64_t depth = request.inputs[0].shape.last();
    const TiledProduct tiled{
        rows,    columns, depth, depth, 1, op.transpose_b ? 1 : columns, op.transpose_b ? depth : 1,
        columns, op.relu};
    return function_kernel(
        [multiply = TiledKernel(tiled, request.settings.threads)](const Call& call) {
          multiply(call.in(0), call.in(1), call.in(2), call.out(), call.scratch<float>());
        },
        tiled.workspace_bytes());
  }
  return function_kernel(
      [=](const Call& call) {
        product->run(call.inputs.first(2), call.outputs, call.workspace, {});
        const float* bias = has_bias ? call.in(2) : nullptr;
        const float* residual = adds ? call.in(call.inputs.size() - 1) : nullptr;
        for (int64_t row = 0; row < rows; ++row) {
          float* y = call.out() + row * columns;
          if (bias != nullptr) {
#pragma omp simd
            for (int64_t i = 0; i < columns; ++i) y[i] += bias[i];
          }
          if (residual != nullptr) {
            const float* added = residual + row * columns;
#pragma omp simd
            for (int64_t i = 0; i < columns; ++i) y[i] += added[i];
          }
          if (!op.relu) continue;
        // NaN is not below 0, and stays.
#pragma omp simd
          for (int64_t i = 0; i < columns; ++i) y[i] = y[i] < 0 ? 0 : y[i];
        }
      },
      product->workspace_bytes());
}

std::unique_ptr<Kernel> make_kernel(const DenseFilterGrad&, const Request& request) {
  const std::shared_ptr<Kernel> product =
      make_kernel(MatMul{true, false}, {request.inputs, request.outputs.first(1), request.settings});
  const std::shared_ptr<Kernel> sum = make_kernel(
      Reduce{ReduceKind::kSum, {0}}, {request.inputs.last(1), request.outputs.last(1), request.settings});
  return function_kernel(
      [=](const Call& call) {
        product->run(call.inputs, call.outputs.first(1), call.workspace, {});
        sum->run(call.inputs.last(1), call.outputs.last(1), call.workspace, {});
      },
      std::max(product->workspace_bytes(), sum->workspace_bytes()));
}

std::unique_ptr<Kernel> make_kernel(const ClassifierHead&, const Request& request) {
  return make_sequence_kernel(
      parts_of_classifier_head(), request.inputs, request.outputs,
      [](const Op& part, auto inputs, auto outputs) { return make_cpu_kernel(part, inputs, outputs); });
}

}  // namespace headroom::cpu
