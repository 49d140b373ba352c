// Layer normalization over the last axis (Ba et al. 2016), and running sums.
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
    const float center = team.combine(sum, Add()) / static_cast<float>(n);
    // A second pass: the mean of squares less the squared mean would cancel.
    float squares = 0;
    for (int64_t i = team.lane(); i < n; i += team.size()) squares += (from[i] - center) * (from[i] - center);
    const float inverse = 1 / sqrtf(team.combine(squares, Add()) / static_cast<float>(n) + in.epsilon);
    for (int64_t i = team.lane(); i < n; i += team.size()) {
      in.y.set(row * n + i, (from[i] - center) * inverse * in.gamma[i] + in.beta[i]);
    }
    if (n == 0 || team.lane() != 0) return;
    in.mean.set(row, center);
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
    const float center = team.combine(sum, Add()) / static_cast<float>(n);
    for_each_group<L, K>(team, n, [&](int64_t, int k) {
      const Lanes<float, L> x = widened(part.groups[k]);
#pragma unroll
      for (int i = 0; i < L; ++i) squares += (x.values[i] - center) * (x.values[i] - center);
    });
    const float inverse = 1 / sqrtf(team.combine(squares, Add()) / static_cast<float>(n) + in.epsilon);
    for_each_group<L, K>(team, n, [&](int64_t at, int k) {
      Lanes<float, L> x = widened(part.groups[k]);
      const Lanes<float, L> gamma = load<L>(in.gamma + at), beta = load<L>(in.beta + at);
#pragma unroll
      for (int i = 0; i < L; ++i)
        x.values[i] = (x.values[i] - center) * inverse * gamma.values[i] + beta.values[i];
      store(in.y + (row * n + at), x);
    });
    if (n == 0 || team.lane() != 0) return;
    in.mean.set(row, center);
    in.deviation.set(row, inverse);
  }
};

// With x' = (x - mean) deviation and g = dy gamma: dx = deviation (g - mean of g - x' mean of g x') + added
struct NormGradOperands {
  Reals dy, x, gamma, mean, deviation;
  RealsOut dx;
  Reals added;  // may be at no address
  __device__ bool adds() const { return added.data != nullptr; }
};
struct StreamedNormGrad {
  NormGradOperands in;
  template <typename Team>
  __device__ void operator()(const Team& team, int64_t row, int64_t n) const {
    const Reals gradient = in.dy + row * n, from = in.x + row * n;
    const float center = in.mean[row], inverse = in.deviation[row];
    float first = 0, second = 0;
    for (int64_t i = team.lane(); i < n; i += team.size()) {
      const float g = gradient[i] * in.gamma[i];
      first += g;
      second += g * ((from[i] - center) * inverse);
    }
    const float shift = team.combine(first, Add()) / static_cast<float>(n);
    const float slope = team.combine(second, Add()) / static_cast<float>(n);
    for (int64_t i = team.lane(); i < n; i += team.size()) {
      const float normal = (from[i] - center) * inverse;
      const float added = in.adds() ? in.added[row * n + i] : 0;
      in.dx.set(row * n + i, inverse * (gradient[i] * in.gamma[i] - shift - normal * slope) + added);
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
    const float center = in.mean[row], inverse = in.deviation[row];
    float first = 0, second = 0;
    for_each_group<L, K>(team, n, [&](int64_t at, int k) {
      const Lanes<float, L> dy = widened(gradients.groups[k]), x = widened(part.groups[k]);
      const Lanes<float, L> gamma = load<L>(in.gamma + at);
#pragma unroll
      for (int i = 0; i < L; ++i) {
        const float g = dy.values[i] * gamma.values[i];
        first += g;
        second += g * ((x.values[i] - center) * inverse);
      }
    });
    const float shift = team.combine(first, Add()) / static_cast<float>(n);
    const float slope = team.combine(second, Add()) / static_cast<float>(n);
    for_each_group<L, K>(team, n, [&](int64_t at, int k) {
      Lanes<float, L> dy = widened(gradients.groups[k]);
      const Lanes<float, L> x = widened(part.groups[k]), gamma = load<L>(in.gamma + at);
#pragma unroll
      for (int i = 0; i < L; ++i) {
        const float normal = (x.values[i] - center) * inverse;
        dy.values[i] = inverse * (dy.values[i] * gamma.values[i] - shift - normal * slope);
      }
      if (in.adds()) {
        const Lanes<float, L> added = load<L>(in.added + (row * n + at));
#pragma unroll
        for (int i = 0; i < L; ++i) dy.values[i] += added.values[i];
      }
      store(in.dx + (row * n + at), dy);
    });
  }
};

// dbeta = the sum over rows of dy, dgamma = of dy x'
struct ColumnGradients {
  static constexpr int kRowsAtOnce = 4;
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

// ---- rows of 257 to 1024 numbers stored in 16 bits
// A warp takes one row after the other, with the factors of its columns, and the sums of their gradients, in
// registers. The type is known to the compiler: asked for at every number, it takes longer than memory.

constexpr int kWarpsOfBlock = 4, kRowThreads = 32 * kWarpsOfBlock;
constexpr int kMaxHalfRow = 1024;

template <DType kStored, int K>
struct HalfRow {
  StoredHalves<8> groups[K];

