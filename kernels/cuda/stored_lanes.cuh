// Neighboring numbers as generated kernels load and store them. Compiled at run time, without CUDA's headers.
#pragma once

#include <cstdint>

namespace headroom::cuda {

struct Bf16 {
  uint16_t bits;
};
struct F16 {
  uint16_t bits;
};

__device__ inline float widened(float x) {
  return x;
}
__device__ inline float widened(Bf16 x) {
  return __uint_as_float(static_cast<uint32_t>(x.bits) << 16);
}
__device__ inline float widened(F16 x) {
  float y = 0;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}

// Round to nearest, ties to even.
__device__ inline void narrow(float x, float& to) {
  to = x;
}
__device__ inline void narrow(float x, F16& to) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
}
__device__ inline void narrow(float x, Bf16& to) {
#if __CUDA_ARCH__ >= 900
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to.bits) : "f"(x));
#else
  const uint32_t bits = __float_as_uint(x);
  to.bits = static_cast<uint16_t>(x != x ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
#endif
}

// N neighbors, read and written 16 bytes at a time.
template <typename T, int N>
struct alignas(N * sizeof(T) < 16 ? N * sizeof(T) : 16) Stored {
  T at[N];
};
template <int N>
struct Numbers {
  float at[N];
};
template <int N, typename T>
__device__ Numbers<N> load(const T* from) {
  const Stored<T, N> stored = *reinterpret_cast<const Stored<T, N>*>(from);
  Numbers<N> numbers;
#pragma unroll
  for (int k = 0; k < N; ++k) numbers.at[k] = widened(stored.at[k]);
  return numbers;
}
// One number for all lanes.
template <int N, typename T>
__device__ Numbers<N> repeat(const T* from) {
  const float one = widened(*from);
  Numbers<N> numbers;
#pragma unroll
  for (int k = 0; k < N; ++k) numbers.at[k] = one;
  return numbers;
}
template <int N, typename T>
__device__ void store(T* to, const Numbers<N>& numbers) {
  Stored<T, N> stored;
#pragma unroll
  for (int k = 0; k < N; ++k) narrow(numbers.at[k], stored.at[k]);
  *reinterpret_cast<Stored<T, N>*>(to) = stored;
}

// Reductions in a fixed order, so that every run gives the same bits.
struct Sum {
  using Value = double;
  static __device__ double nothing() {
    return 0;
  }
  static __device__ float joined(float a, float b) {
    return a + b;
  }
  static __device__ double joined(double a, double b) {
    return a + b;
  }
};
struct Max {  // NaN if any is
  using Value = float;
  static __device__ float nothing() {
    return __uint_as_float(0xff800000u);  // -infinity
  }
  static __device__ float joined(float a, float b) {
    return a >= b || a != a ? a : b;
  }
};
template <typename F, int N>
__device__ typename F::Value joined_lanes(Numbers<N> numbers) {
#pragma unroll
  for (int half = N / 2; half > 0; half /= 2) {
#pragma unroll
    for (int k = 0; k < half; ++k) numbers.at[k] = F::joined(numbers.at[k], numbers.at[k + half]);
  }
  return numbers.at[0];
}
// The values of all threads t of a block of 256 with equal t % wide; the first `wide` threads get them.
template <typename F>
__device__ typename F::Value joined_block(typename F::Value value, int wide) {
  __shared__ typename F::Value values[256];
  const int t = static_cast<int>(threadIdx.x);
  __syncthreads();  // the last values have been read
  values[t] = value;
  for (int stride = 128; stride >= wide; stride /= 2) {
    __syncthreads();
    if (t < stride) values[t] = F::joined(values[t], values[t + stride]);
  }
  return t < wide ? values[t] : value;
}
// The values of `team` neighboring threads of a warp.
template <typename F>
__device__ typename F::Value joined_team(typename F::Value value, int team) {
  for (int offset = team / 2; offset > 0; offset /= 2)
    value = F::joined(value, __shfl_xor_sync(~0u, value, offset));
  return value;
}

}  // namespace headroom::cuda
