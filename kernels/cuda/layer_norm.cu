// Layer normalisation over the last axis (Ba et al. 2016), and running sums.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "kernels/cuda/channel_sums.cuh"
#include "kernels/cuda/rows.cuh"

namespace headroom::cuda {
namespace {

struct NormOperands {
  float epsilon;
  Reals x, gamma, beta;
  RealsOut y, mean, deviation;
};
struct StreamedNorm {
  NormOperands in;
  template <typename Team>
  __device__ void operator()(const Team& team, int64_t row, int64_t n) const {
    const Reals from = in.x + row * n;
    float sum = 0;
    for (int64_t i = team.lane(); i < n; i += team.size()) sum += from[i];
    const float centre = team.combine(sum, Add()) / static_cast<float>(n);
    // A second pass: the mean of squares less the squared mean would cancel.
    float squares = 0;
    for (int64_t i = team.lane(); i < n; i += team.size()) squares += (from[i] - centre) * (from[i] - centre);
    const float inverse = 1 / sqrtf(team.combine(squares, Add()) / static_cast<float>(n) + in.epsilon);
    for (int64_t i = team.lane(); i < n; i += team.size()) {
      in.y.set(row * n + i, (from[i] - centre) * inverse * in.gamma[i] + in.beta[i]);
    }
    if (n == 0 || team.lane() != 0) return;
    in.mean.set(row, centre);
    in.deviation.set(row, inverse);
  }
};
template <int L, int K>
struct HeldNorm {
  NormOperands in;
  template <typename Team>
  __device__ void operator()(const Team& team, int64_t row, int64_t n) const {
    const RowPart<L, K> part = fetch_row<L, K>(team, in.x + row * n, n);
    float sum = 0, squares = 0;
    for_each_group<L, K>(team, n, [&](int64_t, int k) {
      const Lanes<float, L> x = widened(part.groups[k]);
#pragma unroll
      for (int i = 0; i < L; ++i) sum += x.values[i];
    });
    const float centre = team.combine(sum, Add()) / static_cast<float>(n);
    for_each_group<L, K>(team, n, [&](int64_t, int k) {
      const Lanes<float, L> x = widened(part.groups[k]);
#pragma unroll
      for (int i = 0; i < L; ++i) squares += (x.values[i] - centre) * (x.values[i] - centre);
    });
    const float inverse = 1 / sqrtf(team.combine(squares, Add()) / static_cast<float>(n) + in.epsilon);
    for_each_group<L, K>(team, n, [&](int64_t at, int k) {
      Lanes<float, L> x = widened(part.groups[k]);
      const Lanes<float, L> gamma = load<L>(in.gamma + at), beta = load<L>(in.beta + at);
#pragma unroll
      for (int i = 0; i < L; ++i)
        x.values[i] = (x.values[i] - centre) * inverse * gamma.values[i] + beta.values[i];
      store(in.y + (row * n + at), x);
    });
    if (n == 0 || team.lane() != 0) return;
    in.mean.set(row, centre);
    in.deviation.set(row, inverse);
  }
};

// With x' = (x - mean) deviation and g = dy gamma: dx = deviation (g - mean of g - x' mean of g x')
struct NormGradOperands {
  Reals dy, x, gamma, mean, deviation;
  RealsOut dx;
};
struct StreamedNormGrad {
  NormGradOperands in;
  template <typename Team>
  __device__ void operator()(const Team& team, int64_t row, int64_t n) const {
    const Reals gradient = in.dy + row * n, from = in.x + row * n;
    const float centre = in.mean[row], inverse = in.deviation[row];
    float first = 0, second = 0;
    for (int64_t i = team.lane(); i < n; i += team.size()) {
      const float g = gradient[i] * in.gamma[i];
      first += g;
      second += g * ((from[i] - centre) * inverse);
    }
    const float shift = team.combine(first, Add()) / static_cast<float>(n);
    const float slope = team.combine(second, Add()) / static_cast<float>(n);
    for (int64_t i = team.lane(); i < n; i += team.size()) {
      const float normal = (from[i] - centre) * inverse;
      in.dx.set(row * n + i, inverse * (gradient[i] * in.gamma[i] - shift - normal * slope));
    }
  }
};
template <int L, int K>
struct HeldNormGrad {
  NormGradOperands in;
  template <typename Team>
  __device__ void operator()(const Team& team, int64_t row, int64_t n) const {
    const RowPart<L, K> gradients = fetch_row<L, K>(team, in.dy + row * n, n);
    const RowPart<L, K> part = fetch_row<L, K>(team, in.x + row * n, n);
    const float centre = in.mean[row], inverse = in.deviation[row];
    float first = 0, second = 0;
    for_each_group<L, K>(team, n, [&](int64_t at, int k) {
      const Lanes<float, L> dy = widened(gradients.groups[k]), x = widened(part.groups[k]);
      const Lanes<float, L> gamma = load<L>(in.gamma + at);
#pragma unroll
      for (int i = 0; i < L; ++i) {
        const float g = dy.values[i] * gamma.values[i];
        first += g;
        second += g * ((x.values[i] - centre) * inverse);
      }
    });
    const float shift = team.combine(first, Add()) / static_cast<float>(n);
    const float slope = team.combine(second, Add()) / static_cast<float>(n);
    for_each_group<L, K>(team, n, [&](int64_t at, int k) {
      Lanes<float, L> dy = widened(gradients.groups[k]);
      const Lanes<float, L> x = widened(part.groups[k]), gamma = load<L>(in.gamma + at);
#pragma unroll
      for (int i = 0; i < L; ++i) {
        const float normal = (x.values[i] - centre) * inverse;
        dy.values[i] = inverse * (dy.values[i] * gamma.values[i] - shift - normal * slope);
      }
      store(in.dx + (row * n + at), dy);
    });
  }
};

// dbeta = the sum over rows of dy, dgamma = of dy x'
struct ColumnGradients {
  int64_t columns;
  Reals dy, x, mean, deviation;

