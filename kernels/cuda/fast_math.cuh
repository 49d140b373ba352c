// Functions of one instruction, for results that are stored in 16 bits. Knows no op.
#pragma once

#include <cuda_runtime.h>

#include <cmath>
#include <numbers>

namespace headroom::cuda {

inline constexpr float kLog2E = static_cast<float>(std::numbers::log2e);

// 2^x within two units in the last place (PTX ISA, ex2.approx); results below the normal numbers are 0.
__device__ inline float power_of_2(float x) {
#if defined(__CUDA_ARCH__)
  float y = 0;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return exp2f(x);
#endif
}

// 1 / x within one unit in the last place (PTX ISA, rcp.approx); results below the normal numbers are 0.
__device__ inline float reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float y = 0;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#else
  return 1 / x;
#endif
}

}  // namespace headroom::cuda
