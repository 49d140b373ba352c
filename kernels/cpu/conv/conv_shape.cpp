#include "kernels/cpu/conv/conv_shape.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/errors.h"

namespace headroom::cpu {

ConvShape::ConvShape(const Conv2d& conv, const Shape& x, const Shape& filter)
    : n(x[0]),
      h(x[1]),
      w(x[2]),
      c(x[3]),
      kh(filter[0]),
      kw(filter[1]),
      k(filter[3]),
      groups(conv.groups),
      cg(filter[2]),
      kg(filter[3] / conv.groups),
      hp(h + 2 * conv.padding[0]),
      wp(w + 2 * conv.padding[1]),
      op(conv) {
  oh = window_output(h, kh, op.stride[0], op.padding[0], op.dilation[0]);
  ow = window_output(w, kw, op.stride[1], op.padding[1], op.dilation[1]);
}

Offsets ConvShape::tap_offsets() const {
  return Offsets([shape = *this] {
    shape.check_offsets();
    std::vector<int32_t> offsets;
    for (int64_t y = 0; y < shape.kh; ++y) {
      for (int64_t x = 0; x < shape.kw; ++x) {
        const int64_t at = (y * shape.op.dilation[0] * shape.wp + x * shape.op.dilation[1]) * shape.c;
        for (int64_t channel = 0; channel < shape.cg; ++channel)
          offsets.push_back(static_cast<int32_t>(at + channel));
      }
    }
    return offsets;
  });
}

Offsets ConvShape::position_offsets() const {
  return Offsets([shape = *this] {
    shape.check_offsets();
    std::vector<int32_t> offsets;
    for (int64_t y = 0; y < shape.oh; ++y) {
      for (int64_t x = 0; x < shape.ow; ++x)
        offsets.push_back(static_cast<int32_t>(shape.position_offset(y, x)));
    }
    return offsets;
  });
}

void ConvShape::check_offsets() const {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  if (padded_elements() > kMax)
    throw InvalidArgument(fmt::format("a convolution on the CPU takes images of at most {} values, not {}",
                                      kMax, padded_elements()));
}

const float* ConvShape::padded_image(const float* x, int64_t index, float* buffer) const {
  const float* image = x + index * image_elements();
  if (!padded()) return image;
  std::fill_n(buffer, padded_elements(), 0.0f);
  for (int64_t row = 0; row < h; ++row) {
    std::memcpy(buffer + ((row + op.padding[0]) * wp + op.padding[1]) * c, image + row * w * c,
                static_cast<size_t>(w * c) * sizeof(float));
  }
  return buffer;
}

void ConvShape::crop(const float* image, int64_t pixel_stride, int64_t index, float* x) const {
  float* target = x + index * image_elements();
  for (int64_t row = 0; row < h; ++row) {
    for (int64_t column = 0; column < w; ++column) {
      const float* pixel = image + ((row + op.padding[0]) * wp + column + op.padding[1]) * pixel_stride;
      std::memcpy(target + (row * w + column) * c, pixel, static_cast<size_t>(c) * sizeof(float));
    }
  }
}

Windows::Windows(const ConvShape& shape, const std::optional<Pool2d>& pool, const Shape& y)
    : count(y[1] * y[2]),
      area(pool ? int64_t{pool->window[0]} * pool->window[1] : 1),
      offsets([shape, height = y[1], width = y[2], area = area,
               p = pool.value_or(Pool2d{{1, 1}, {1, 1}, {0, 0}})] {
        shape.check_offsets();
        std::vector<int32_t> all;
        for (int64_t oy = 0; oy < height; ++oy) {
          for (int64_t ox = 0; ox < width; ++ox) {
            for (int64_t i = 0; i < area; ++i) {
              all.push_back(static_cast<int32_t>(shape.position_offset(oy * p.stride[0] + i / p.window[1],
                                                                       ox * p.stride[1] + i % p.window[1])));
            }
          }
        }
        return all;
      }) {}

}  // namespace headroom::cpu
