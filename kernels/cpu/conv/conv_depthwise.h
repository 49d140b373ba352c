// Convolutions each of whose groups is one channel, as mobile nets have them. Knows no graph.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cpu/conv/conv_shape.h"

namespace headroom::cpu {

// Along one axis: which taps of a filter meet which positions.
class AxisTaps {
 public:
  struct Tap {
    int64_t index, at;  // `at` is the position on the other side
  };
  // For each output the taps and the pixels that they read; for each pixel the taps and the outputs that they
  // add to. Taps ascend, and those in the padding are left out.
  static AxisTaps of_outputs(int64_t outputs, int64_t pixels, int64_t taps, int stride, int padding,
                             int dilation);
  static AxisTaps of_pixels(int64_t outputs, int64_t pixels, int64_t taps, int stride, int padding,
                            int dilation);

  std::span<const Tap> of(int64_t position) const {
    const auto begin = first_[static_cast<size_t>(position)], end = first_[static_cast<size_t>(position) + 1];
    return {taps_.data() + begin, end - begin};
  }
  int64_t positions() const { return static_cast<int64_t>(first_.size()) - 1; }

 private:
  std::vector<size_t> first_ = {0};
  std::vector<Tap> taps_;
};

// Vectors of channels: with the channels last each tap is one product of vectors. The general kernels would
// visit the whole image once for each channel. Takes no workspace.
class Depthwise {
 public:
  static bool fits(const ConvShape& shape) { return shape.groups > 1 && shape.cg == 1 && shape.kg == 1; }
  Depthwise(const ConvShape& shape, ThreadPool* threads);

  // x, filter -> y; with a bias it is added, then comes relu.
  void forward(const float* x, const float* filter, const float* bias, float* y) const;
  // dy, filter -> dx
  void input_grad(const float* dy, const float* filter, float* dx) const;
  // x, dy -> dfilter
  void filter_grad(const float* x, const float* dy, float* dfilter) const;

 private:
  // `to` has rows.positions() x columns.positions() pixels an image, `from` has `from_height` x `from_width`.
  void accumulate(const AxisTaps& rows, const AxisTaps& columns, const float* from, int64_t from_height,
                  int64_t from_width, const float* filter, const float* bias, float* to) const;

  ConvShape shape_;
  OnFirstUse<AxisTaps> output_rows_, output_columns_, pixel_rows_, pixel_columns_;
  ThreadPool* threads_;
};

}  // namespace headroom::cpu
