// Batch normalization over all axes but the last (Ioffe, Szegedy 2015), with its successors in a residual
// net: the sum with another branch, and relu. Statistics are summed in double.
#include <type_traits>

#include "kernels/cuda/channel_sums.cuh"
#include "kernels/cuda/normal_codes.cuh"

namespace headroom::cuda {
namespace {

// Sums of x and x^2, both less the channel's first value: otherwise the mean of squares less the squared mean
// would cancel where values are far from zero.
struct Moments {
  static constexpr int kRowsAtOnce = 4;
  int64_t channels;
  Reals x;

  template <int L>
  struct Group {
    int64_t step;
    Reals from;
    OfChannels<L> origin;
    __device__ Packed<L> fetch(int64_t row) const { return fetch_packed<L>(from, row * step); }
    __device__ void add(int64_t, const Packed<L>& stored, OfChannels<L>& first, OfChannels<L>& second) const {
      const Lanes<float, L> value = widened(stored);
#pragma unroll
      for (int lane = 0; lane < L; ++lane) {
        const float centered = value.values[lane] - origin[lane];
        first[lane] += centered;
        second[lane] += centered * centered;
      }
    }
  };
  template <int L>
  __device__ Group<L> of_group(int64_t first) const {
    return {channels, x + first, of_channels<L>(x, first)};
  }
};

__global__ void finish_statistics(ReductionLayout last, int64_t rows, const ChannelSums* partial, Reals x,
                                  RealsOut mean, RealsOut variance) {
  const Share share = share_of(last);
  const ChannelSums sums = add_shares(last, share, partial);
  if (threadIdx.x >= last.wide || share.result >= last.results) return;
  const double count = static_cast<double>(rows), shift = sums.first / count;
  const double square = sums.second / count - shift * shift;
  mean.set(share.result, static_cast<float>(static_cast<double>(x[share.result]) + shift));
  // Rounding may leave it below 0; in this order NaN stays.
  variance.set(share.result, static_cast<float>(square < 0 ? 0 : square));
}

// The inputs of a channel's normalization.
struct Statistics {
  float epsilon;
  Reals gamma, mean, variance;

