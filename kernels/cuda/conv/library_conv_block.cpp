#include <algorithm>
#include <map>
#include <vector>

#include "base/errors.h"
#include "device/cuda/check.h"
#include "kernels/cuda/conv/block_steps.h"
#include "kernels/cuda/conv/conv_block.h"
#include "kernels/cuda/library/dnn_convolution.h"

namespace headroom::cuda {
namespace {

constexpr int64_t kFloat = sizeof(float);
// Values between a convolution and the ops around it may use a quarter of the workspace limit. cuDNN's f32
// engines need about as much again as they read and write; with less they take ten times as long.
constexpr int64_t kShare = 4;

int64_t aligned(int64_t bytes) {
  return (bytes + 255) / 256 * 256;
}

Shape convolved(const Conv2d& conv, const Shape& x, const Shape& filter) {
  const TensorSpec operands[] = {{DType::kF32, x}, {DType::kF32, filter}};
  return infer_outputs(conv, operands)[0].shape;
}

// The values between the convolution and its neighbors can exceed the workspace limit, so the batch is cut
// into slices of images, which use the workspace in turn.
class Slices {
 public:
  struct Slice {
    int64_t begin, images;
    std::shared_ptr<const DnnConvolution> conv;
  };

  // Memory beside the convolution's own workspace: per image, per slice if there is more than one, and fixed.
  struct Beside {
    int64_t image_bytes = 0, slice_bytes = 0, fixed_bytes = 0;
  };

  Slices(const Request& request, ConvDirection direction, const Conv2d& conv, const Shape& x,
         const Shape& filter, const Beside& beside) {
    const Shape z = convolved(conv, x, filter);
    const int64_t limit = request.settings.workspace_limit_bytes - beside.fixed_bytes;
    const int64_t fitting = beside.image_bytes > 0 ? limit / kShare / beside.image_bytes : x[0];
    const int64_t images = std::clamp<int64_t>(fitting, 1, x[0]), count_all = (x[0] + images - 1) / images;
    between_bytes_ = aligned(images * beside.image_bytes);
    const int64_t slices_bytes = count_all > 1 ? count_all * beside.slice_bytes : 0;
    KernelSettings rest = request.settings;
    rest.workspace_limit_bytes = std::max<int64_t>(0, limit - between_bytes_ - aligned(slices_bytes));
    const Request sliced{{request.inputs, request.outputs, rest}, request.device, request.owner};
    std::map<int64_t, std::shared_ptr<const DnnConvolution>> prepared;  // by images
    for (int64_t begin = 0; begin < x[0]; begin += images) {
      const int64_t count = std::min(images, x[0] - begin);
      auto& one = prepared[count];
      if (!one) {
        one = std::make_shared<const DnnConvolution>(sliced, direction, conv, x.with(0, count), filter,
                                                     z.with(0, count), DnnConvolution::Types());
      }
      conv_bytes_ = std::max(conv_bytes_, one->workspace_bytes());
      slices_.push_back({begin, count, one});
    }
  }

  int64_t size() const { return static_cast<int64_t>(slices_.size()); }
  // Workspace begins with the values between, for one slice; the convolution's own follows.
  int64_t between_bytes() const { return between_bytes_; }
  int64_t workspace_bytes() const { return between_bytes_ + aligned(conv_bytes_); }
  auto begin() const { return slices_.begin(); }
  auto end() const { return slices_.end(); }

