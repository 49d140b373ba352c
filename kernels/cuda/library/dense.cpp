// Dense layers: a product with what surrounds it as its epilogue.
#include "kernels/cuda/library/matmul_product.h"
#include "runtime/device/cuda/check.h"

namespace headroom::cuda {

std::unique_ptr<Kernel> make_kernel(const Dense& op, const Request& request) {
  const Shape &x = request.inputs[0].shape, &w = request.inputs[1].shape;
  if (request.outputs[0].shape.elements() == 0) return function_kernel([](const Call&) {});
  const auto product =
      std::make_shared<const Product>(request, MatMulShape{x[0], w[1], x[1], MatMul{}}, Epilogue::kBias);
  // Not cuBLASLt's epilogue with relu: some of its algorithms (13.1) make 0 of NaN.
  std::shared_ptr<Kernel> relu;
  if (op.relu) {
    const Request in_place{
        {request.outputs, request.outputs, request.settings}, request.device, request.owner};
    relu = make_kernel(Unary{UnaryKind::kRelu}, in_place);
  }
  return function_kernel(
      [product, relu](const Call& call) {
        // The epilogue reads the bias only.
        auto* bias = const_cast<float*>(call.in(2));
        product->run(call.in(0), call.in(1), call.out(), bias, call.workspace, call.stream);
        if (relu) relu->run(call.outputs, call.outputs, nullptr, Stream{call.stream});
      },
      product->workspace_bytes());
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
      request, MatMulShape{x[1], dy[1], x[0], MatMul{.transpose_a = true}}, Epilogue::kSumB);
  return function_kernel(
      [product](const Call& call) {
        product->run(call.in(0), call.in(1), call.out(0), call.out(1), call.workspace, call.stream);
      },
      product->workspace_bytes());
}

}  // namespace headroom::cuda
