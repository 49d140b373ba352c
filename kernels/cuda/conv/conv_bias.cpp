// A convolution with its bias, residual and relu.
#include "base/errors.h"
#include "device/cuda/check.h"
#include "kernels/cuda/conv/conv_epilogue.h"
#include "kernels/cuda/library/dnn_convolution.h"

namespace headroom::cuda {

std::unique_ptr<Kernel> make_kernel(const ConvBias& op, const Request& request) {
  const TensorSpec& y = request.outputs[0];
  if (y.shape.elements() == 0) return function_kernel([](const Call&) {});
  const DnnConvolution::Types types{request.inputs[0].dtype, y.dtype};
  if (request.inputs[1].dtype != types.read)
    throw InvalidArgument("a convolution of operands stored in two types has no CUDA kernel");
  std::shared_ptr<const DnnConvolution> conv;
  if (request.inputs[1].shape.elements() > 0) {
    conv = std::make_shared<const DnnConvolution>(
        request, ConvDirection::kForward, op.conv, request.inputs[0].shape,
        conv_filter_shape(op.conv, request.inputs[1].shape), y.shape, types);
  }
  return function_kernel(
      [conv, relu = op.relu, &device = request.device](const Call& call) {
        const TensorView& result = call.outputs[0];
        if (conv) {
          conv->run(call.inputs[0].data, call.inputs[1].data, result.data, call.workspace, call.stream);
        } else {  // sums of nothing
          HR_CHECK(cudaMemsetAsync(result.data, 0, static_cast<size_t>(result.spec.bytes()), call.stream));
        }
        add_conv_bias(device, call.stream, result, call.inputs[2],
                      call.inputs.size() > 3 ? &call.inputs[3] : nullptr, relu);
      },
      conv ? conv->workspace_bytes() : 0);
}

}  // namespace headroom::cuda
