// Copies pixels and filters to shared memory with a block of threads, 4 floats at a time. Knows no
// arithmetic.
#pragma once

#include "kernels/cuda/conv/conv_tile.h"

namespace headroom::cuda {

// Pieces of a filter that a thread loads at once: as many as fit in its registers, because it does nothing
// else before.
inline constexpr int kFiltersAhead = 8;

// The pieces i = first, first + step, ... below end that one thread moves: start() reads the first kAhead of
// them into registers, finish() stores them and moves the rest. Work between the two hides the latency of
// global memory.
template <typename Piece, int kAhead = 4>
class Stage {
 public:
  __device__ Stage(int first, int step, int end) : first_(first), step_(step), end_(end) {}

  template <typename Load>
  __device__ void start(Load load) {
#pragma unroll
    for (int a = 0; a < kAhead; ++a) {
      if (first_ + a * step_ < end_) pieces_[a] = load(first_ + a * step_);
    }
  }
  template <typename Load, typename Store>
  __device__ void finish(Load load, Store store) {
    for (int i = first_;;) {
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (i + a * step_ < end_) store(i + a * step_, pieces_[a]);
      }
      i += kAhead * step_;
      if (i >= end_) return;
#pragma unroll
      for (int a = 0; a < kAhead; ++a) {
        if (i + a * step_ < end_) pieces_[a] = load(i + a * step_);
      }
    }
  }

 private:
  const int first_, step_, end_;
  Piece pieces_[kAhead];
};

// Division by a number that is known before the kernel starts (Granlund, Montgomery 1994): right for 0 <= n <
// 2^31.
class Divisor {
 public:
  Divisor() = default;
  explicit Divisor(int divisor) : divisor_(divisor) {
    while ((int64_t{1} << shift_) < divisor) ++shift_;
    const auto d = static_cast<uint64_t>(divisor);
    multiplier_ = static_cast<uint32_t>((uint64_t{1} << 32) * ((uint64_t{1} << shift_) - d) / d + 1);
  }
  __device__ int divide(int n) const {
    const auto un = static_cast<uint32_t>(n);
    return static_cast<int>((__umulhi(un, multiplier_) + un) >> shift_);
  }
  __device__ int divide(int n, int& rest) const {
    const int quotient = divide(n);
    rest = n - quotient * divisor_;
    return quotient;
  }

 private:
  int divisor_ = 1, shift_ = 0;
  uint32_t multiplier_ = 1;
};

// The pixels, and 4 channels of each, that a thread copies: threads run over the channels first.
struct PixelLanes {
  int quad, first,
      step;  // pixels first, first + step, ...; first is past all pixels for threads that would not fit

  __device__ PixelLanes(const Divisor& divide_by_quads, int quads) {
    step = divide_by_quads.divide(static_cast<int>(blockDim.x));
    first = divide_by_quads.divide(static_cast<int>(threadIdx.x), quad);
    if (first >= step) first = 1 << 30;
  }
};

// Loads 4 channels of a pixel of x that lies in a tile's patch: zero outside the image.
template <typename Arguments>
struct PixelAt {
  const Arguments& args;
  int image0, row0, quad;

  __device__ float4 operator()(int pixel) const {
    const ConvGeometry& g = args.g;
    int in_image, column;
    const int image = image0 + args.patch_pixels.divide(pixel, in_image);
    const int row = row0 + args.patch_w.divide(in_image, column) - g.pad_h;
    column -= g.pad_w;
    const bool inside = image < g.batch && row >= 0 && row < g.height && column >= 0 && column < g.width;
    if (!inside) return float4{};
    const int64_t from = (int64_t{image} * g.height + row) * g.width + column;
    return *reinterpret_cast<const float4*>(args.x + from * g.channels + quad * 4);
  }
};

}  // namespace headroom::cuda
