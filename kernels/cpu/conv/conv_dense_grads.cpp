#include <algorithm>

#include "kernels/cpu/conv/conv_gradients.h"

namespace headroom::cpu {
namespace {

// Tile heights at which all sums and the operands fit in registers: 24 of 32 registers, or 12 of 16.
constexpr int kSums = kVectorRegisters == 32 ? 24 : 12;
// Images whose pixels and gradients stay in the first-level cache (32 to 48 KiB) while all taps pass over
// them.
constexpr int64_t kCacheFloats = 32 * 1024 / 4;

}  // namespace

UnpooledInputGrad::UnpooledInputGrad(const ConvShape& shape)
    : shape_(shape), padded_channels_(round_up(shape.cg, kMostLanes)), pixels_([shape] {
        std::vector<int32_t> pixels = *shape.position_offsets();
        for (int32_t& offset : pixels) offset /= static_cast<int32_t>(std::max<int64_t>(1, shape.c));
        return pixels;
      }) {}

int64_t UnpooledInputGrad::workspace_bytes() const {
  // Weights of one group transposed, then its channels of one padded image.
  return (round_up(shape_.kh * shape_.kw * shape_.kg * padded_channels_, kWorkspaceAlignment) +
          shape_.hp * shape_.wp * padded_channels_) *
         int64_t{sizeof(float)};
}

// image[pixel + tap] += dy[position, all k] x weights[k, channels of this column] for all positions of one
// image.
template <int V>
void UnpooledInputGrad::run_tap(const float* dy, const float* weights, float* image, int64_t image_stride,
                                int64_t column, int64_t tap_offset) const {
  constexpr int kRows = kSums / V;
  const int64_t count = shape_.positions(), depth = shape_.kg;
  const std::vector<int32_t>& pixels = *pixels_;
  for (int64_t first = 0; first < count; first += kRows) {
    const int64_t rows = std::min<int64_t>(kRows, count - first);
    const float* g[kRows];
    for (int r = 0; r < kRows; ++r) g[r] = dy + (first + std::min<int64_t>(r, rows - 1)) * shape_.k;
    Vec sums[kRows][V] = {};
    for (int64_t k = 0; k < depth; ++k) {
      Vec row[V];
      for (int v = 0; v < V; ++v) row[v] = load(weights + k * padded_channels_ + column + v * kLanes);
#pragma GCC unroll 24
      for (int r = 0; r < kRows; ++r) {
        const float value = g[r][k];
        for (int v = 0; v < V; ++v) sums[r][v] += value * row[v];
      }
    }
#pragma GCC unroll 24
    for (int r = 0; r < kRows; ++r) {
      if (r >= rows) break;
      float* pixel = image + (pixels[static_cast<size_t>(first + r)] + tap_offset) * image_stride + column;
      for (int v = 0; v < V; ++v) store(pixel + v * kLanes, load(pixel + v * kLanes) + sums[r][v]);
    }
  }
}

void UnpooledInputGrad::operator()(const float* dy, const float* filter, float* dx, float* workspace) const {
  const int64_t window = shape_.kh * shape_.kw, tap_elements = shape_.kg * padded_channels_;
  const int64_t channels = round_up(shape_.cg, kLanes);
  float* transposed = workspace;
  float* buffer = workspace + round_up(window * tap_elements, kWorkspaceAlignment);
  // With no padding and whole vectors of channels, the image is dx itself.
  const bool direct = !shape_.padded() && padded_channels_ == shape_.cg;
  const int64_t stride = direct ? shape_.c : padded_channels_;
  for (int64_t group = 0; group < shape_.groups; ++group) {
    for (int64_t tap = 0; tap < window; ++tap) {
      for (int64_t k = 0; k < shape_.kg; ++k) {
        float* row = transposed + tap * tap_elements + k * padded_channels_;
        for (int64_t c = 0; c < shape_.cg; ++c) {
          row[c] = filter[(tap * shape_.cg + c) * shape_.k + group * shape_.kg + k];
        }
        std::fill(row + shape_.cg, row + padded_channels_, 0.0f);
      }
    }
    for (int64_t image = 0; image < shape_.n; ++image) {
      const float* gradient = dy + image * shape_.positions() * shape_.k + group * shape_.kg;
      float* target = direct ? dx + image * shape_.image_elements() : buffer;
      if (!direct || group == 0) std::fill_n(target, shape_.hp * shape_.wp * stride, 0.0f);
      for (int64_t tap = 0; tap < window; ++tap) {
        const int64_t offset =
            tap / shape_.kw * shape_.op.dilation[0] * shape_.wp + tap % shape_.kw * shape_.op.dilation[1];
        const float* weights = transposed + tap * tap_elements;
        float* group_target = direct ? target + group * shape_.cg : target;
        int64_t column = 0;
        for (; column + 4 * kLanes <= channels; column += 4 * kLanes) {
          run_tap<4>(gradient, weights, group_target, stride, column, offset);
        }
        for (; column + 2 * kLanes <= channels; column += 2 * kLanes) {
          run_tap<2>(gradient, weights, group_target, stride, column, offset);
        }
        for (; column < channels; column += kLanes) {
          run_tap<1>(gradient, weights, group_target, stride, column, offset);
        }
      }
      if (!direct) copy_group(target, group, image, dx);
    }
  }
}

// Copies a padded image of one group's channels to its place in dx.
void UnpooledInputGrad::copy_group(const float* image, int64_t group, int64_t index, float* dx) const {
  float* target = dx + index * shape_.image_elements() + group * shape_.cg;
  for (int64_t row = 0; row < shape_.h; ++row) {
    for (int64_t column = 0; column < shape_.w; ++column) {
      const int64_t pixel = (row + shape_.op.padding[0]) * shape_.wp + column + shape_.op.padding[1];
      std::copy_n(image + pixel * padded_channels_, shape_.cg, target + (row * shape_.w + column) * shape_.c);
    }
  }
}

UnpooledFilterGrad::UnpooledFilterGrad(const ConvShape& shape)
    : shape_(shape),
      taps_(shape.tap_offsets()),
      positions_(shape.position_offsets()),
      padded_channels_(round_up(shape.kg, kMostLanes)) {
  const int64_t floats = shape.padded_elements() + shape.positions() * shape.k;
  images_per_block_ =
      std::clamp<int64_t>(kCacheFloats / std::max<int64_t>(1, floats), 1, std::max<int64_t>(1, shape.n));
}

int64_t UnpooledFilterGrad::workspace_bytes() const {
  const int64_t sums = round_up(shape_.taps() * padded_channels_, kWorkspaceAlignment);
  const int64_t gradient =
      round_up(images_per_block_ * shape_.positions() * padded_channels_, kWorkspaceAlignment);
  const int64_t images = shape_.padded() ? images_per_block_ * shape_.padded_elements() : 0;
  return (sums + (whole_rows() ? 0 : gradient) + images) * int64_t{sizeof(float)};
}

// sums[tap, k] += x[position + tap] x dy[position, k] over the positions of `count` images.
template <int V>
void UnpooledFilterGrad::run_block(const float* images, int64_t image_stride, int64_t count, const float* dy,
                                   int64_t dy_stride, int64_t column, float* sums) const {
  constexpr int kTaps = kSums / V;
  const int64_t taps = shape_.taps();
  const std::vector<int32_t>&offsets = *taps_, &positions = *positions_;
  for (int64_t first = 0; first < taps; first += kTaps) {
    const int64_t rows = std::min<int64_t>(kTaps, taps - first);
    int64_t offset[kTaps];
    for (int t = 0; t < kTaps; ++t)
      offset[t] = offsets[static_cast<size_t>(first + std::min<int64_t>(t, rows - 1))];
    Vec tile[kTaps][V];
    for (int t = 0; t < kTaps; ++t) {
      for (int v = 0; v < V; ++v) {
        tile[t][v] = t < rows ? load(sums + (first + t) * padded_channels_ + column + v * kLanes) : Vec{};
      }
    }
    const float* g = dy + column;
    const bool contiguous = rows == kTaps && offset[kTaps - 1] - offset[0] == kTaps - 1;
    for (int64_t image = 0; image < count; ++image) {
      const float* pixels = images + image * image_stride;
      for (const int32_t position : positions) {
        Vec row[V];
        for (int v = 0; v < V; ++v) row[v] = load(g + v * kLanes);
        g += dy_stride;
        const float* x = pixels + position;
        if (contiguous) {
          x += offset[0];
#pragma GCC unroll 24
          for (int t = 0; t < kTaps; ++t) {
            for (int v = 0; v < V; ++v) tile[t][v] += x[t] * row[v];
          }
        } else {
#pragma GCC unroll 24
          for (int t = 0; t < kTaps; ++t) {
            for (int v = 0; v < V; ++v) tile[t][v] += x[offset[t]] * row[v];
          }
        }
      }
    }
#pragma GCC unroll 24
    for (int t = 0; t < kTaps; ++t) {
      if (t >= rows) break;
      for (int v = 0; v < V; ++v)
        store(sums + (first + t) * padded_channels_ + column + v * kLanes, tile[t][v]);
    }
  }
}

void UnpooledFilterGrad::operator()(const float* x, const float* dy, float* dfilter, float* workspace) const {
  const int64_t taps = shape_.taps(), positions = shape_.positions();
  const int64_t channels = round_up(shape_.kg, kLanes);
  float* sums = workspace;
  float* gradient = sums + round_up(taps * padded_channels_, kWorkspaceAlignment);
  float* buffer =
      gradient +
      (whole_rows() ? 0 : round_up(images_per_block_ * positions * padded_channels_, kWorkspaceAlignment));
  for (int64_t group = 0; group < shape_.groups; ++group) {
    std::fill_n(sums, taps * padded_channels_, 0.0f);
    for (int64_t first = 0; first < shape_.n; first += images_per_block_) {
      const int64_t count = std::min(images_per_block_, shape_.n - first);
      const float* images = x + first * shape_.image_elements();
      for (int64_t i = 0; i < count && shape_.padded(); ++i) {
        shape_.padded_image(x, first + i, buffer + i * shape_.padded_elements());
        images = buffer;
      }
      const float* g = dy + first * positions * shape_.k;
      if (!whole_rows()) {
        // Rows of whole vectors, so that the tiles need no masks.
        for (int64_t row = 0; row < count * positions; ++row) {
          float* target = gradient + row * padded_channels_;
          std::copy_n(g + row * shape_.k + group * shape_.kg, shape_.kg, target);
          std::fill(target + shape_.kg, target + padded_channels_, 0.0f);
        }
        g = gradient;
      }
      images += group * shape_.cg;
      int64_t column = 0;
      for (; column + 4 * kLanes <= channels; column += 4 * kLanes) {
        run_block<4>(images, shape_.padded_elements(), count, g, padded_channels_, column, sums);
      }
      for (; column + 2 * kLanes <= channels; column += 2 * kLanes) {
        run_block<2>(images, shape_.padded_elements(), count, g, padded_channels_, column, sums);
      }
      for (; column < channels; column += kLanes) {
        run_block<1>(images, shape_.padded_elements(), count, g, padded_channels_, column, sums);
      }
    }
    for (int64_t tap = 0; tap < taps; ++tap) {
      std::copy_n(sums + tap * padded_channels_, shape_.kg, dfilter + tap * shape_.k + group * shape_.kg);
    }
  }
}

}  // namespace headroom::cpu
