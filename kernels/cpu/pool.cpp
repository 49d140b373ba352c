// Max and average pooling over (N,H,W,C) and their gradients. Works window by window, with the channels
// innermost.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/simd.h"

namespace headroom::cpu {
namespace {

// The part of one window that lies inside the image.
struct Window {
  int64_t output;  // offset of its result, first channel
  int64_t input;   // offset of its first position inside the image, first channel
  int rows, columns;
  int first_row, first_column;  // that position, counted inside the whole window
};

class PoolGeometry {
 public:
  PoolGeometry(const Pool2d& pool, const Shape& x, const Shape& y)
      : images(x[0]), image_elements(x[1] * x[2] * x[3]), channels(x[3]), pool_(pool), x_(x), y_(y) {}

  template <typename F>
  void for_each_window(int64_t image, F f) const {
    for (int64_t oh = 0; oh < y_[1]; ++oh) {
      const Span rows = clip(oh, 0);
      for (int64_t ow = 0; ow < y_[2]; ++ow) {
        const Span columns = clip(ow, 1);
        f(Window{((image * y_[1] + oh) * y_[2] + ow) * channels,
                 ((image * x_[1] + rows.begin) * x_[2] + columns.begin) * channels, rows.count, columns.count,
                 rows.first, columns.first});
      }
    }
  }
  // Calls f(offset, position) for the window's positions in row-major order: the offset in the image of the
  // first channel, and the position counted inside the whole window.
  template <typename F>
  void for_each_position(const Window& window, F f) const {
    for (int row = 0; row < window.rows; ++row) {
      for (int column = 0; column < window.columns; ++column) {
        f(window.input + (row * x_[2] + column) * channels,
          (window.first_row + row) * pool_.window[1] + window.first_column + column);
      }
    }
  }

  const int64_t images, image_elements, channels;

 private:
  struct Span {
    int64_t begin;
    int count, first;
  };
  Span clip(int64_t output, size_t axis) const {
    const int64_t begin = output * pool_.stride[axis] - pool_.padding[axis];
    const int64_t inside = std::max<int64_t>(begin, 0);
    const int64_t end = std::min(begin + pool_.window[axis], x_[static_cast<int>(axis) + 1]);
    return {inside, static_cast<int>(end - inside), static_cast<int>(inside - begin)};
  }