 private:
  int64_t between_bytes_ = 0, conv_bytes_ = 0;
  std::vector<Slice> slices_;
};

std::byte* place(const Call& call, int64_t offset) {
  return call.scratch<std::byte>() + offset;
}

void clear(const Call& call, size_t output) {
  const TensorView& view = call.outputs[output];
  HR_CHECK(cudaMemsetAsync(view.data, 0, static_cast<size_t>(view.spec.bytes()), call.stream));
}

void require_channels(const Shape& x) {
  if (x[3] == 0) throw InvalidArgument("a convolution block of no channels has no CUDA kernel");
}

// The part of a route that belongs to images from the given output on.
const void* route_from(const Call& call, size_t input, const BlockShape& shape, int64_t output) {
  if (shape.pooled) return call.in<uint8_t>(input) + output;
  return call.in(input) + output;
}

}  // namespace

std::unique_ptr<Kernel> library_conv_block(const ConvBlock& op, const Request& request) {
  const Shape &x = request.inputs[0].shape, &filter = request.inputs[1].shape;
  if (request.outputs[0].shape.elements() == 0) return function_kernel([](const Call&) {});
  const BlockShape shape(op, convolved(op.conv, x, filter));
  const BlockShape image = shape.with_images(1);
  require_channels(x);
  const int64_t x_image = x.elements() / x[0];
  // If there is no pool, the convolution writes to y, and the rest is done in place.
  const Slices slices(request, ConvDirection::kForward, op.conv, x, filter,
                      {.image_bytes = shape.pooled ? image.elements() * kFloat : 0});
  return function_kernel(
      [=, &device = request.device](const Call& call) {
        for (const Slices::Slice& slice : slices) {
          const int64_t at = slice.begin * image.outputs();
          float* y = call.out() + at;
          float* z = shape.pooled ? reinterpret_cast<float*>(place(call, 0)) : y;
          uint8_t* index = shape.pooled && call.out<uint8_t>(1) ? call.out<uint8_t>(1) + at : nullptr;
          slice.conv->run(call.in(0) + slice.begin * x_image, call.in(1), z,
                          place(call, slices.between_bytes()), call.stream);
          bias_relu_pool(device, call.stream, shape.with_images(slice.images), z, call.in(2), y, index);
        }
      },
      slices.workspace_bytes());
}

std::unique_ptr<Kernel> library_conv_block_input_grad(const ConvBlockInputGrad& op, const Request& request) {
  const Shape &x = op.input_shape, &filter = request.inputs[2].shape;
  if (x.elements() == 0) return function_kernel([](const Call&) {});
  if (filter.elements() == 0) return function_kernel([](const Call& call) { clear(call, 0); });
  const BlockShape shape(op.block, convolved(op.block.conv, x, filter));
  const BlockShape image = shape.with_images(1);
  const int64_t x_image = x.elements() / x[0];
  const Slices slices(request, ConvDirection::kInputGrad, op.block.conv, x, filter,
                      {.image_bytes = image.elements() * kFloat});
  return function_kernel(
      [=, &device = request.device](const Call& call) {
        auto* dz = reinterpret_cast<float*>(place(call, 0));
        for (const Slices::Slice& slice : slices) {
          const int64_t at = slice.begin * image.outputs();
          route_gradient(device, call.stream, shape.with_images(slice.images), call.in(0) + at,
                         route_from(call, 1, shape, at), dz);
          slice.conv->run(dz, call.in(2), call.out() + slice.begin * x_image,
                          place(call, slices.between_bytes()), call.stream);
        }
      },
      slices.workspace_bytes());
}

std::unique_ptr<Kernel> library_conv_block_filter_grad(const ConvBlockFilterGrad& op,
                                                       const Request& request) {
  const Shape &x = request.inputs[0].shape, &filter = op.filter_shape;
  require_channels(x);
  if (x[0] == 0 || filter.elements() == 0) {
    return function_kernel([](const Call& call) {
      clear(call, 0);
      clear(call, 1);
    });
  }
  const BlockShape shape(op.block, convolved(op.block.conv, x, filter));
  const BlockShape image = shape.with_images(1);
  const int64_t x_image = x.elements() / x[0], n = filter.elements();
  const int64_t sums_bytes = aligned(sum_gradient_bytes(shape));
  const Slices slices(request, ConvDirection::kFilterGrad, op.block.conv, x, filter,
                      {image.elements() * kFloat, n * kFloat, sums_bytes});
  // Each slice has its own gradient of the filter, then they are added up.
  const int64_t parts_at = slices.workspace_bytes();
  const int64_t sums_at = parts_at + (slices.size() > 1 ? aligned(slices.size() * n * kFloat) : 0);
  return function_kernel(
      [=, &device = request.device](const Call& call) {
        auto* dz = reinterpret_cast<float*>(place(call, 0));
        auto* parts = reinterpret_cast<float*>(place(call, parts_at));
        float* part = slices.size() > 1 ? parts : call.out(0);
        for (const Slices::Slice& slice : slices) {
          const int64_t at = slice.begin * image.outputs();
          route_gradient(device, call.stream, shape.with_images(slice.images), call.in(1) + at,
                         route_from(call, 2, shape, at), dz);
          slice.conv->run(call.in(0) + slice.begin * x_image, dz, part, place(call, slices.between_bytes()),
                          call.stream);
          part += n;
        }
        if (slices.size() > 1)
          sum_parts(device, parts, static_cast<int>(slices.size()), n, call.out(0), n, nullptr, call.stream);
        sum_gradient(device, call.stream, shape, call.in(1), call.in<std::byte>(2), call.out(1),
                     place(call, sums_at));
      },
      sums_at + sums_bytes);
}

}  // namespace headroom::cuda
