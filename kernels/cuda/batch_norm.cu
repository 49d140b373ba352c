// Batch normalisation over all axes but the last (Ioffe, Szegedy 2015), with what follows it in a residual
// net: the sum with another branch, and relu. Statistics are summed in double.
#include "kernels/cuda/channel_sums.cuh"

namespace headroom::cuda {
namespace {

// Sums of x and x^2, both less the channel's first value: otherwise the mean of squares less the squared mean
// would cancel where values are far from zero.
struct Moments {
  int64_t channels;
  Reals x;

  template <int L>
  struct Group {
    int64_t step;
    Reals from;
    OfChannels<L> origin;
    __device__ Stored<L> fetch(int64_t row) const { return from.template fetch<L>(row * step); }
    __device__ void add(int64_t, const Stored<L>& stored, OfChannels<L>& first, OfChannels<L>& second) const {
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
__device__ float masked(float gradient, float y) {
  return y <= 0 ? 0 : gradient;
}

template <int L>
struct Two {
  Stored<L> a, b;
};

template <int L>
__global__ void normalise(ReductionLayout layout, int64_t channels, Statistics statistics, Reals beta,
                          bool relu, Reals x, Reals residual, RealsOut y) {
  const Share share = share_of(layout);
  if (share.result >= layout.results) return;
  const int64_t first = share.result * L;
  const Normal<L> normal(statistics, beta, first);
  const bool adds = residual.data != nullptr;
  for_each_row(
      share,
      [&](int64_t row) {
        const int64_t at = row * channels + first;
        return Two<L>{x.template fetch<L>(at), adds ? residual.template fetch<L>(at) : Stored<L>{}};
      },
      [&](int64_t row, const Two<L>& stored) {
        Lanes<float, L> value = widened(stored.a);
        const Lanes<float, L> other = widened(stored.b);
#pragma unroll
        for (int lane = 0; lane < L; ++lane) {
          float& v = value.values[lane];
          v = normal(lane, v);
          if (adds) v += other.values[lane];
          if (relu) v = rectified(v);
        }
        store(y + row * channels + first, value);
      });
}

// The gradient that reaches a normalisation: dy, or, behind relu, dy where relu gave more than 0. That is
// seen by y or, where nothing was added, computed from x again.
struct Arriving {
  Reals dy, y, beta;  // y and beta are null where they are not needed

  template <int L>
  __device__ Stored<L> fetch_y(int64_t at) const {
    return y.data != nullptr ? y.template fetch<L>(at) : Stored<L>{};
  }
};

template <int L>
struct Three {
  Stored<L> dy, x, y;
};

// Sums of g and of g x', where x' = (x - mean) / sqrt(variance + epsilon) and g is what arrives, which is
// stored, too, where another branch needs it.
struct GradientSums {
  int64_t channels;
  Statistics statistics;
  Arriving arriving;
  Reals x;
  RealsOut stored;  // null where nobody needs it

  template <int L>
  struct Group {
    const GradientSums& in;
    int64_t first_channel;
    OfChannels<L> inverse;
    Normal<L> normal;
    __device__ Three<L> fetch(int64_t row) const {
      const int64_t at = row * in.channels + first_channel;
      return {in.arriving.dy.template fetch<L>(at), in.x.template fetch<L>(at),
              in.arriving.template fetch_y<L>(at)};
    }
    __device__ void add(int64_t row, const Three<L>& three, OfChannels<L>& first,
                        OfChannels<L>& second) const {
      Lanes<float, L> gradient = widened(three.dy);
      const Lanes<float, L> value = widened(three.x), y = widened(three.y);
#pragma unroll
      for (int lane = 0; lane < L; ++lane) {
        float& g = gradient.values[lane];
        if (in.arriving.y.data != nullptr) g = masked(g, y.values[lane]);
        if (in.arriving.beta.data != nullptr) g = masked(g, normal(lane, value.values[lane]));
        first[lane] += g;
        second[lane] += g * ((value.values[lane] - normal.centre[lane]) * inverse[lane]);
      }
      if (in.stored.data != nullptr) store(in.stored + (row * in.channels + first_channel), gradient);
    }
  };
  template <int L>
  __device__ Group<L> of_group(int64_t first) const {
    const Reals beta = arriving.beta.data != nullptr ? arriving.beta : statistics.mean;
    return {*this, first, statistics.template inverses<L>(first), Normal<L>(statistics, beta, first)};
  }
};

//   dbeta = sum g,  dgamma = sum g x',  dx = gamma / sqrt(variance + epsilon) (g - (dbeta + x' dgamma) /
//   rows)
template <int L>
__global__ void normalise_gradient(ReductionLayout layout, GradientSums in, Reals dgamma, Reals dbeta,
                                   RealsOut dx) {
  const Share share = share_of(layout);
  if (share.result >= layout.results) return;
  const int64_t first = share.result * L;
  const auto group = in.template of_group<L>(first);
  const float per_row = 1 / static_cast<float>(layout.terms);
  OfChannels<L> slope = of_channels<L>(dgamma, first), shift = of_channels<L>(dbeta, first);
#pragma unroll
  for (int lane = 0; lane < L; ++lane) slope[lane] *= group.inverse[lane];
  for_each_row(
      share, [&](int64_t row) { return group.fetch(row); },
      [&](int64_t row, const Three<L>& three) {
        Lanes<float, L> gradient = widened(three.dy);
        const Lanes<float, L> value = widened(three.x), y = widened(three.y);
#pragma unroll
        for (int lane = 0; lane < L; ++lane) {
          float& g = gradient.values[lane];
          if (in.arriving.y.data != nullptr) g = masked(g, y.values[lane]);
          if (in.arriving.beta.data != nullptr) g = masked(g, group.normal(lane, value.values[lane]));
          const float centred = value.values[lane] - group.normal.centre[lane];
          g = group.normal.scale[lane] * (g - (shift[lane] + centred * slope[lane]) * per_row);
        }
        store(dx + (row * in.channels + first), gradient);
      });
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const BatchNorm& op, const Request& request) {
  const ChannelLayouts layouts(request, request.inputs[0].shape);
  return function_kernel(
      [layouts, op](const Call& call) {
        layouts.with(call, [&](const ChannelLayout& layout, auto lanes) {
          auto* partial = call.scratch<ChannelSums>();
          const Reals x = operand(call, 0);
          launch(sum_channels<lanes, Moments>, layout.groups.grid(), kThreads, call.stream,
                 Moments{layout.channels(), x}, layout.groups, partial);
          launch(finish_statistics, layout.last.grid(), kThreads, call.stream, layout.last, layout.rows(),
                 partial, x, result(call, 1), result(call, 2));
          const Statistics statistics{op.epsilon, operand(call, 1), result(call, 1), result(call, 2)};
          launch(normalise<lanes>, layout.groups.grid(), kThreads, call.stream, layout.groups,
                 layout.channels(), statistics, operand(call, 2), op.relu, x,
                 call.inputs.size() > 3 ? operand(call, 3) : Reals(), result(call));
        });
      },
      layouts.partial_bytes());
}

std::unique_ptr<Kernel> make_kernel(const BatchNormGrad& op, const Request& request) {
  const ChannelLayouts layouts(request, request.inputs[1].shape);
  return function_kernel(
      [layouts, op](const Call& call) {
        layouts.with(call, [&](const ChannelLayout& layout, auto lanes) {
          auto* partial = call.scratch<ChannelSums>();
          GradientSums in{layout.channels(),
                          {op.epsilon, operand(call, 2), operand(call, 3), operand(call, 4)},
                          {operand(call, 0), {}, {}},
                          operand(call, 1),
                          {}};
          if (op.relu) (op.residual ? in.arriving.y : in.arriving.beta) = operand(call, 5);
          if (op.residual) in.stored = result(call, 3);
          launch(sum_channels<lanes, GradientSums>, layout.groups.grid(), kThreads, call.stream, in,
                 layout.groups, partial);
          launch(finish_gradients, layout.last.grid(), kThreads, call.stream, layout.last, partial,
                 result(call, 1), result(call, 2));
          // What was stored is masked already.
          if (op.residual) in.arriving = {in.stored, {}, {}};
          in.stored = {};
          launch(normalise_gradient<lanes>, layout.groups.grid(), kThreads, call.stream, layout.groups, in,
                 result(call, 1), result(call, 2), result(call));
        });
      },
      layouts.partial_bytes());
}

std::unique_ptr<Kernel> make_kernel(const BatchNormInference& op, const Request& request) {
  const ChannelLayouts layouts(request, request.inputs[0].shape);
  return function_kernel([layouts, op](const Call& call) {
    layouts.with(call, [&](const ChannelLayout& layout, auto lanes) {
      const Statistics statistics{op.epsilon, operand(call, 1), operand(call, 3), operand(call, 4)};
      launch(normalise<lanes>, layout.groups.grid(), kThreads, call.stream, layout.groups, layout.channels(),
             statistics, operand(call, 2), false, operand(call, 0), Reals(), result(call));
    });
  });
}

}  // namespace headroom::cuda
