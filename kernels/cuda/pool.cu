// Max and average pooling over (N,H,W,C) and their gradients. A thread works on neighboring channels of one
// pixel: a pixel of the output, or, for a gradient, a pixel of the image, which looks for the windows that it
// is in, so that nothing is added from two sides.
#include <type_traits>

#include "kernels/cuda/device_loops.cuh"

namespace headroom::cuda {
namespace {

// Along one axis: the extent of the image, of the output, and the windows.
struct PoolAxis {
  int input, output, window, stride, padding;
  Divider<uint32_t> by_stride = Divider<uint32_t>(stride);

  // Returns true if every position is in exactly one window.
  bool are_apart() const { return window == stride && padding == 0 && output * stride == input; }

  // A window's first position, outside the image where padded, and the part [begin, end) of it inside.
  struct Range {
    int begin, end;
  };
  __device__ int first(int out) const { return out * stride - padding; }
  __device__ Range inside(int out) const { return {max(first(out), 0), min(first(out) + window, input)}; }
  // The windows that have input position `in` inside.
  __device__ Range windows_over(int in) const {
    const int last = in + padding;
    const auto strides = [&](int n) {
      return static_cast<int>(by_stride.quotient(static_cast<uint32_t>(n)));
    };
    return {last < window ? 0 : strides(last - window) + 1, min(strides(last) + 1, output)};
  }
};

// Channels [channel, channel + N) of a pixel of an image.
template <typename I>
struct Pixel {
  int64_t image;
  int row, column;
  I channel;
};
template <typename I>
class Pixels {
 public:
  Pixels(int64_t images, int64_t rows, int64_t columns, int64_t groups)
      : count_(images * rows * columns * groups), rows_(rows), columns_(columns), groups_(groups) {}
  __device__ int64_t size() const { return count_; }
  template <int N>
  __device__ Pixel<I> at(int64_t i) const {
    const auto index = static_cast<I>(i);
    const I pixel = groups_.quotient(index), line = columns_.quotient(pixel), image = rows_.quotient(line);
    return {static_cast<int64_t>(image), static_cast<int>(line - image * rows_.divisor),
            static_cast<int>(pixel - line * columns_.divisor), (index - pixel * groups_.divisor) * N};
  }

 private:
  int64_t count_;
  Divider<I> rows_, columns_, groups_;
};

struct PoolGeometry {
  PoolAxis rows, columns;
  int64_t images, channels;

  PoolGeometry(const Pool2d& pool, const Shape& x, const Shape& y)
      : rows(axis(pool, x, y, 0)), columns(axis(pool, x, y, 1)), images(x[0]), channels(x[3]) {}

  // Offset of a pixel's first channel in the image and in the output.
  __device__ int64_t input(int64_t image, int row, int column) const {
    return ((image * rows.input + row) * columns.input + column) * channels;
  }
  __device__ int64_t output(int64_t image, int row, int column) const {
    return ((image * rows.output + row) * columns.output + column) * channels;
  }

