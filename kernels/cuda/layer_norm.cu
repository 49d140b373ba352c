// Layer normalisation over the last axis (Ba et al. 2016), and running sums. A block works on a row.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cuda/channel_sums.cuh"

namespace headroom::cuda {
namespace {

struct TwoSums {
  float first, second;
};
struct AddTwoSums {
  __device__ TwoSums operator()(const TwoSums& a, const TwoSums& b) const {
    return {a.first + b.first, a.second + b.second};
  }
};

__global__ void normalise_rows(int64_t rows, int64_t n, float epsilon, Reals x, Reals gamma, Reals beta,
                               RealsOut y, RealsOut mean, RealsOut deviation) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const Reals from = x + row * n;
    float sum = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) sum += from[i];
    const float centre = combine_block(sum, 1, Add()) / static_cast<float>(n);
    // A second pass: the mean of squares less the squared mean would cancel.
    float squares = 0;
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) squares += (from[i] - centre) * (from[i] - centre);
    const float inverse = 1 / sqrtf(combine_block(squares, 1, Add()) / static_cast<float>(n) + epsilon);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      y.set(row * n + i, (from[i] - centre) * inverse * gamma[i] + beta[i]);
    }
    if (threadIdx.x == 0) {
      mean.set(row, centre);
      deviation.set(row, inverse);
    }
  }
}

// With x' = (x - mean) deviation and g = dy gamma: dx = deviation (g - mean of g - x' mean of g x')
__global__ void normalise_rows_gradient(int64_t rows, int64_t n, Reals dy, Reals x, Reals gamma, Reals mean,
                                        Reals deviation, RealsOut dx) {
  for (int64_t row = blockIdx.x; row < rows; row += gridDim.x) {
    const Reals gradient = dy + row * n, from = x + row * n;
    const float centre = mean[row], inverse = deviation[row];
    TwoSums sums{};
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const float g = gradient[i] * gamma[i];
      sums = AddTwoSums()(sums, {g, g * ((from[i] - centre) * inverse)});
    }
    sums = combine_block(sums, 1, AddTwoSums());
    const float shift = sums.first / static_cast<float>(n), slope = sums.second / static_cast<float>(n);
    for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
      const float normal = (from[i] - centre) * inverse;
      dx.set(row * n + i, inverse * (gradient[i] * gamma[i] - shift - normal * slope));
    }
  }
}

// dbeta = the sum over rows of dy, dgamma = of dy x'
struct ColumnGradients {
  int64_t columns;
  Reals dy, x, mean, deviation;
  __device__ auto of_channel(int64_t column) const {
    return [gradients = dy + column, from = x + column, step = columns, mean = mean,
            deviation = deviation](int64_t row) {
      const float gradient = gradients[row * step];
      return ChannelSums{static_cast<double>(gradient),
                         static_cast<double>(gradient * ((from[row * step] - mean[row]) * deviation[row]))};
    };
  }
};

// A thread for each line along the axis, of elements `inner` apart.
template <typename T, typename Y>
__global__ void sum_lines(int64_t lines, int64_t extent, int64_t inner, bool exclusive, bool reverse,
                          const T x, Y y) {
  using Sum = std::conditional_t<std::is_same_v<T, Reals>, double, uint32_t>;  // whole numbers wrap around
  using Element = std::conditional_t<std::is_same_v<T, Reals>, float, int32_t>;
  const int64_t step = reverse ? -inner : inner, start = reverse ? (extent - 1) * inner : 0;
  for (int64_t line = grid_thread(); line < lines; line += grid_threads()) {
    int64_t at = line / inner * extent * inner + line % inner + start;
    Sum sum = 0;
    for (int64_t i = 0; i < extent; ++i, at += step) {
      const Sum before = sum;
      sum += static_cast<Sum>(x[at]);
      put(y, at, static_cast<Element>(exclusive ? before : sum));
    }
  }
}

unsigned blocks_of_rows(const CudaGpu& device, int64_t rows) {
  return blocks_for(device, rows * kThreads);
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const LayerNorm& op, const Request& request) {
  const int64_t n = request.inputs[0].shape.last(), rows = request.inputs[0].shape.elements() / n;
  return function_kernel([=, &device = request.device](const Call& call) {
    if (rows == 0) return;
    launch(normalise_rows, blocks_of_rows(device, rows), kThreads, call.stream, rows, n, op.epsilon,
           operand(call, 0), operand(call, 1), operand(call, 2), result(call, 0), result(call, 1),
           result(call, 2));
  });
}

std::unique_ptr<Kernel> make_kernel(const LayerNormGrad&, const Request& request) {
  const int64_t n = request.inputs[1].shape.last(), rows = request.inputs[1].shape.elements() / n;
  const ReductionLayout layout = channel_layout(request, request.inputs[1].shape);
  return function_kernel(
      [=, last = layout_of_partials(layout), &device = request.device](const Call& call) {
        if (rows > 0) {
          launch(normalise_rows_gradient, blocks_of_rows(device, rows), kThreads, call.stream, rows, n,
                 operand(call, 0), operand(call, 1), operand(call, 2), operand(call, 3), operand(call, 4),
                 result(call));
        }
        auto* partial = call.scratch<ChannelSums>();
        const ColumnGradients in{n, operand(call, 0), operand(call, 1), operand(call, 3), operand(call, 4)};
        launch(sum_channels<ColumnGradients>, layout.grid(), kThreads, call.stream, in, layout, partial);
        launch(finish_gradients, last.grid(), kThreads, call.stream, last, partial, result(call, 1),
               result(call, 2));
      },
      partial_bytes(layout));
}

std::unique_ptr<Kernel> make_kernel(const CumulativeSum& op, const Request& request) {
  const TensorSpec& x = request.inputs[0];
  int64_t inner = 1;
  for (int axis = op.axis + 1; axis < x.shape.rank(); ++axis) inner *= x.shape[axis];
  const int64_t extent = x.shape[op.axis], lines = x.shape.elements() == 0 ? 0 : x.shape.elements() / extent;
  return function_kernel([=, &device = request.device, dtype = x.dtype](const Call& call) {
    if (lines == 0) return;
    if (dtype != DType::kI32) {
      launch(sum_lines<Reals, RealsOut>, blocks_for(device, lines), kThreads, call.stream, lines, extent,
             inner, op.exclusive, op.reverse, operand(call, 0), result(call));
    } else {
      launch(sum_lines<const int32_t*, int32_t*>, blocks_for(device, lines), kThreads, call.stream, lines,
             extent, inner, op.exclusive, op.reverse, call.in<int32_t>(0), call.out<int32_t>());
    }
  });
}

}  // namespace headroom::cuda
