#include "kernels/cpu/conv/conv_depthwise.h"

#include <algorithm>
#include <iterator>

#include "base/thread_pool.h"

namespace headroom::cpu {

AxisTaps AxisTaps::of_outputs(int64_t outputs, int64_t pixels, int64_t taps, int stride, int padding,
                              int dilation) {
  AxisTaps axis;
  for (int64_t output = 0; output < outputs; ++output) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t pixel = output * stride + tap * dilation - padding;
      if (pixel >= 0 && pixel < pixels) axis.taps_.push_back({tap, pixel});
    }
    axis.first_.push_back(axis.taps_.size());
  }
  return axis;
}

AxisTaps AxisTaps::of_pixels(int64_t outputs, int64_t pixels, int64_t taps, int stride, int padding,
                             int dilation) {
  AxisTaps axis;
  for (int64_t pixel = 0; pixel < pixels; ++pixel) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t at = pixel + padding - tap * dilation;  // position in the output, times the stride
      if (at >= 0 && at % stride == 0 && at / stride < outputs) axis.taps_.push_back({tap, at / stride});
    }
    axis.first_.push_back(axis.taps_.size());
  }
  return axis;
}

Depthwise::Depthwise(const ConvShape& shape, ThreadPool* threads)
    : shape_(shape),
      output_rows_([s = shape] {
        return AxisTaps::of_outputs(s.oh, s.h, s.kh, s.op.stride[0], s.op.padding[0], s.op.dilation[0]);
      }),
      output_columns_([s = shape] {
        return AxisTaps::of_outputs(s.ow, s.w, s.kw, s.op.stride[1], s.op.padding[1], s.op.dilation[1]);
      }),
      pixel_rows_([s = shape] {
        return AxisTaps::of_pixels(s.oh, s.h, s.kh, s.op.stride[0], s.op.padding[0], s.op.dilation[0]);
      }),
      pixel_columns_([s = shape] {
        return AxisTaps::of_pixels(s.ow, s.w, s.kw, s.op.stride[1], s.op.padding[1], s.op.dilation[1]);
      }),
      threads_(threads) {}

void Depthwise::accumulate(const AxisTaps& rows, const AxisTaps& columns, const float* from,
                           int64_t from_height, int64_t from_width, const float* filter, const float* bias,
                           float* to) const {
  const int64_t channels = shape_.c, height = rows.positions(), width = columns.positions();
  for_each_piece(threads_, shape_.n * height, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t line = begin; line < end; ++line) {
      const float* image = from + line / height * from_height * from_width * channels;
      const auto row_taps = rows.of(line % height);
      // kPixels pixels side by side that all taps reach share the weights that they load.
      const auto run = [&]<int kPixels>(int64_t column) {
        std::span<const AxisTaps::Tap> taps[kPixels];
        for (int p = 0; p < kPixels; ++p) taps[p] = columns.of(column + p);
        for_each_vectors(channels, [&](auto vectors, int64_t first, auto lanes) {
          Vec sums[kPixels][vectors] = {};
          for (int v = 0; v < vectors && bias != nullptr; ++v) {
            for (int p = 0; p < kPixels; ++p) sums[p][v] = load_some(bias + first + v * kLanes, lanes);
          }
          for (const AxisTaps::Tap& row : row_taps) {
            const float* line_of_image = image + row.at * from_width * channels + first;
            const float* line_of_filter = filter + row.index * shape_.kw * channels + first;
            for (size_t tap = 0; tap < taps[0].size(); ++tap) {
              const float* weights = line_of_filter + taps[0][tap].index * channels;
              Vec w[vectors];
              for (int v = 0; v < vectors; ++v) w[v] = load_some(weights + v * kLanes, lanes);
              for (int p = 0; p < kPixels; ++p) {
                const float* x = line_of_image + taps[p][tap].at * channels;
                for (int v = 0; v < vectors; ++v) sums[p][v] += load_some(x + v * kLanes, lanes) * w[v];
              }
            }
          }
          for (int p = 0; p < kPixels; ++p) {
            float* pixel = to + (line * width + column + p) * channels + first;
            for (int v = 0; v < vectors; ++v) {
              if (bias != nullptr) sums[p][v] = sums[p][v] < 0.0f ? Vec{} : sums[p][v];
              store_some(pixel + v * kLanes, sums[p][v], lanes);
            }
          }
        });
      };
      constexpr int kPixels = kVectorRegisters == 32 ? 4 : 2;
      const auto are_whole = [&](int64_t column) {
        for (int p = 0; p < kPixels; ++p) {
          if (column + p >= width || std::ssize(columns.of(column + p)) != shape_.kw) return false;
        }
        return true;
      };
      for (int64_t column = 0; column < width;) {
        if (are_whole(column)) {
          run.template operator()<kPixels>(column);
          column += kPixels;
        } else {
          run.template operator()<1>(column++);
        }
      }
    }
  });
}

void Depthwise::forward(const float* x, const float* filter, const float* bias, float* y) const {
  accumulate(*output_rows_, *output_columns_, x, shape_.h, shape_.w, filter, bias, y);
}

void Depthwise::input_grad(const float* dy, const float* filter, float* dx) const {
  accumulate(*pixel_rows_, *pixel_columns_, dy, shape_.oh, shape_.ow, filter, nullptr, dx);
}

void Depthwise::filter_grad(const float* x, const float* dy, float* dfilter) const {
  const int64_t channels = shape_.c, window = shape_.kh * shape_.kw;
  const int64_t pieces = (channels + kLanes - 1) / kLanes;
  const AxisTaps &rows = *output_rows_, &columns = *output_columns_;
  for_each_piece(threads_, pieces, 1, [&](int64_t begin, int64_t end, int) {
    const int64_t from = begin * kLanes, to = std::min(end * kLanes, channels);
    for (int64_t tap = 0; tap < window; ++tap) std::fill_n(dfilter + tap * channels + from, to - from, 0.0f);
    for_each_vectors(to - from, [&](auto vectors, int64_t offset, auto lanes) {
      const int64_t first = from + offset;
      const float* gradient = dy + first;
      for (int64_t image = 0; image < shape_.n; ++image) {
        const float* pixels = x + image * shape_.image_elements() + first;
        for (int64_t row = 0; row < shape_.oh; ++row) {
          const auto row_taps = rows.of(row);
          for (int64_t column = 0; column < shape_.ow; ++column, gradient += channels) {
            Vec g[vectors];
            for (int v = 0; v < vectors; ++v) g[v] = load_some(gradient + v * kLanes, lanes);
            for (const AxisTaps::Tap& of_row : row_taps) {
              for (const AxisTaps::Tap& of_column : columns.of(column)) {
                const float* pixel = pixels + (of_row.at * shape_.w + of_column.at) * channels;
                float* sum = dfilter + (of_row.index * shape_.kw + of_column.index) * channels + first;
                for (int v = 0; v < vectors; ++v) {
                  const int64_t at = v * kLanes;
                  store_some(sum + at, load_some(sum + at, lanes) + load_some(pixel + at, lanes) * g[v],
                             lanes);
                }
              }
            }
          }
        }
      }
    });
  });
}

}  // namespace headroom::cpu
