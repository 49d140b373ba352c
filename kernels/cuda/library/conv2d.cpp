// Convolution and its gradients.
#include "base/errors.h"
#include "device/cuda/check.h"
#include "kernels/cuda/library/dnn_convolution.h"

namespace headroom::cuda {
namespace {

std::unique_ptr<Kernel> make(const Request& request, ConvDirection direction, const Conv2d& conv,
                             const Shape& image, const Shape& filter, const Shape& result) {
  const TensorSpec& computed = request.outputs[0];
  if (computed.shape.elements() == 0) return function_kernel([](const Call&) {});
  if (request.inputs[0].shape.elements() == 0 || request.inputs[1].shape.elements() == 0) {
    return function_kernel([bytes = computed.bytes()](const Call& call) {  // sums of nothing
      HR_CHECK(cudaMemsetAsync(call.outputs[0].data, 0, static_cast<size_t>(bytes), call.stream));
    });
  }
  const DnnConvolution::Types types{request.inputs[0].dtype, computed.dtype};
  if (request.inputs[1].dtype != types.read)
    throw InvalidArgument("a convolution of operands stored in two types has no CUDA kernel");
  const auto prepared = std::make_shared<const DnnConvolution>(
      request, direction, conv, image, conv_filter_shape(conv, filter), result, types);
  return function_kernel(
      [prepared](const Call& call) {
        prepared->run(call.inputs[0].data, call.inputs[1].data, call.outputs[0].data, call.workspace,
                      call.stream);
      },
      prepared->workspace_bytes());
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Conv2d& op, const Request& request) {
  return make(request, ConvDirection::kForward, op, request.inputs[0].shape, request.inputs[1].shape,
              request.outputs[0].shape);
}

std::unique_ptr<Kernel> make_kernel(const Conv2dInputGrad& op, const Request& request) {
  return make(request, ConvDirection::kInputGrad, op.conv, op.input_shape, request.inputs[1].shape,
              request.inputs[0].shape);
}

std::unique_ptr<Kernel> make_kernel(const Conv2dFilterGrad& op, const Request& request) {
  return make(request, ConvDirection::kFilterGrad, op.conv, request.inputs[0].shape, op.filter_shape,
              request.inputs[1].shape);
}

}  // namespace headroom::cuda