 private:
  static PoolAxis axis(const Pool2d& pool, const Shape& x, const Shape& y, size_t i) {
    const int axis = static_cast<int>(i) + 1;
    return {static_cast<int>(x[axis]), static_cast<int>(y[axis]), pool.window[i], pool.stride[i],
            pool.padding[i]};
  }
};

// The places (row, column) of two ranges, row by row, several at a time: calls fetch(row, column, k) for up
// to kPlacesAtOnce of them, then use(row, column, k) for each, so that their loads do not wait for one
// another.
constexpr int kPlacesAtOnce = 4;
template <typename Fetch, typename Use>
__device__ void for_each_place(const PoolAxis::Range& rows, const PoolAxis::Range& columns,
                               const Fetch& fetch, const Use& use) {
  if (columns.begin >= columns.end) return;
  int row = rows.begin, column = columns.begin;
  while (row < rows.end) {
    int at_row[kPlacesAtOnce], at_column[kPlacesAtOnce];
#pragma unroll
    for (int k = 0; k < kPlacesAtOnce; ++k) {
      at_row[k] = row;
      at_column[k] = column;
      if (row >= rows.end) continue;
      fetch(row, column, k);
      if (++column < columns.end) continue;
      column = columns.begin;
      ++row;
    }
#pragma unroll
    for (int k = 0; k < kPlacesAtOnce; ++k) {
      if (at_row[k] < rows.end) use(at_row[k], at_column[k], k);
    }
  }
}

template <int N, typename I>
__global__ void max_pool(PoolGeometry geometry, Pixels<I> outputs, Reals x, RealsOut y, uint8_t* index) {
  for (int64_t i = grid_thread(); i < outputs.size(); i += grid_threads()) {
    const Pixel<I> at = outputs.template at<N>(i);
    const PoolAxis::Range rows = geometry.rows.inside(at.row), columns = geometry.columns.inside(at.column);
    const int first_row = geometry.rows.first(at.row), first_column = geometry.columns.first(at.column);
    Lanes<float, N> best;
    Lanes<uint8_t, N> position;
    Packed<N> fetched[kPlacesAtOnce];
    for_each_place(
        rows, columns,
        [&](int row, int column, int k) {
          fetched[k] = fetch_packed<N>(x, geometry.input(at.image, row, column) + at.channel);
        },
        [&](int row, int column, int k) {
          const Lanes<float, N> values = widened(fetched[k]);
          const auto here =
              static_cast<uint8_t>((row - first_row) * geometry.columns.window + column - first_column);
          const bool first = row == rows.begin && column == columns.begin;
#pragma unroll
          for (int lane = 0; lane < N; ++lane) {
            const float value = values.values[lane], largest = best.values[lane];
            // NaN wins over numbers and then stays.
            if (!first && (value <= largest || largest != largest)) continue;
            best.values[lane] = value;
            position.values[lane] = here;
          }
        });
    const int64_t to = geometry.output(at.image, at.row, at.column) + at.channel;
    store(y + to, best);
    if (index != nullptr) store(index + to, position);
  }
}

template <int N, typename I>
__global__ void max_pool_grad(PoolGeometry geometry, Pixels<I> inputs, Reals dy, const uint8_t* index,
                              Reals added, RealsOut dx) {
  for (int64_t i = grid_thread(); i < inputs.size(); i += grid_threads()) {
    const Pixel<I> at = inputs.template at<N>(i);
    const int64_t to = geometry.input(at.image, at.row, at.column) + at.channel;
    Packed<N> other{};
    if (added.data != nullptr) other = fetch_packed<N>(added, to);
    Lanes<float, N> sum = widened(other);
    Packed<N> gradients[kPlacesAtOnce];
    Lanes<uint8_t, N> chosen[kPlacesAtOnce];
    for_each_place(
        geometry.rows.windows_over(at.row), geometry.columns.windows_over(at.column),
        [&](int row, int column, int k) {
          const int64_t from = geometry.output(at.image, row, column) + at.channel;
          gradients[k] = fetch_packed<N>(dy, from);
          chosen[k] = load<N>(index + from);
        },
        [&](int row, int column, int k) {
          const Lanes<float, N> gradient = widened(gradients[k]);
          const int here = (at.row - geometry.rows.first(row)) * geometry.columns.window + at.column -
                           geometry.columns.first(column);
#pragma unroll
          for (int lane = 0; lane < N; ++lane) {
            sum.values[lane] += chosen[k].values[lane] == here ? gradient.values[lane] : 0;
          }
        });
    store(dx + to, sum);
  }
}

// The gradient for windows that do not overlap: each is read once, by the thread that writes all of its
// pixels.
template <int N, typename I>
__global__ void max_pool_grad_apart(PoolGeometry geometry, Pixels<I> outputs, Reals dy, const uint8_t* index,
                                    Reals added, RealsOut dx) {
  for (int64_t i = grid_thread(); i < outputs.size(); i += grid_threads()) {
    const Pixel<I> at = outputs.template at<N>(i);
    const int64_t from = geometry.output(at.image, at.row, at.column) + at.channel;
    const Packed<N> fetched = fetch_packed<N>(dy, from);
    const Lanes<uint8_t, N> chosen = load<N>(index + from);
    const Lanes<float, N> gradient = widened(fetched);
    const int first_row = geometry.rows.first(at.row), first_column = geometry.columns.first(at.column);
    const auto place = [&](int row, int column) {
      return geometry.input(at.image, row, column) + at.channel;
    };
    Packed<N> others[kPlacesAtOnce]{};
    for_each_place(
        {first_row, first_row + geometry.rows.window}, {first_column, first_column + geometry.columns.window},
        [&](int row, int column, int k) {
          if (added.data != nullptr) others[k] = fetch_packed<N>(added, place(row, column));
        },
        [&](int row, int column, int k) {
          const int here = (row - first_row) * geometry.columns.window + column - first_column;
          Lanes<float, N> part = widened(others[k]);
#pragma unroll
          for (int lane = 0; lane < N; ++lane)
            part.values[lane] += chosen.values[lane] == here ? gradient.values[lane] : 0;
          store(dx + place(row, column), part);
        });
  }
}

template <int N, typename I>
__global__ void avg_pool(PoolGeometry geometry, Pixels<I> outputs, Reals x, RealsOut y) {
  for (int64_t i = grid_thread(); i < outputs.size(); i += grid_threads()) {
    const Pixel<I> at = outputs.template at<N>(i);
    const PoolAxis::Range rows = geometry.rows.inside(at.row), columns = geometry.columns.inside(at.column);
    Lanes<float, N> sum{};
    for (int row = rows.begin; row < rows.end; ++row) {
      for (int column = columns.begin; column < columns.end; ++column) {
        const auto values = load<N>(x + geometry.input(at.image, row, column) + at.channel);
#pragma unroll
        for (int lane = 0; lane < N; ++lane) sum.values[lane] += values.values[lane];
      }
    }
    const float share = 1 / static_cast<float>((rows.end - rows.begin) * (columns.end - columns.begin));
#pragma unroll
    for (int lane = 0; lane < N; ++lane) sum.values[lane] *= share;
    store(y + geometry.output(at.image, at.row, at.column) + at.channel, sum);
  }
}

template <int N, typename I>
__global__ void avg_pool_grad(PoolGeometry geometry, Pixels<I> inputs, Reals dy, RealsOut dx) {
  for (int64_t i = grid_thread(); i < inputs.size(); i += grid_threads()) {
    const Pixel<I> at = inputs.template at<N>(i);
    const PoolAxis::Range rows = geometry.rows.windows_over(at.row);
    const PoolAxis::Range columns = geometry.columns.windows_over(at.column);
    Lanes<float, N> sum{};
    for (int row = rows.begin; row < rows.end; ++row) {
      const PoolAxis::Range high = geometry.rows.inside(row);
      for (int column = columns.begin; column < columns.end; ++column) {
        const PoolAxis::Range wide = geometry.columns.inside(column);
        const float share = 1 / static_cast<float>((high.end - high.begin) * (wide.end - wide.begin));
        const auto gradient = load<N>(dy + geometry.output(at.image, row, column) + at.channel);
#pragma unroll
        for (int lane = 0; lane < N; ++lane) sum.values[lane] += gradient.values[lane] * share;
      }
    }
    store(dx + geometry.input(at.image, at.row, at.column) + at.channel, sum);
  }
}

// Queues kernel_of(lanes, index type) for the pixels of the output or of the image, with as many channels
// together as `arrays`, its operands, allow; `half` says that floats are stored in 16 bits.
enum class Side { kOutput, kImage };
template <typename KernelOf, typename... Arrays>
void launch_pool(const CudaGpu& device, cudaStream_t stream, const PoolGeometry& geometry, Side side,
                 bool half, KernelOf kernel_of, Arrays... arrays) {
  const bool output = side == Side::kOutput;
  const int64_t rows = output ? geometry.rows.output : geometry.rows.input;
  const int64_t columns = output ? geometry.columns.output : geometry.columns.input;
  const auto fits = [&](auto lanes) {
    return geometry.channels % lanes == 0 && (aligned<lanes>(arrays) && ...);
  };
  const bool eights = half && fits(std::integral_constant<int, 8>());
  const bool fours = fits(std::integral_constant<int, 4>());
  const int64_t groups = geometry.channels / (eights ? 8 : fours ? 4 : 1);
  const int64_t count = geometry.images * rows * columns * groups;
  if (count == 0) return;
  with_index_type(count, [&](auto type) {
    const Pixels<decltype(type)> pixels(geometry.images, rows, columns, groups);
    const auto queue = [&](auto lanes) {
      launch(kernel_of(lanes, type), blocks_for(device, count), kThreads, stream, geometry, pixels,
             arrays...);
    };
    if (eights) {
      queue(std::integral_constant<int, 8>());
    } else if (fours) {
      queue(std::integral_constant<int, 4>());
    } else {
      queue(std::integral_constant<int, 1>());
    }
  });
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const MaxPool& op, const Request& request) {
  const PoolGeometry geometry(op.pool, request.inputs[0].shape, request.outputs[0].shape);
  return function_kernel([&device = request.device, geometry](const Call& call) {
    const auto kernel = [](auto lanes, auto type) { return &max_pool<lanes, decltype(type)>; };
    launch_pool(device, call.stream, geometry, Side::kOutput, lanes_of(call) == 8, kernel, operand(call, 0),
                result(call), call.out<uint8_t>(1));
  });
}

std::unique_ptr<Kernel> make_kernel(const MaxPoolGrad& op, const Request& request) {
  const PoolGeometry geometry(op.pool, request.outputs[0].shape, request.inputs[0].shape);
  return function_kernel([&device = request.device, geometry](const Call& call) {
    const auto queue = [&](Side side, auto kernel) {
      launch_pool(device, call.stream, geometry, side, lanes_of(call) == 8, kernel, operand(call, 0),
                  call.in<uint8_t>(1), call.inputs.size() > 2 ? operand(call, 2) : Reals(), result(call));
    };
    if (geometry.rows.are_apart() && geometry.columns.are_apart()) {
      queue(Side::kOutput, [](auto lanes, auto type) { return &max_pool_grad_apart<lanes, decltype(type)>; });
    } else {
      queue(Side::kImage, [](auto lanes, auto type) { return &max_pool_grad<lanes, decltype(type)>; });
    }
  });
}

std::unique_ptr<Kernel> make_kernel(const AvgPool& op, const Request& request) {
  const PoolGeometry geometry(op.pool, request.inputs[0].shape, request.outputs[0].shape);
  return function_kernel([&device = request.device, geometry](const Call& call) {
    const auto kernel = [](auto lanes, auto type) { return &avg_pool<lanes, decltype(type)>; };
    launch_pool(device, call.stream, geometry, Side::kOutput, lanes_of(call) == 8, kernel, operand(call, 0),
                result(call));
  });
}

std::unique_ptr<Kernel> make_kernel(const AvgPoolGrad& op, const Request& request) {
  const PoolGeometry geometry(op.pool, request.outputs[0].shape, request.inputs[0].shape);
  return function_kernel([&device = request.device, geometry](const Call& call) {
    const auto kernel = [](auto lanes, auto type) { return &avg_pool_grad<lanes, decltype(type)>; };
    launch_pool(device, call.stream, geometry, Side::kImage, lanes_of(call) == 8, kernel, operand(call, 0),
                result(call));
  });
}

}  // namespace headroom::cuda
