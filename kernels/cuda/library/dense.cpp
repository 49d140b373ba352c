// Dense layers: a product whose epilogue adds bias, residual and relu.
#include "base/errors.h"
#include "device/cuda/check.h"
#include "kernels/cuda/library/matmul_product.h"

namespace headroom::cuda {
namespace {

// Sets the types of the request's operands; cuBLASLt needs the bias in the type of the result.
MatMulShape shape_of(const Request& request, MatMulShape shape, DType bias) {
  shape.read = request.inputs[0].dtype;
  shape.computed = request.outputs[0].dtype;
  if (request.inputs[1].dtype != shape.read || bias != shape.computed)
    throw InvalidArgument("a dense layer of operands stored in two types has no CUDA kernel");
  return shape;
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Dense& op, const Request& request) {
  const Shape &x = request.inputs[0].shape, &y = request.outputs[0].shape;
  if (y.elements() == 0) return function_kernel([](const Call&) {});
  const MatMulShape shape{y.elements() / y.last(), y.last(), x.last(), MatMul{false, op.transpose_b}};
  const bool has_bias = request.inputs[2].shape.rank() == 1, adds = !has_bias || request.inputs.size() == 4;
  if (adds && request.inputs.back().dtype != request.outputs[0].dtype)
    throw InvalidArgument("a dense layer that adds a residual of another type has no CUDA kernel");
  const auto product =
      std::make_shared<const Product>(request, shape_of(request, shape, request.inputs[2].dtype),
                                      !has_bias ? Epilogue::kSum
                                      : adds    ? Epilogue::kBiasSum
                                                : Epilogue::kBias);
  // Not cuBLASLt's epilogue with relu: some of its algorithms (13.1) make 0 of NaN.
  std::shared_ptr<Kernel> relu;
  if (op.relu) {
    const Request in_place{
        {request.outputs, request.outputs, request.settings}, request.device, request.owner};
    relu = make_kernel(Unary{UnaryKind::kRelu}, in_place);
  }
  return function_kernel(
      [product, relu, has_bias, adds](const Call& call) {
        product->run(call.inputs[0].data, call.inputs[1].data, call.outputs[0].data,
                     has_bias ? call.inputs[2].data : nullptr, adds ? call.inputs.back().data : nullptr,
                     call.workspace, call.stream);
        if (relu) relu->run(call.outputs, call.outputs, nullptr, Stream{call.stream});
      },
      product->workspace_bytes(), product->early_inputs());
}

std::unique_ptr<Kernel> make_kernel(const DenseFilterGrad&, const Request& request) {
  const Shape &x = request.inputs[0].shape, &dy = request.inputs[1].shape;
  if (x[0] == 0 || dy[1] == 0) {
    return function_kernel([](const Call& call) {
      for (const TensorView& output : call.outputs)
        HR_CHECK(cudaMemsetAsync(output.data, 0, static_cast<size_t>(output.spec.bytes()), call.stream));
    });
  }
  const auto product = std::make_shared<const Product>(
      request, shape_of(request, {x[1], dy[1], x[0], MatMul{.transpose_a = true}}, request.outputs[1].dtype),
      Epilogue::kSumB);
  return function_kernel(
      [product](const Call& call) {
        product->run(call.inputs[0].data, call.inputs[1].data, call.outputs[0].data, call.outputs[1].data,
                     nullptr, call.workspace, call.stream);
      },
      product->workspace_bytes());
}

}  // namespace headroom::cuda