  Pool2d pool_;
  Shape x_, y_;
};

// Channels that are worked on at once: one AVX-512 register of floats.
constexpr int kPoolLanes = 16;

// Calls f(channel, lanes) with lanes as a compile-time constant, so that f's values per lane stay in
// registers.
template <typename F>
void for_each_lanes(int64_t channels, F f) {
  int64_t channel = 0;
  for (; channel + kPoolLanes <= channels; channel += kPoolLanes)
    f(channel, std::integral_constant<int, kPoolLanes>());
  for (; channel < channels; ++channel) f(channel, std::integral_constant<int, 1>());
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const MaxPool& op, const Request& request) {
  const PoolGeometry geometry(op.pool, request.inputs[0].shape, request.outputs[0].shape);
  return function_kernel([=](const Call& call) {
    const float* x = call.in(0);
    float* y = call.out(0);
    uint8_t* index = call.out<uint8_t>(1);
    // NaN wins over numbers and then stays.
    const auto reduce = [&](const Window& window) {
      for_each_vectors(geometry.channels, [&](auto vectors, int64_t first, auto lanes) {
        Vec best[vectors];
        for (int v = 0; v < vectors; ++v) best[v] = load_some(x + window.input + first + v * kLanes, lanes);
        const auto each = [&](auto take) {
          geometry.for_each_position(window, [&](int64_t offset, int32_t position) {
            for (int v = 0; v < vectors; ++v)
              take(v, load_some(x + offset + first + v * kLanes, lanes), position);
          });
        };
        if (index == nullptr) {
          each([&](int v, Vec value, int32_t) {
            best[v] = ((value > best[v]) | (value != value)) ? value : best[v];
          });
        } else {
          IntVec at[vectors];
          for (int v = 0; v < vectors; ++v)
            at[v] = IntVec{} + (window.first_row * op.pool.window[1] + window.first_column);
          each([&](int v, Vec value, int32_t position) {
            const IntVec better = ((value > best[v]) | (value != value)) & (best[v] == best[v]);
            best[v] = better ? value : best[v];
            at[v] = better ? IntVec{} + position : at[v];
          });
          for (int v = 0; v < vectors; ++v)
            store_some_bytes(index + window.output + first + v * kLanes, at[v], lanes);
        }
        for (int v = 0; v < vectors; ++v) store_some(y + window.output + first + v * kLanes, best[v], lanes);
      });
    };
    for (int64_t image = 0; image < geometry.images; ++image) geometry.for_each_window(image, reduce);
  });
}

std::unique_ptr<Kernel> make_kernel(const MaxPoolGrad& op, const Request& request) {
  const PoolGeometry geometry(op.pool, request.outputs[0].shape, request.inputs[0].shape);
  return function_kernel([=](const Call& call) {
    const float* dy = call.in(0);
    const uint8_t* index = call.in<uint8_t>(1);
    const float* added = call.inputs.size() > 2 ? call.in(2) : nullptr;
    float* dx = call.out();
    const auto spread = [&](const Window& window) {
      for_each_lanes(geometry.channels, [&](int64_t channel, auto lanes) {
        float gradient[lanes];
        int32_t chosen[lanes];
        for (int j = 0; j < lanes; ++j) gradient[j] = dy[window.output + channel + j];
        for (int j = 0; j < lanes; ++j) chosen[j] = index[window.output + channel + j];
        geometry.for_each_position(window, [&](int64_t offset, int32_t position) {
          float* result = dx + offset + channel;
#pragma omp simd
          for (int j = 0; j < lanes; ++j) result[j] += chosen[j] == position ? gradient[j] : 0;
        });
      });
    };
    // Works image by image, so that the initial values are still in the cache when gradients are added.
    for (int64_t image = 0; image < geometry.images; ++image) {
      const int64_t first = image * geometry.image_elements;
      if (added == nullptr) {
        std::fill_n(dx + first, geometry.image_elements, 0.0f);
      } else if (added != dx) {
        std::copy_n(added + first, geometry.image_elements, dx + first);
      }
      geometry.for_each_window(image, spread);
    }
  });
}

std::unique_ptr<Kernel> make_kernel(const AvgPool& op, const Request& request) {
  const PoolGeometry geometry(op.pool, request.inputs[0].shape, request.outputs[0].shape);
  return function_kernel([=](const Call& call) {
    const float* x = call.in(0);
    const int64_t channels = geometry.channels;
    const auto reduce = [&](const Window& window) {
      float* y = call.out() + window.output;
      std::fill_n(y, channels, 0.0f);
      geometry.for_each_position(window, [&](int64_t offset, int) {
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c) y[c] += x[offset + c];
      });
      const float share = 1 / static_cast<float>(window.rows * window.columns);
#pragma omp simd
      for (int64_t c = 0; c < channels; ++c) y[c] *= share;
    };
    for (int64_t image = 0; image < geometry.images; ++image) geometry.for_each_window(image, reduce);
  });
}

std::unique_ptr<Kernel> make_kernel(const AvgPoolGrad& op, const Request& request) {
  const PoolGeometry geometry(op.pool, request.outputs[0].shape, request.inputs[0].shape);
  return function_kernel([=](const Call& call) {
    float* dx = call.out();
    const int64_t channels = geometry.channels;
    const auto spread = [&](const Window& window) {
      const float* dy = call.in(0) + window.output;
      const float share = 1 / static_cast<float>(window.rows * window.columns);
      geometry.for_each_position(window, [&](int64_t offset, int) {
#pragma omp simd
        for (int64_t c = 0; c < channels; ++c) dx[offset + c] += dy[c] * share;
      });
    };
    for (int64_t image = 0; image < geometry.images; ++image) {
      std::fill_n(dx + image * geometry.image_elements, geometry.image_elements, 0.0f);
      geometry.for_each_window(image, spread);
    }
  });
}

}  // namespace headroom::cpu