  // The first number of this lane's k-th group.
  __device__ static int place(int k) { return 8 * (32 * k + static_cast<int>(threadIdx.x % 32)); }
  __device__ HalfRow(const Reals& x, int64_t row, int n) {
#pragma unroll
    for (int k = 0; k < K; ++k) {
      groups[k] = {kStored, {}};
      if (place(k) < n) groups[k] = fetch_halves<8>(Reals{x.data, kStored}, row * n + place(k));
    }
  }
};
template <int K>
__device__ void load_columns(Lanes<float, 8> (&factors)[K], const Reals& of, int n) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int at = HalfRow<DType::kF32, K>::place(k);
    factors[k] = at < n ? load<8>(of + at) : Lanes<float, 8>{};
  }
}

template <DType kStored, int K>
__global__ void __launch_bounds__(kRowThreads) norm_half_rows(NormOperands in, int64_t rows, int n) {
  using Row = HalfRow<kStored, K>;
  const WarpTeam team(32);
  Lanes<float, 8> gamma[K], beta[K];
  load_columns(gamma, in.gamma, n);
  load_columns(beta, in.beta, n);
  const RealsOut y{in.y.data, kStored};
  for (int64_t row = team.first_row(); row < rows; row += team.teams()) {
    const Row part(in.x, row, n);
    Lanes<float, 8> x[K];
    float sum = 0, squares = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      x[k] = widened(part.groups[k]);
#pragma unroll
      for (int i = 0; i < 8; ++i) sum += x[k].values[i];
    }
    const float center = team.combine(sum, Add()) / static_cast<float>(n);
#pragma unroll
    for (int k = 0; k < K; ++k) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        x[k].values[i] -= center;
        if (Row::place(k) < n) squares += x[k].values[i] * x[k].values[i];
      }
    }
    const float inverse = 1 / sqrtf(team.combine(squares, Add()) / static_cast<float>(n) + in.epsilon);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (Row::place(k) >= n) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i)
        x[k].values[i] = x[k].values[i] * inverse * gamma[k].values[i] + beta[k].values[i];
      store(y + (row * n + Row::place(k)), x[k]);
    }
    if (team.lane() != 0) continue;
    in.mean.set(row, center);
    in.deviation.set(row, inverse);
  }
}

// partial (blocks, n): the sums of dy and of dy x' over the rows of a block.
template <DType kStored, int K>
__global__ void __launch_bounds__(kRowThreads)
    norm_grad_half_rows(NormGradOperands in, int64_t rows, int n, ChannelSums* partial) {
  using Row = HalfRow<kStored, K>;
  const WarpTeam team(32);
  Lanes<float, 8> gamma[K], first_sums[K] = {}, second_sums[K] = {};
  load_columns(gamma, in.gamma, n);
  const RealsOut dx{in.dx.data, kStored};
  for (int64_t row = team.first_row(); row < rows; row += team.teams()) {
    const Row gradients(in.dy, row, n), part(in.x, row, n), added(in.added, row, in.adds() ? n : 0);
    const float center = in.mean[row], inverse = in.deviation[row];
    Lanes<float, 8> dy[K], normal[K];
    float first = 0, second = 0;
#pragma unroll
    for (int k = 0; k < K; ++k) {
      dy[k] = widened(gradients.groups[k]), normal[k] = widened(part.groups[k]);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        float &d = dy[k].values[i], &x = normal[k].values[i];
        x = (x - center) * inverse;  // beyond n, where dy is 0, of no account
        first_sums[k].values[i] += d;
        second_sums[k].values[i] += d * x;
        d *= gamma[k].values[i];
        first += d;
        second += d * x;
      }
    }
    const float shift = team.combine(first, Add()) / static_cast<float>(n);
    const float slope = team.combine(second, Add()) / static_cast<float>(n);
#pragma unroll
    for (int k = 0; k < K; ++k) {
      if (Row::place(k) >= n) continue;
#pragma unroll
      for (int i = 0; i < 8; ++i)
        dy[k].values[i] = inverse * (dy[k].values[i] - shift - normal[k].values[i] * slope);
      if (in.adds()) {
        const Lanes<float, 8> more = widened(added.groups[k]);
#pragma unroll
        for (int i = 0; i < 8; ++i) dy[k].values[i] += more.values[i];
      }
      store(dx + (row * n + Row::place(k)), dy[k]);
    }
  }
  __shared__ float2 sums[kWarpsOfBlock][256 * K];
  float2* const of_warp = sums[threadIdx.x / 32];
#pragma unroll
  for (int k = 0; k < K; ++k) {
#pragma unroll
    for (int i = 0; i < 8; ++i)
      of_warp[Row::place(k) + i] = {first_sums[k].values[i], second_sums[k].values[i]};
  }
  __syncthreads();
  for (int column = static_cast<int>(threadIdx.x); column < n; column += kRowThreads) {
    ChannelSums of_block{};
#pragma unroll
    for (int warp = 0; warp < kWarpsOfBlock; ++warp) {
      const float2 pair = sums[warp][column];
      of_block = AddSums()(of_block, {static_cast<double>(pair.x), static_cast<double>(pair.y)});
    }
    partial[int64_t{blockIdx.x} * n + column] = of_block;
  }
}