  // 1 / sqrt(variance + epsilon)
  template <int L>
  __device__ OfChannels<L> inverses(int64_t first) const {
    OfChannels<L> result = of_channels<L>(variance, first);
#pragma unroll
    for (int lane = 0; lane < L; ++lane) result[lane] = 1 / sqrtf(result[lane] + epsilon);
    return result;
  }
};

// y = (x - center) scale + offset and x' = (x - center) unit of L channels. Codes are x' except for a factor.
template <int L, typename X>
struct Normal {
  OfChannels<L> center{}, unit, scale, offset;
  __device__ Normal(const Statistics& statistics, const Reals& beta, int64_t first)
      : scale(of_channels<L>(statistics.gamma, first)), offset(of_channels<L>(beta, first)) {
    if constexpr (std::is_same_v<X, Codes>) {
#pragma unroll
      for (int lane = 0; lane < L; ++lane) {
        unit[lane] = 1 / kNormalScale;
        scale[lane] *= unit[lane];
      }
    } else {
      center = of_channels<L>(statistics.mean, first);
      unit = statistics.template inverses<L>(first);
#pragma unroll
      for (int lane = 0; lane < L; ++lane) scale[lane] *= unit[lane];
    }
  }
  __device__ float operator()(int lane, float x) const {
    return (x - center[lane]) * scale[lane] + offset[lane];
  }
};

// relu's and its gradient's; NaN passes.
__device__ float rectified(float value) {
  return value < 0 ? 0 : value;
}
// y, the same bits wherever it is computed.
template <int L, typename X>
__device__ float result_of(const Normal<L, X>& normal, int lane, float x, float residual, bool relu) {
  const float value = normal(lane, x) + residual;
  return relu ? rectified(value) : value;
}
__device__ float masked(float gradient, float y) {
  return y <= 0 ? 0 : gradient;
}

// Additional results of a norm; null if they are not used.
struct Beside {
  uint8_t* codes = nullptr;  // codes of x'
  uint8_t* marks = nullptr;  // a bit for each result
};

// With kBeside also writes the codes and marks.
template <int L, bool kAdds, bool kBeside, typename X>
__global__ void __launch_bounds__(kThreads, ChannelLayout::kBlocksAtOnce)
    normalize(ReductionLayout layout, int64_t channels, Statistics statistics, Reals beta, bool relu, X x,
              Reals residual, RealsOut y, Beside beside) {
  struct Operands {
    decltype(fetch_packed<L>(X(), int64_t{})) x;
    Packed<L> residual;
  };
  const Share share = turns_of(layout);
  if (share.result >= layout.results) return;
  const int64_t first = share.result * L;
  const Normal<L, X> normal(statistics, beta, first);
  // Keeps the same number of bytes in flight for each type of x.
  constexpr int kRowsAtOnce = std::is_same_v<X, Codes> ? 8 : 4;
  for_each_row_back<kRowsAtOnce>(
      share, layout.terms - 1,
      [&](int64_t row) {
        const int64_t at = row * channels + first;
        Operands operands{fetch_packed<L>(x, at), {}};
        if constexpr (kAdds) operands.residual = fetch_packed<L>(residual, at);
        return operands;
      },
      [&](int64_t row, const Operands& operands) {
        Lanes<float, L> value = values_of(operands.x);
        const Lanes<float, L> other = widened(operands.residual);
        if (kBeside && beside.codes != nullptr) {
          Lanes<float, L> normals;
#pragma unroll
          for (int lane = 0; lane < L; ++lane)
            normals.values[lane] = (value.values[lane] - normal.center[lane]) * normal.unit[lane];
          store_codes(beside.codes + (row * channels + first), normals);
        }
#pragma unroll
        for (int lane = 0; lane < L; ++lane) {
          float& v = value.values[lane];
          v = result_of(normal, lane, v, kAdds ? other.values[lane] : 0, relu);
        }
        store(y + (row * channels + first), value);
        if (kBeside && beside.marks != nullptr) store_marks(beside.marks, row * channels + first, value);
      });
}

// The source that tells where relu gave more than 0: none, without relu; the result, computed from x again;
// or y. With kBranches, as with kResult, it is y, and the incoming gradient is a sum.
enum class Mask : uint8_t { kNone, kAgain, kResult, kBranches };

// Sums of g and of g x', where x' = (x - mean) / sqrt(variance + epsilon) and g is the incoming gradient: dy,
// or, after relu, dy where relu gave more than 0. With y, g is also stored for the other branch. x are codes
// of x' if X says so.
template <Mask kMask, typename X>
struct GradientSums {
  using Operand = X;
  int64_t channels;
  Statistics statistics;
  Reals dy;
  X x;
  Reals mask, other;  // beta or y; the term added to dy
  RealsOut stored;
  static constexpr int kRowsAtOnce = kMask == Mask::kBranches ? 2 : 4;  // as many registers
  static constexpr bool kHasResult = kMask == Mask::kResult || kMask == Mask::kBranches;

  template <int L>
  struct Row {
    Packed<L> dy;
    decltype(fetch_packed<L>(X(), int64_t{})) x;
    Packed<L> y, other;
  };
  template <int L>
  struct Group {
    const GradientSums& in;
    int64_t first_channel;
    Normal<L, X> normal;

    __device__ Row<L> fetch(int64_t row) const {
      const int64_t at = row * in.channels + first_channel;
      Row<L> fetched{fetch_packed<L>(in.dy, at), fetch_packed<L>(in.x, at), {}, {}};
      if constexpr (kHasResult) fetched.y = fetch_packed<L>(in.mask, at);
      if constexpr (kMask == Mask::kBranches) fetched.other = fetch_packed<L>(in.other, at);
      return fetched;
    }
    __device__ Lanes<float, L> arriving(const Row<L>& row, const Lanes<float, L>& x) const {
      Lanes<float, L> gradient = widened(row.dy);
      const Lanes<float, L> y = widened(row.y), other = widened(row.other);
#pragma unroll
      for (int lane = 0; lane < L; ++lane) {
        float& g = gradient.values[lane];
        if constexpr (kMask == Mask::kBranches) g += other.values[lane];
        if constexpr (kMask == Mask::kAgain) g = masked(g, normal(lane, x.values[lane]));
        if constexpr (kHasResult) g = masked(g, y.values[lane]);
      }
      return gradient;
    }
    __device__ void add(int64_t row, const Row<L>& fetched, OfChannels<L>& first,
                        OfChannels<L>& second) const {
      const Lanes<float, L> x = values_of(fetched.x), gradient = arriving(fetched, x);
#pragma unroll
      for (int lane = 0; lane < L; ++lane) {
        first[lane] += gradient.values[lane];
        second[lane] += gradient.values[lane] * ((x.values[lane] - normal.center[lane]) * normal.unit[lane]);
      }
      if constexpr (kHasResult) store(in.stored + (row * in.channels + first_channel), gradient);
    }
  };
  template <int L>
  __device__ Group<L> of_group(int64_t first) const {
    const Reals beta = kMask == Mask::kAgain ? mask : statistics.mean;
    return {*this, first, Normal<L, X>(statistics, beta, first)};
  }
};

// Sums of the incoming gradient where y is more than 0, which is also stored. Y: Reals, or the marks of y.
template <bool kAdds, typename Y>
struct BranchSums {
  static constexpr bool kMarked = !std::is_same_v<Y, Reals>;
  int64_t channels;
  Reals dy;
  Y y;
  Reals other;
  RealsOut stored;
  static constexpr int kRowsAtOnce = 4;

