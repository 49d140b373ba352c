// Four neighboring elements of a tensor of f32 or bf16, read as f32 and rounded once, to the nearest and
// ties to even, when they are written. Tensors are 16-byte aligned. Knows no rank.
#pragma once

#include <cuda_bf16.h>

#include "base/tensor.h"

namespace headroom::cuda {

// Elements 4 * quad ... of a tensor; zeros past its end.
template <typename T>
__device__ float4 load_quad(const T* tensor, int64_t elements, int64_t quad) {
  const T* const from = tensor + 4 * quad;
  const int64_t left = elements - 4 * quad;
  return {float(from[0]), left > 1 ? float(from[1]) : 0, left > 2 ? float(from[2]) : 0,
          left > 3 ? float(from[3]) : 0};
}

__device__ inline float4 load_quad(const void* tensor, DType dtype, int64_t elements, int64_t quad) {
  const bool is_whole = elements - 4 * quad >= 4;
  if (dtype == DType::kF32) {
    if (is_whole) return static_cast<const float4*>(tensor)[quad];
    return load_quad(static_cast<const float*>(tensor), elements, quad);
  }
  if (!is_whole) return load_quad(static_cast<const __nv_bfloat16*>(tensor), elements, quad);
  const uint2 words = static_cast<const uint2*>(tensor)[quad];
  return {__uint_as_float(words.x << 16), __uint_as_float(words.x & 0xffff0000u),
          __uint_as_float(words.y << 16), __uint_as_float(words.y & 0xffff0000u)};
}

template <typename T>
__device__ void store_quad(T* tensor, int64_t elements, int64_t quad, float4 value) {
  T* const to = tensor + 4 * quad;
  const int64_t left = elements - 4 * quad;
  to[0] = T(value.x);
  if (left > 1) to[1] = T(value.y);
  if (left > 2) to[2] = T(value.z);
  if (left > 3) to[3] = T(value.w);
}

// Writes nothing past the end.
__device__ inline void store_quad(void* tensor, DType dtype, int64_t elements, int64_t quad, float4 value) {
  const bool is_whole = elements - 4 * quad >= 4;
  if (dtype == DType::kF32) {
    if (is_whole) {
      static_cast<float4*>(tensor)[quad] = value;
    } else {
      store_quad(static_cast<float*>(tensor), elements, quad, value);
    }
    return;
  }
  if (!is_whole) return store_quad(static_cast<__nv_bfloat16*>(tensor), elements, quad, value);
  const __nv_bfloat162 low = __floats2bfloat162_rn(value.x, value.y),
                       high = __floats2bfloat162_rn(value.z, value.w);
  static_cast<uint2*>(tensor)[quad] = {reinterpret_cast<const uint32_t&>(low),
                                       reinterpret_cast<const uint32_t&>(high)};
}

__device__ inline float4 add(float4 a, float4 b) {
  return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
}

}  // namespace headroom::cuda