// The division of a tensor's rows among warps, if its rows suit them.
struct HalfRows {
  int64_t rows = 0, n = 0;
  unsigned blocks = 0;  // 0: they are not

  HalfRows(const CudaGpu& device, const TensorSpec& x) {
    n = x.shape.last(), rows = n == 0 ? 0 : x.shape.elements() / n;
    if (!is_half(x.dtype) || n % 8 != 0 || n <= 256 || n > kMaxHalfRow || rows == 0) return;
    constexpr int64_t kRowsOfWarp =
        4;  // for what a warp does once, if there are rows for all multiprocessors
    const int64_t multiprocessors = device.multiprocessors();
    const int64_t least = std::min(ceil_div(rows, kWarpsOfBlock), multiprocessors);
    blocks = static_cast<unsigned>(
        std::clamp<int64_t>(rows / (kRowsOfWarp * kWarpsOfBlock), least, 3 * multiprocessors));
  }
  bool take(const Call& call, std::initializer_list<DType> types) const {
    return blocks > 0 && are_aligned(call.inputs) && are_aligned(call.outputs) &&
           std::equal(types.begin() + 1, types.end(), types.begin());
  }
  int64_t partial_bytes() const { return blocks * n * static_cast<int64_t>(sizeof(ChannelSums)); }
  ReductionLayout last() const { return layout_of_partials({n, rows, 32, static_cast<int>(blocks)}); }
  // Calls f(type, groups) with the type and the number of a lane's groups as types.
  template <typename F>
  void with(DType stored, const F& f) const {
    const auto of_type = [&](auto type) {
      if (n <= 512) return f(type, std::integral_constant<int, 2>());
      if (n <= 768) return f(type, std::integral_constant<int, 3>());
      f(type, std::integral_constant<int, 4>());
    };
    if (stored == DType::kBf16) return of_type(std::integral_constant<DType, DType::kBf16>());
    of_type(std::integral_constant<DType, DType::kF16>());
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
  const TensorSpec& x = request.inputs[0];
  return function_kernel([op, &device = request.device, shape = x.shape,
                          half_rows = HalfRows(request.device, x)](const Call& call) {
    const NormOperands operands{op.epsilon,      operand(call, 0), operand(call, 1), operand(call, 2),
                                result(call, 0), result(call, 1),  result(call, 2)};
    if (!half_rows.take(call, {operands.x.dtype, operands.y.dtype}))
      return launch_rows<HeldNorm, StreamedNorm>(device, call, operands, shape);
    half_rows.with(operands.x.dtype, [&](auto type, auto groups) {
      // The kernel without sums uses fewer registers than its gradient: four blocks per multiprocessor
      // instead of three.
      launch(norm_half_rows<type, groups>, half_rows.blocks * 4 / 3, kRowThreads, call.stream, operands,
             half_rows.rows, static_cast<int>(half_rows.n));
    });
  });
}

std::unique_ptr<Kernel> make_kernel(const LayerNormGrad&, const Request& request) {
  const TensorSpec& x = request.inputs[1];
  const ChannelLayouts layouts(request, x.shape);
  const HalfRows half_rows(request.device, x);
  return function_kernel(
      [layouts, half_rows, &device = request.device, shape = x.shape](const Call& call) {
        NormGradOperands operands{operand(call, 0),
                                  operand(call, 1),
                                  operand(call, 2),
                                  operand(call, 3),
                                  operand(call, 4),
                                  result(call),
                                  {}};
        operands.added = call.inputs.size() == 6 ? operand(call, 5) : Reals{nullptr, operands.x.dtype};
        auto* partial = call.scratch<ChannelSums>();
        const auto finish = [&](const ReductionLayout& last) {
          launch(finish_gradients, last.grid(), kThreads, call.stream, last, partial, result(call, 1),
                 result(call, 2));
        };
        if (half_rows.take(call,
                           {operands.x.dtype, operands.dy.dtype, operands.dx.dtype, operands.added.dtype})) {
          half_rows.with(operands.x.dtype, [&](auto type, auto groups) {
            launch(norm_grad_half_rows<type, groups>, half_rows.blocks, kRowThreads, call.stream, operands,
                   half_rows.rows, static_cast<int>(half_rows.n), partial);
          });
          return finish(half_rows.last());
        }
        launch_rows<HeldNormGrad, StreamedNormGrad>(device, call, operands, shape);
        layouts.with(call, [&](const ChannelLayout& layout, auto lanes) {
          launch(
              sum_channels<lanes, ColumnGradients>, layout.groups.grid(), kThreads, call.stream,
              ColumnGradients{layout.channels(), operands.dy, operands.x, operands.mean, operands.deviation},
              layout.groups, partial);
          finish(layout.last);
        });
      },
      std::max(layouts.partial_bytes(), half_rows.partial_bytes()));
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
