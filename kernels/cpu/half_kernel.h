// Kernels of ops whose floats are stored in 16 bits. They compute in f32 and round once, when they store a
// result.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/kernel.h"

namespace headroom::cpu {

// Calls f(x, at, count) with the f32 of elements [begin, begin + n) of a tensor, stored in 16 bits or not: x
// is the element at `at`, counted from `begin`. Blocks are small enough for a thread's stack.
template <typename F>
void for_each_float_block(const TensorView& view, int64_t begin, int64_t n, F f);

// Returns true if one of the tensors is stored in 16 bits.
bool has_half(std::span<const TensorSpec> specs);

// The f32 of `n` elements stored in 16 bits, and back.
void widen(DType stored, const void* from, float* to, int64_t n);
void narrow(DType stored, const float* from, void* to, int64_t n);

// Makes the kernel of the op for f32 between conversions of 16-bit operands and results. The f32 copies lie
// in host memory of the thread that runs it, outside the plan: a GPU's kernels convert in registers. For all
// ops except those that read gradients block by block.
std::unique_ptr<Kernel> make_half_kernel(const Op& op, std::span<const TensorSpec> inputs,
                                         std::span<const TensorSpec> outputs, const KernelSettings& settings);

template <typename F>
void for_each_float_block(const TensorView& view, int64_t begin, int64_t n, F f) {
  if (!is_half(view.spec.dtype)) return f(view.as<const float>() + begin, int64_t{0}, n);
  constexpr int64_t kBlock = 2048;
  float block[kBlock];
  for (int64_t at = 0; at < n; at += kBlock) {
    const int64_t count = std::min(kBlock, n - at);
    widen(view.spec.dtype, view.as<const uint16_t>() + begin + at, block, count);
    f(static_cast<const float*>(block), at, count);
  }
}

}  // namespace headroom::cpu
