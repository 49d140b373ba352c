#include "kernels/cuda/conv/conv_block.h"

#include <algorithm>

#include "device/cuda/check.h"

namespace headroom::cuda {

GpuShare share_of(const Request& request) {
  return {request.device.multiprocessors(), shared_limit_bytes(request.device), request.replicas};
}

unsigned blocks_for(int64_t tiles, int64_t slices, int64_t shared_bytes, int multiprocessors,
                    const CudaGpu& device) {
  const int64_t resident =
      std::clamp<int64_t>(shared_limit_bytes(device) / std::max<int64_t>(shared_bytes, 1), 1, 4);
  const int64_t capacity = std::max<int64_t>(1, resident * multiprocessors / slices);
  const int64_t tiles_of_block = (tiles + capacity - 1) / capacity;
  return static_cast<unsigned>((tiles + tiles_of_block - 1) / tiles_of_block);
}

namespace {

// Returns the first kernel of our own that one of the makers gives for these shapes; null if there is none,
// or if only the libraries are requested.
template <typename... Makers>
std::unique_ptr<Kernel> first_of(const ConvBlock& block, const Shape& x, const Shape& filter,
                                 const Request& request, Makers... makers) {
  if (request.settings.library_only) return nullptr;
  const std::optional<ConvGeometry> geometry = geometry_of(block, x, filter);
  std::unique_ptr<Kernel> kernel;
  if (geometry) ((kernel = makers(*geometry, request)) || ...);
  return kernel;
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const ConvBlock& op, const Request& request) {
  auto kernel = first_of(op, request.inputs[0].shape, request.inputs[1].shape, request,
                         &make_thin_conv_forward, &make_conv_forward);
  return kernel ? std::move(kernel) : library_conv_block(op, request);
}

std::unique_ptr<Kernel> make_kernel(const ConvBlockInputGrad& op, const Request& request) {
  auto kernel = first_of(op.block, op.input_shape, request.inputs[2].shape, request, &make_conv_input_grad);
  return kernel ? std::move(kernel) : library_conv_block_input_grad(op, request);
}

std::unique_ptr<Kernel> make_kernel(const ConvBlockFilterGrad& op, const Request& request) {
  auto kernel = first_of(op.block, request.inputs[0].shape, op.filter_shape, request,
                         &make_thin_conv_filter_grad, &make_conv_filter_grad);
  return kernel ? std::move(kernel) : library_conv_block_filter_grad(op, request);
}

}  // namespace headroom::cuda