  template <int L>
  struct Row {
    Packed<L> dy;
    std::conditional_t<kMarked, uint32_t, Packed<L>> y;
    Packed<L> other;
  };
  template <int L>
  struct Group {
    const BranchSums& in;
    int64_t first_channel;
    __device__ Row<L> fetch(int64_t row) const {
      const int64_t at = row * in.channels + first_channel;
      Row<L> fetched{fetch_packed<L>(in.dy, at), {}, {}};
      if constexpr (kMarked) {
        fetched.y = marks_at(in.y, at);
      } else {
        fetched.y = fetch_packed<L>(in.y, at);
      }
      if constexpr (kAdds) fetched.other = fetch_packed<L>(in.other, at);
      return fetched;
    }
    __device__ void add(int64_t row, const Row<L>& fetched, OfChannels<L>& first, OfChannels<L>&) const {
      Lanes<float, L> gradient = widened(fetched.dy);
      const Lanes<float, L> other = widened(fetched.other);
      Lanes<float, L> y{};
      if constexpr (!kMarked) y = widened(fetched.y);
#pragma unroll
      for (int lane = 0; lane < L; ++lane) {
        float& g = gradient.values[lane];
        if constexpr (kAdds) g += other.values[lane];
        if constexpr (kMarked) {
          g = (fetched.y >> lane & 1) != 0 ? g : 0;
        } else {
          g = masked(g, y.values[lane]);
        }
        first[lane] += g;
      }
      store(in.stored + (row * in.channels + first_channel), gradient);
    }
  };
  template <int L>
  __device__ Group<L> of_group(int64_t first) const {
    return {*this, first};
  }
};

//   dbeta = sum g,  dgamma = sum g x',  dx = gamma / sqrt(variance + epsilon) (g - (dbeta + x' dgamma) /
//   rows)
// With kGivesResult also y, which may reuse dy's memory.
template <int L, Mask kMask, bool kGivesResult, typename X>
__global__ void __launch_bounds__(kThreads, ChannelLayout::kBlocksAtOnce)
    normalize_gradient(ReductionLayout layout, GradientSums<kMask, X> in, Reals dgamma, Reals dbeta,
                       RealsOut dx, RealsOut y) {
  const Share share = turns_of(layout);
  if (share.result >= layout.results) return;
  const int64_t first = share.result * L;
  const auto group = in.template of_group<L>(first);
  const float per_row = 1 / static_cast<float>(layout.terms);
  OfChannels<L> slope = of_channels<L>(dgamma, first), shift = of_channels<L>(dbeta, first);
  OfChannels<L> factor = group.normal.scale;  // gamma / sqrt(variance + epsilon)
  if constexpr (std::is_same_v<X, Codes>) {
    const OfChannels<L> inverse = in.statistics.template inverses<L>(first);
#pragma unroll
    for (int lane = 0; lane < L; ++lane) factor[lane] *= inverse[lane] * kNormalScale;
  }
#pragma unroll
  for (int lane = 0; lane < L; ++lane) {
    slope[lane] *= group.normal.unit[lane] * per_row;
    shift[lane] *= per_row;
  }
  for_each_row_back(
      share, layout.terms - 1, [&](int64_t row) { return group.fetch(row); },
      [&](int64_t row, const auto& fetched) {
        const Lanes<float, L> x = values_of(fetched.x);
        Lanes<float, L> gradient = group.arriving(fetched, x);
        if constexpr (kGivesResult) {
          Lanes<float, L> result;
#pragma unroll
          for (int lane = 0; lane < L; ++lane)
            result.values[lane] = result_of(group.normal, lane, x.values[lane], 0, true);
          store(y + (row * in.channels + first), result);
        }
#pragma unroll
        for (int lane = 0; lane < L; ++lane) {
          float& g = gradient.values[lane];
          const float centered = x.values[lane] - group.normal.center[lane];
          g = factor[lane] * (g - (shift[lane] + centered * slope[lane]));
        }
        store(dx + (row * in.channels + first), gradient);
      });
}

// A gradient's launches, for one way to see where relu gave more than 0.
template <Mask kMask, int L, typename X>
void launch_gradient(const Call& call, const ChannelLayout& layout, float epsilon, X x) {
  auto* partial = call.scratch<ChannelSums>();
  const Statistics statistics{epsilon, operand(call, 2), operand(call, 3), operand(call, 4)};
  constexpr bool kHasResult = GradientSums<kMask, X>::kHasResult;
  GradientSums<kMask, X> in{layout.channels(), statistics, operand(call, 0), x, {}, {}, {}};
  if constexpr (kMask != Mask::kNone) in.mask = operand(call, 5);
  if constexpr (kMask == Mask::kBranches) in.other = operand(call, 6);
  if constexpr (kHasResult) in.stored = result(call, 3);
  launch(sum_channels<L, GradientSums<kMask, X>>, layout.groups.grid(), kThreads, call.stream, in,
         layout.groups, partial);
  launch(finish_gradients, layout.last.grid(), kThreads, call.stream, layout.last, partial, result(call, 1),
         result(call, 2));
  // The stored gradient is already masked.
  constexpr Mask kLeft = kHasResult ? Mask::kNone : kMask;
  const GradientSums<kLeft, X> left{
      in.channels, statistics, kHasResult ? Reals(in.stored) : in.dy, in.x, in.mask, {}, {}};
  // The norm's result, if it is read.
  RealsOut again{};
  if (kMask == Mask::kAgain && call.outputs.size() > 3) again = result(call, 3);
  auto* kernel = normalize_gradient<L, kLeft, false, X>;
  if constexpr (kMask == Mask::kAgain) {
    if (again.data != nullptr) kernel = normalize_gradient<L, kLeft, true, X>;
  }
  launch(kernel, layout.groups.grid(), kThreads, call.stream, layout.groups, left, result(call, 1),
         result(call, 2), result(call), again);
}

// A gradient's launches, for x or codes.
template <int L, typename X>
void launch_gradient(const Call& call, const ChannelLayout& layout, const BatchNormGrad& op, X x) {
  if (op.residual && call.inputs.size() > 6) {
    launch_gradient<Mask::kBranches, L>(call, layout, op.epsilon, x);
  } else if (op.residual) {
    launch_gradient<Mask::kResult, L>(call, layout, op.epsilon, x);
  } else if (op.relu) {
    launch_gradient<Mask::kAgain, L>(call, layout, op.epsilon, x);
  } else {
    launch_gradient<Mask::kNone, L>(call, layout, op.epsilon, x);
  }
}

// y of a layout whose statistics are known, and codes, if they are wanted.
template <int L>
void launch_normalize(const Call& call, const ChannelLayout& layout, const Statistics& statistics, bool relu,
                      const Reals& residual, const Beside& beside = {}) {
  const bool adds = residual.data != nullptr;
  auto* kernel = adds ? normalize<L, true, false, Reals> : normalize<L, false, false, Reals>;
  if (beside.codes != nullptr || beside.marks != nullptr)
    kernel = adds ? normalize<L, true, true, Reals> : normalize<L, false, true, Reals>;
  launch(kernel, layout.groups.grid(), kThreads, call.stream, layout.groups, layout.channels(), statistics,
         operand(call, 2), relu, operand(call, 0), residual, result(call), beside);
}

// Means and variances of x, operand 0.
template <int L>
void launch_statistics(const Call& call, const ChannelLayout& layout, const RealsOut& mean,
                       const RealsOut& variance) {
  auto* partial = call.scratch<ChannelSums>();
  const Reals x = operand(call, 0);
  launch(sum_channels<L, Moments>, layout.groups.grid(), kThreads, call.stream, Moments{layout.channels(), x},
         layout.groups, partial);
  launch(finish_statistics, layout.last.grid(), kThreads, call.stream, layout.last, layout.rows(), partial, x,
         mean, variance);
}

Reals residual_at(const Call& call, size_t i) {
  return call.inputs.size() > i ? operand(call, i) : Reals();
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const BatchNorm& op, const Request& request) {
  const ChannelLayouts layouts(request, request.inputs[0].shape);
  return function_kernel(
      [layouts, op](const Call& call) {
        layouts.with(call, [&](const ChannelLayout& layout, auto lanes) {
          launch_statistics<lanes>(call, layout, result(call, 1), result(call, 2));
          launch_normalize<lanes>(call, layout,
                                  {op.epsilon, operand(call, 1), result(call, 1), result(call, 2)}, op.relu,
                                  residual_at(call, 3));
        });
      },
      layouts.partial_bytes());
}

std::unique_ptr<Kernel> make_kernel(const BatchNormStatistics&, const Request& request) {
  const ChannelLayouts layouts(request, request.inputs[0].shape);
  return function_kernel(
      [layouts](const Call& call) {
        layouts.with(call, [&](const ChannelLayout& layout, auto lanes) {
          launch_statistics<lanes>(call, layout, result(call, 0), result(call, 1));
        });
      },
      layouts.partial_bytes());
}

std::unique_ptr<Kernel> make_kernel(const BatchNormGrad& op, const Request& request) {
  const ChannelLayouts layouts(request, request.inputs[1].shape);
  return function_kernel(
      [layouts, op](const Call& call) {
        layouts.with(call, [&](const ChannelLayout& layout, auto lanes) {
          if (op.compressed) {
            launch_gradient<lanes>(call, layout, op, Codes{call.in<uint8_t>(1)});
          } else {
            launch_gradient<lanes>(call, layout, op, operand(call, 1));
          }
        });
      },
      layouts.partial_bytes());
}

std::unique_ptr<Kernel> make_kernel(const BranchGrad& op, const Request& request) {
  const ChannelLayouts layouts(request, request.inputs[0].shape);
  return function_kernel(
      [layouts, op](const Call& call) {
        layouts.with(call, [&](const ChannelLayout& layout, auto lanes) {
          auto* partial = call.scratch<ChannelSums>();
          const auto sum = [&](const auto& branches) {
            launch(sum_channels<lanes, std::decay_t<decltype(branches)>>, layout.groups.grid(), kThreads,
                   call.stream, branches, layout.groups, partial);
          };
          const int64_t channels = layout.channels();
          const auto sum_behind = [&]<typename Y>(Y y) {
            const Reals dy = operand(call, 0);
            if (call.inputs.size() > 2) {
              sum(BranchSums<true, Y>{channels, dy, y, operand(call, 2), result(call)});
            } else {
              sum(BranchSums<false, Y>{channels, dy, y, {}, result(call)});
            }
          };
          if (op.marked) {
            sum_behind(call.in<uint8_t>(1));
          } else {
            sum_behind(operand(call, 1));
          }
          launch(finish_sums, layout.last.grid(), kThreads, call.stream, layout.last, partial,
                 result(call, 1));
        });
      },
      layouts.partial_bytes());
}

std::unique_ptr<Kernel> make_kernel(const BatchNormApply& op, const Request& request) {
  const ChannelLayouts layouts(request, request.inputs[0].shape);
  return function_kernel([layouts, op](const Call& call) {
    layouts.with(call, [&](const ChannelLayout& layout, auto lanes) {
      const Statistics statistics{op.epsilon, operand(call, 1), operand(call, 3), operand(call, 4)};
      if (op.compressed) {
        launch(normalize<lanes, false, false, Codes>, layout.groups.grid(), kThreads, call.stream,
               layout.groups, layout.channels(), statistics, operand(call, 2), op.relu,
               Codes{call.in<uint8_t>(0)}, Reals(), result(call), Beside{});
      } else {
        launch_normalize<lanes>(call, layout, statistics, op.relu, residual_at(call, 5),
                                {op.compresses ? call.out<uint8_t>(1) : nullptr,
                                 op.marks ? call.out<uint8_t>(op.marks_at()) : nullptr});
      }
    });
  });
}

}  // namespace headroom::cuda
