#include <algorithm>
#include <cstddef>

#include "collective/cuda/quads.cuh"
#include "collective/cuda/shared_gpu_sums.h"
#include "device/cuda/check.h"

namespace headroom::cuda {
namespace {

constexpr int kThreads = 256;
// Blocks of a multiprocessor that hold loads under way at a time; more gains nothing.
constexpr int64_t kBlocksOfOne = 4;

// The number of tensors that fit into the 4 KiB of a launch's arguments.
struct SharedTensors {
  static constexpr size_t kMax = 4000 / sizeof(SharedTensor);
  SharedTensor tensors[kMax];
};

// Row y of the grid has one tensor.
__global__ void sum_shared(const __grid_constant__ SharedTensors all, int inputs, int outputs) {
  const SharedTensor& tensor = all.tensors[blockIdx.y];
  const int64_t stride = int64_t{gridDim.x} * kThreads, first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const int64_t quads = (tensor.elements + 3) / 4;
  const auto load = [&](int rank, int64_t quad) {
    return load_quad(tensor.inputs[rank], tensor.dtype, tensor.elements, quad);
  };
  for (int64_t i = first; i < quads; i += stride) {
    float4 sum = load(0, i);
    for (int k = 1; k < inputs; ++k) sum = add(sum, load(k, i));
    for (int k = 0; k < outputs; ++k) store_quad(tensor.outputs[k], tensor.dtype, tensor.elements, i, sum);
  }
}

}  // namespace

void queue_shared_sums(std::span<const SharedTensor> tensors, int inputs, int outputs, int multiprocessors,
                       cudaStream_t stream) {
  while (!tensors.empty()) {
    const size_t count = std::min(tensors.size(), SharedTensors::kMax);
    SharedTensors some;
    std::copy_n(tensors.begin(), count, some.tensors);
    int64_t most = 1;
    for (const SharedTensor& tensor : tensors.first(count)) most = std::max(most, tensor.elements);
    const int64_t blocks =
        std::min((most + 4 * kThreads - 1) / (4 * kThreads), kBlocksOfOne * multiprocessors);
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(count));
    sum_shared<<<grid, kThreads, 0, stream>>>(some, inputs, outputs);
    HR_CHECK(cudaGetLastError());
    tensors = tensors.subspan(count);
  }
}

}  // namespace headroom::cuda
