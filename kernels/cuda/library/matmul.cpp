// Matrix products over broadcast batches.
#include <algorithm>

#include "base/errors.h"
#include "device/cuda/check.h"
#include "kernels/cuda/library/matmul_product.h"
#include "kernels/loop_nest.h"

namespace headroom::cuda {
std::unique_ptr<Kernel> make_kernel(const MatMul& op, const Request& request) {
  const Shape &a = request.inputs[0].shape, &b = request.inputs[1].shape, &y = request.outputs[0].shape;
  if (y.elements() == 0) return function_kernel([](const Call&) {});
  MatMulShape shape{y[y.rank() - 2], y.last(), op.transpose_a ? a[a.rank() - 2] : a.last(), op};
  if (shape.k == 0) {
    return function_kernel([bytes = request.outputs[0].bytes()](const Call& call) {
      HR_CHECK(cudaMemsetAsync(call.outputs[0].data, 0, static_cast<size_t>(bytes), call.stream));
    });
  }
  // One b for all makes the batch more rows of a.
  const bool one_product = b.rank() == 2 && !op.transpose_a;
  const Shape batch = one_product ? Shape() : batch_of(y);
  if (one_product) shape.m = y.elements() / shape.n;
  std::array<Strides, 3> strides{};
  if (!one_product) strides = {batch_strides(a, batch), batch_strides(b, batch), batch_strides(y, batch)};
  // The innermost axis is one call's batch, the others are calls.
  const LoopNest<3> nest(batch, strides);
  shape.batch = nest.row_extent();
  shape.stride_a = nest.row_strides()[0];
  shape.stride_b = nest.row_strides()[1];
  shape.stride_y = nest.row_strides()[2];
  shape.read = request.inputs[0].dtype;
  shape.computed = request.outputs[0].dtype;
  if (request.inputs[1].dtype != shape.read)
    throw InvalidArgument("a matmul of operands stored in two types has no CUDA kernel");
  const int64_t lanes = 16 / std::min(element_bytes(shape.read), element_bytes(shape.computed));
  shape.aligned =
      shape.batch == batch.elements() && (shape.stride_a | shape.stride_b | shape.stride_y) % lanes == 0;
  const auto product = std::make_shared<const Product>(request, shape);
  return function_kernel(
      [=](const Call& call) {
        nest.for_each_row([&](const auto& at) {
          const auto operand = [&](const TensorView& view, int64_t offset) {
            return static_cast<std::byte*>(view.data) + offset * element_bytes(view.spec.dtype);
          };
          product->run(operand(call.inputs[0], at[0]), operand(call.inputs[1], at[1]),
                       operand(call.outputs[0], at[2]), nullptr, nullptr, call.workspace, call.stream);
        });
      },
      product->workspace_bytes(), product->early_inputs());
}

}  // namespace headroom::cuda
