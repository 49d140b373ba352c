// A convolution of single pixels and the following norm, whose statistics are known: one product of cuBLASLt
// with an epilogue, by the filter times the norm's factors.
#include "base/errors.h"
#include "kernels/cuda/device_loops.cuh"
#include "kernels/cuda/library/matmul_product.h"
#include "kernels/cuda/reals.cuh"
#include "kernels/workspace_parts.h"

namespace headroom::cuda {
namespace {

// The norm's effect on a channel: a factor of its weights, and an offset.
struct Folded {
  float epsilon;
  Reals gamma, beta, mean, variance;
  __device__ float factor(int64_t channel) const {
    return gamma[channel] / sqrtf(variance[channel] + epsilon);
  }
  __device__ float offset(int64_t channel) const { return beta[channel] - mean[channel] * factor(channel); }
};

// One thread per weight; the threads of the channels' first weights also compute the offsets.
__global__ void fold(int64_t weights, int64_t channels, int64_t of_channel, bool by_result, Folded norm,
                     Reals filter, RealsOut folded, RealsOut offsets) {
  for (int64_t i = grid_thread(); i < weights; i += grid_threads()) {
    const int64_t channel = by_result ? i / of_channel : i % channels;
    folded.set(i, filter[i] * norm.factor(channel));
    if (i < channels) offsets.set(i, norm.offset(i));
  }
}

Epilogue epilogue_of(const ConvNormApply& op, bool adds) {
  if (adds) return op.relu ? Epilogue::kBiasSumRelu : Epilogue::kBiasSum;
  return op.relu ? Epilogue::kBiasRelu : Epilogue::kBias;
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const ConvNormApply& op, const Request& request) {
  const TensorSpec &x = request.inputs[0], &y = request.outputs[0];
  const bool adds = request.inputs.size() > 6;
  if (request.inputs[1].dtype != x.dtype || y.dtype != x.dtype ||
      (adds && request.inputs[6].dtype != x.dtype))
    throw InvalidArgument("conv_norm_apply of operands stored in two types has no CUDA kernel");
  const int64_t c = y.shape.last(), k = x.shape.last(), weights = request.inputs[1].shape.elements();
  const MatMulShape shape{.m = y.shape.elements() / c,
                          .n = c,
                          .k = k,
                          .op = {.transpose_b = op.filter_by_result},
                          .read = x.dtype,
                          .computed = y.dtype};
  const auto product = std::make_shared<const Product>(request, shape, epilogue_of(op, adds));
  const int64_t width = element_bytes(x.dtype);
  struct Scratch {
    std::byte *filter, *offsets, *of_library;
    int64_t bytes;
  };
  const auto scratch = [=](void* workspace) {
    WorkspaceParts parts(workspace);
    Scratch s{};
    s.filter = parts.take<std::byte>(weights * width);
    s.offsets = parts.take<std::byte>(c * width);
    s.of_library = parts.take<std::byte>(product->workspace_bytes());
    s.bytes = parts.taken_bytes();
    return s;
  };
  return function_kernel(
      [=, &device = request.device, type = x.dtype](const Call& call) {
        const Scratch s = scratch(call.workspace);
        const Folded norm{op.epsilon, operand(call, 2), operand(call, 3), operand(call, 4), operand(call, 5)};
        launch(fold, blocks_for(device, weights), kThreads, call.stream, weights, c, k, op.filter_by_result,
               norm, operand(call, 1), RealsOut{s.filter, type}, RealsOut{s.offsets, type});
        product->run(call.inputs[0].data, s.filter, call.outputs[0].data, s.offsets,
                     adds ? call.inputs[6].data : nullptr, s.of_library, call.stream);
      },
      scratch(nullptr).bytes);
}

}  // namespace headroom::cuda
