// Batch normalisation over all axes but the last (Ioffe, Szegedy 2015), with what follows it in a residual
// net: the sum with another branch, and relu. Statistics are summed in double.
#include <type_traits>

#include "kernels/cuda/channel_sums.cuh"

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
        const float centred = value.values[lane] - origin[lane];
        first[lane] += centred;
        second[lane] += centred * centred;
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

// What a channel's normalisation is made of.
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

// y = (x - centre) scale + offset of L channels
template <int L>
struct Normal {
  OfChannels<L> centre, scale, offset;
  __device__ Normal(const Statistics& statistics, const Reals& beta, int64_t first)
      : centre(of_channels<L>(statistics.mean, first)),
        scale(statistics.template inverses<L>(first)),
        offset(of_channels<L>(beta, first)) {
    const OfChannels<L> gamma = of_channels<L>(statistics.gamma, first);
#pragma unroll
    for (int lane = 0; lane < L; ++lane) scale[lane] *= gamma[lane];
  }
  __device__ float operator()(int lane, float x) const {
    return (x - centre[lane]) * scale[lane] + offset[lane];
  }
};

// relu's and its gradient's; NaN passes.
__device__ float rectified(float value) {
  return value < 0 ? 0 : value;
}
// y, the same bits wherever it is computed.
template <int L>
__device__ float result_of(const Normal<L>& normal, int lane, float x, float residual, bool relu) {
  const float value = normal(lane, x) + residual;
  return relu ? rectified(value) : value;
}
__device__ float masked(float gradient, float y) {
  return y <= 0 ? 0 : gradient;
}

template <int L, bool kAdds>
__global__ void __launch_bounds__(kThreads, ChannelLayout::kBlocksAtOnce)
    normalise(ReductionLayout layout, int64_t channels, Statistics statistics, Reals beta, bool relu, Reals x,
              Reals residual, RealsOut y) {
  struct Operands {
    Packed<L> x, residual;
  };
  const Share share = turns_of(layout);
  if (share.result >= layout.results) return;
  const int64_t first = share.result * L;
  const Normal<L> normal(statistics, beta, first);
  for_each_row_back(
      share, layout.terms - 1,
      [&](int64_t row) {
        const int64_t at = row * channels + first;
        Operands operands{fetch_packed<L>(x, at), {}};
        if constexpr (kAdds) operands.residual = fetch_packed<L>(residual, at);
        return operands;
      },
      [&](int64_t row, const Operands& operands) {
        Lanes<float, L> value = widened(operands.x);
        const Lanes<float, L> other = widened(operands.residual);
#pragma unroll
        for (int lane = 0; lane < L; ++lane) {
          float& v = value.values[lane];
          v = result_of(normal, lane, v, kAdds ? other.values[lane] : 0, relu);
        }
        store(y + (row * channels + first), value);
      });
}

// What says where relu gave more than 0: nothing, without it; the result, computed from x again; or y. With
// kBranches, as with kResult, it is y, and what arrives is a sum.
enum class Mask : uint8_t { kNone, kAgain, kResult, kBranches };

// Sums of g and of g x', where x' = (x - mean) / sqrt(variance + epsilon) and g is what arrives: dy, or,
// behind relu, dy where relu gave more than 0. With y it is stored, too, for the other branch.
template <Mask kMask>
struct GradientSums {
  int64_t channels;
  Statistics statistics;
  Reals dy, x;
  Reals mask, other;  // beta or y; what is added to dy
  RealsOut stored;
  static constexpr int kRowsAtOnce = kMask == Mask::kBranches ? 2 : 4;  // as many registers
  static constexpr bool kHasResult = kMask == Mask::kResult || kMask == Mask::kBranches;

  template <int L>
  struct Row {
    Packed<L> dy, x, y, other;
  };
  template <int L>
  struct Group {
    const GradientSums& in;
    int64_t first_channel;
    OfChannels<L> inverse;
    Normal<L> normal;

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
      const Lanes<float, L> x = widened(fetched.x), gradient = arriving(fetched, x);
#pragma unroll
      for (int lane = 0; lane < L; ++lane) {
        first[lane] += gradient.values[lane];
        second[lane] += gradient.values[lane] * ((x.values[lane] - normal.centre[lane]) * inverse[lane]);
      }
      if constexpr (kHasResult) store(in.stored + (row * in.channels + first_channel), gradient);
    }
  };
  template <int L>
  __device__ Group<L> of_group(int64_t first) const {
    const Reals beta = kMask == Mask::kAgain ? mask : statistics.mean;
    return {*this, first, statistics.template inverses<L>(first), Normal<L>(statistics, beta, first)};
  }
};

// Sums of what arrives where y is more than 0, which is stored, too.
template <bool kAdds>
struct BranchSums {
  int64_t channels;
  Reals dy, y, other;
  RealsOut stored;
  static constexpr int kRowsAtOnce = 4;

