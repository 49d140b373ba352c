// The geometry that all convolution kernels share: extents, padded images, and offsets of filter taps and
// output positions. Knows no arithmetic.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/bytes.h"
#include "kernels/cpu/on_first_use.h"
#include "kernels/cpu/simd.h"
#include "ops/ops.h"

namespace headroom::cpu {

inline constexpr int64_t kWorkspaceAlignment = 64;  // floats; a multiple of every vector and cache line

// Offsets in an image, as a table of its own for each convolution.
using Offsets = OnFirstUse<std::vector<int32_t>>;

struct ConvShape {
  ConvShape(const Conv2d& op, const Shape& x, const Shape& filter);

  int64_t n, h, w, c;      // image
  int64_t kh, kw;          // filter window
  int64_t oh, ow, k;       // output of the convolution
  int64_t groups, cg, kg;  // channels of one group: in, out
  int64_t hp, wp;          // image with its padding
  Conv2d op;

  bool padded() const { return op.padding[0] != 0 || op.padding[1] != 0; }
  int64_t taps() const { return kh * kw * cg; }
  int64_t positions() const { return oh * ow; }
  int64_t image_elements() const { return h * w * c; }
  int64_t padded_elements() const { return hp * wp * c; }
  // Returns the length of consecutive taps in an image: a row of the filter if it is dense, otherwise one
  // pixel.
  int64_t run() const { return op.dilation[1] == 1 && groups == 1 ? kw * cg : cg; }

  // Offset in a padded image of the first tap of output position (oy, ox).
  int64_t position_offset(int64_t oy, int64_t ox) const {
    return (oy * op.stride[0] * wp + ox * op.stride[1]) * c;
  }
  // Offset in a padded image of the first tap of run `row`, counted in filter order.
  int64_t run_offset(int64_t row) const {
    if (run() == kw * cg) return row * op.dilation[0] * wp * c;
    return (row / kw * op.dilation[0] * wp + row % kw * op.dilation[1]) * c;
  }
  // Offset of each tap from the first, in filter order (kh, kw, cg).
  Offsets tap_offsets() const;
  // position_offset of all output positions in order.
  Offsets position_offsets() const;

  // Throws InvalidArgument for images with more values than these offsets can reach.
  void check_offsets() const;

  // Returns image `index` of x with zeros around it: x itself if there is no padding, otherwise a copy in
  // `buffer` (padded_elements() floats).
  const float* padded_image(const float* x, int64_t index, float* buffer) const;
  // The inner part of `image` (hp, wp, stride channels) becomes image `index` of x.
  void crop(const float* image, int64_t pixel_stride, int64_t index, float* x) const;
};

// Groups of output positions for max pooling. Without pooling, each position is a window of its own.
struct Windows {
  Windows(const ConvShape& shape, const std::optional<Pool2d>& pool, const Shape& y);

  int64_t count;  // in one image
  int64_t area;   // positions in each
  // By window and position: the offset in a padded image of its first tap.
  Offsets offsets;
};

}  // namespace headroom::cpu
