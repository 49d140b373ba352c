// The gradient that reaches a convolution through its block's relu and pooling, assembled in shared memory:
// dy at the position that the block's route names, zero elsewhere. It is never stored in global memory.
#pragma once

#include "kernels/cuda/conv/conv_stage.cuh"

namespace headroom::cuda {

struct Routed {
  const float* dy;       // (N,out_h,out_w,K)
  const uint8_t* index;  // with a pool: the block's index
  const float* y;        // without: the block's result
};

// dy of 4 filters of one output, and its target.
struct RoutedUnit {
  float4 dy;
  uchar4 route;  // position inside the window, or kNoGradient

  // Returns the gradient at the window, for any position.
  __device__ float4 all() const {
    return {route.x != kNoGradient ? dy.x : 0, route.y != kNoGradient ? dy.y : 0,
            route.z != kNoGradient ? dy.z : 0, route.w != kNoGradient ? dy.w : 0};
  }
  // Returns the gradient at that position of the window.
  __device__ float4 at(int position) const {
    return {route.x == position ? dy.x : 0, route.y == position ? dy.y : 0, route.z == position ? dy.z : 0,
            route.w == position ? dy.w : 0};
  }
};

// `at`: index of the first of the 4 filters.
template <bool kPooled>
__device__ RoutedUnit load_routed(const Routed& from, int64_t at) {
  RoutedUnit unit;
  unit.dy = *reinterpret_cast<const float4*>(from.dy + at);
  if constexpr (kPooled) {
    unit.route = *reinterpret_cast<const uchar4*>(from.index + at);
  } else {
    const float4 y = *reinterpret_cast<const float4*>(from.y + at);
    const auto open = [](float value) { return value > 0 ? uint8_t{0} : kNoGradient; };
    unit.route = {open(y.x), open(y.y), open(y.z), open(y.w)};
  }
  return unit;
}

__device__ inline RoutedUnit no_gradient() {
  return {{}, {kNoGradient, kNoGradient, kNoGradient, kNoGradient}};
}

}  // namespace headroom::cuda