  template <int L>
  struct Row {
    Packed<L> dy, x;
    float mean, deviation;
  };
  template <int L>
  struct Group {
    const ColumnGradients& in;
    int64_t first_column;
    __device__ Row<L> fetch(int64_t row) const {
      const int64_t at = row * in.columns + first_column;
      return {fetch_packed<L>(in.dy, at), fetch_packed<L>(in.x, at), in.mean[row], in.deviation[row]};
    }
    __device__ void add(int64_t, const Row<L>& row, OfChannels<L>& first, OfChannels<L>& second) const {
      const Lanes<float, L> gradient = widened(row.dy), value = widened(row.x);
#pragma unroll
      for (int lane = 0; lane < L; ++lane) {
        first[lane] += gradient.values[lane];
        second[lane] += gradient.values[lane] * ((value.values[lane] - row.mean) * row.deviation);
      }
    }
  };
  template <int L>
  __device__ Group<L> of_group(int64_t first) const {
    return {*this, first};
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

}  // namespace

std::unique_ptr<Kernel> make_kernel(const LayerNorm& op, const Request& request) {
  return function_kernel([op, &device = request.device, shape = request.inputs[0].shape](const Call& call) {
    launch_rows<HeldNorm, StreamedNorm>(
        device, call,
        NormOperands{op.epsilon, operand(call, 0), operand(call, 1), operand(call, 2), result(call, 0),
                     result(call, 1), result(call, 2)},
        shape);
  });
}

std::unique_ptr<Kernel> make_kernel(const LayerNormGrad&, const Request& request) {
  const ChannelLayouts layouts(request, request.inputs[1].shape);
  return function_kernel(
      [layouts, &device = request.device, shape = request.inputs[1].shape](const Call& call) {
        const Reals dy = operand(call, 0), x = operand(call, 1), mean = operand(call, 3);
        const Reals deviation = operand(call, 4);
        launch_rows<HeldNormGrad, StreamedNormGrad>(
            device, call, NormGradOperands{dy, x, operand(call, 2), mean, deviation, result(call)}, shape);
        layouts.with(call, [&](const ChannelLayout& layout, auto lanes) {
          auto* partial = call.scratch<ChannelSums>();
          launch(sum_channels<lanes, ColumnGradients>, layout.groups.grid(), kThreads, call.stream,
                 ColumnGradients{layout.channels(), dy, x, mean, deviation}, layout.groups, partial);
          launch(finish_gradients, layout.last.grid(), kThreads, call.stream, layout.last, partial,
                 result(call, 1), result(call, 2));
        });
      },
      layouts.partial_bytes());
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