  template <int L>
  struct Row {
    Packed<L> dy, y, other;
  };
  template <int L>
  struct Group {
    const BranchSums& in;
    int64_t first_channel;
    __device__ Row<L> fetch(int64_t row) const {
      const int64_t at = row * in.channels + first_channel;
      Row<L> fetched{fetch_packed<L>(in.dy, at), fetch_packed<L>(in.y, at), {}};
      if constexpr (kAdds) fetched.other = fetch_packed<L>(in.other, at);
      return fetched;
    }
    __device__ void add(int64_t row, const Row<L>& fetched, OfChannels<L>& first, OfChannels<L>&) const {
      Lanes<float, L> gradient = widened(fetched.dy);
      const Lanes<float, L> y = widened(fetched.y), other = widened(fetched.other);
#pragma unroll
      for (int lane = 0; lane < L; ++lane) {
        float& g = gradient.values[lane];
        if constexpr (kAdds) g += other.values[lane];
        g = masked(g, y.values[lane]);
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
// With kGivesResult y, too, which may take dy over.
template <int L, Mask kMask, bool kGivesResult>
__global__ void __launch_bounds__(kThreads, ChannelLayout::kBlocksAtOnce)
    normalise_gradient(ReductionLayout layout, GradientSums<kMask> in, Reals dgamma, Reals dbeta, RealsOut dx,
                       RealsOut y) {
  const Share share = turns_of(layout);
  if (share.result >= layout.results) return;
  const int64_t first = share.result * L;
  const auto group = in.template of_group<L>(first);
  const float per_row = 1 / static_cast<float>(layout.terms);
  OfChannels<L> slope = of_channels<L>(dgamma, first), shift = of_channels<L>(dbeta, first);
#pragma unroll
  for (int lane = 0; lane < L; ++lane) {
    slope[lane] *= group.inverse[lane] * per_row;
    shift[lane] *= per_row;
  }
  for_each_row_back(
      share, layout.terms - 1, [&](int64_t row) { return group.fetch(row); },
      [&](int64_t row, const auto& fetched) {
        const Lanes<float, L> x = widened(fetched.x);
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
          const float centred = x.values[lane] - group.normal.centre[lane];
          g = group.normal.scale[lane] * (g - (shift[lane] + centred * slope[lane]));
        }
        store(dx + (row * in.channels + first), gradient);
      });
}

// A gradient's launches, for one way to see where relu gave more than 0.
template <Mask kMask, int L>
void launch_gradient(const Call& call, const ChannelLayout& layout, float epsilon) {
  auto* partial = call.scratch<ChannelSums>();
  const Statistics statistics{epsilon, operand(call, 2), operand(call, 3), operand(call, 4)};
  constexpr bool kHasResult = GradientSums<kMask>::kHasResult;
  GradientSums<kMask> in{layout.channels(), statistics, operand(call, 0), operand(call, 1), {}, {}, {}};
  if constexpr (kMask != Mask::kNone) in.mask = operand(call, 5);
  if constexpr (kMask == Mask::kBranches) in.other = operand(call, 6);
  if constexpr (kHasResult) in.stored = result(call, 3);
  launch(sum_channels<L, GradientSums<kMask>>, layout.groups.grid(), kThreads, call.stream, in, layout.groups,
         partial);
  launch(finish_gradients, layout.last.grid(), kThreads, call.stream, layout.last, partial, result(call, 1),
         result(call, 2));
  // What was stored is masked already.
  constexpr Mask kLeft = kHasResult ? Mask::kNone : kMask;
  const GradientSums<kLeft> left{
      in.channels, statistics, kHasResult ? Reals(in.stored) : in.dy, in.x, in.mask, {}, {}};
  // The norm's result, if somebody reads it.
  RealsOut again{};
  if (kMask == Mask::kAgain && call.outputs.size() > 3) again = result(call, 3);
  auto* kernel = normalise_gradient<L, kLeft, false>;
  if constexpr (kMask == Mask::kAgain) {
    if (again.data != nullptr) kernel = normalise_gradient<L, kLeft, true>;
  }
  launch(kernel, layout.groups.grid(), kThreads, call.stream, layout.groups, left, result(call, 1),
         result(call, 2), result(call), again);
}

// y of a layout whose statistics are known.
template <int L>
void launch_normalise(const Call& call, const ChannelLayout& layout, const Statistics& statistics, bool relu,
                      const Reals& residual) {
  const auto kernel = residual.data != nullptr ? normalise<L, true> : normalise<L, false>;
  launch(kernel, layout.groups.grid(), kThreads, call.stream, layout.groups, layout.channels(), statistics,
         operand(call, 2), relu, operand(call, 0), residual, result(call));
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
          launch_normalise<lanes>(call, layout,
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
          if (op.residual && call.inputs.size() > 6) {
            launch_gradient<Mask::kBranches, lanes>(call, layout, op.epsilon);
          } else if (op.residual) {
            launch_gradient<Mask::kResult, lanes>(call, layout, op.epsilon);
          } else if (op.relu) {
            launch_gradient<Mask::kAgain, lanes>(call, layout, op.epsilon);
          } else {
            launch_gradient<Mask::kNone, lanes>(call, layout, op.epsilon);
          }
        });
      },
      layouts.partial_bytes());
}

std::unique_ptr<Kernel> make_kernel(const BranchGrad&, const Request& request) {
  const ChannelLayouts layouts(request, request.inputs[0].shape);
  return function_kernel(
      [layouts](const Call& call) {
        layouts.with(call, [&](const ChannelLayout& layout, auto lanes) {
          auto* partial = call.scratch<ChannelSums>();
          const auto sum = [&](const auto& branches) {
            launch(sum_channels<lanes, std::decay_t<decltype(branches)>>, layout.groups.grid(), kThreads,
                   call.stream, branches, layout.groups, partial);
          };
          const int64_t channels = layout.channels();
          const Reals dy = operand(call, 0), y = operand(call, 1);
          if (call.inputs.size() > 2) {
            sum(BranchSums<true>{channels, dy, y, operand(call, 2), result(call)});
          } else {
            sum(BranchSums<false>{channels, dy, y, {}, result(call)});
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
      launch_normalise<lanes>(call, layout,
                              {op.epsilon, operand(call, 1), operand(call, 3), operand(call, 4)}, op.relu,
                              residual_at(call, 5));
    });
  });
}

}  // namespace headroom::cuda
