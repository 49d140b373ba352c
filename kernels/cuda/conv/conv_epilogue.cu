#include "kernels/cuda/conv/conv_epilogue.h"
#include "kernels/cuda/device_loops.cuh"

namespace headroom::cuda {
namespace {

template <int N>
__global__ void add_bias(int64_t elements, int channels, bool relu, Reals bias, Reals residual, RealsOut y) {
  for (int64_t i = N * grid_thread(); i < elements; i += N * grid_threads()) {
    Lanes<float, N> sum = load<N>(Reals(y) + i);
    const Lanes<float, N> added = load<N>(bias + i % channels);
    Lanes<float, N> beside{};
    if (residual.data != nullptr) beside = load<N>(residual + i);
#pragma unroll
    for (int lane = 0; lane < N; ++lane) {
      const float value = sum.values[lane] + added.values[lane] + beside.values[lane];
      sum.values[lane] = relu && value <= 0 ? 0 : value;
    }
    store(y + i, sum);
  }
}
}  // namespace

void add_conv_bias(const CudaGpu& device, cudaStream_t stream, const TensorView& y, const TensorView& bias,
                   const TensorView* residual, bool relu) {
  const int64_t elements = y.elements(), channels = bias.elements();
  if (elements == 0) return;
  const Reals added = reals(bias), beside = residual == nullptr ? Reals() : reals(*residual);
  const RealsOut to = reals_out(y);
  const auto queue = [&](auto kernel, int64_t lanes) {
    launch(kernel, blocks_for(device, elements / lanes), kThreads, stream, elements,
           static_cast<int>(channels), relu, added, beside, to);
  };
  const bool in_lanes =
      channels % 8 == 0 && aligned<8>(to) && aligned<8>(added) && (residual == nullptr || aligned<8>(beside));
  in_lanes ? queue(add_bias<8>, 8) : queue(add_bias<1>, 1);
}

}  // namespace headroom::cuda
