// Sums over the replicas that share a GPU, in its memory. Knows no replica.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <span>

#include "base/tensor.h"

namespace headroom::cuda {

// A launch takes its arguments in 4 KiB; no more ranks were needed so far.
inline constexpr int kMaxSharingRanks = 8;

// A tensor of f32 or bf16, 16-byte aligned, that several ranks have.
struct SharedTensor {
  const void* inputs[kMaxSharingRanks] = {};
  void* outputs[kMaxSharingRanks] = {};
  int64_t elements = 0;
  DType dtype = DType::kF32;
};

// Queues work: each of the outputs becomes ((inputs[0] + inputs[1]) + inputs[2]) + ..., element by element,
// in f32. An output may be an input of its own tensor, and otherwise overlaps nothing. `multiprocessors`
// bounds how much is launched. Throws DeviceError.
void queue_shared_sums(std::span<const SharedTensor> tensors, int inputs, int outputs, int multiprocessors,
                       cudaStream_t stream);

}  // namespace headroom::cuda
