// Batch normalisation over all axes but the last (Ioffe, Szegedy 2015). Statistics are summed in double, a
// block for 32 neighbouring channels and a share of the rows; the blocks that use them add the shares up.
#include "kernels/cuda/reductions.cuh"

namespace headroom::cuda {
namespace {

// Two sums over the rows of a channel.
struct Sums {
  double first, second;
};
struct AddSums {
  __device__ Sums operator()(const Sums& a, const Sums& b) const {
    return {a.first + b.first, a.second + b.second};
  }
};

// A tensor (.., C) as a matrix (rows, C): results are channels, terms are rows.
ReductionPlan plan_of(const Request& request, const Shape& shape) {
  const int64_t channels = shape.last();
  return plan_reduction(request.device, channels, shape.elements() / channels, Neighbours::kResults);
}
int64_t partial_bytes(const ReductionPlan& plan) {
  return plan.splits * plan.results * static_cast<int64_t>(sizeof(Sums));
}

// Calls use(i, load(i)) for the elements i of this thread's channel and rows.
template <typename Load, typename Use>
__device__ void for_each_row(const ReductionPlan& plan, const Share& share, const Load& load,
                             const Use& use) {
  constexpr int kAtOnce = 4;  // each with up to two tensors, and doubles
  for_each_term<kAtOnce>(
      share, [&](int64_t row) { return row * plan.results + share.result; }, load, use);
}

// partial (splits, C): the sums of f(channel) over a share of the rows.
template <typename F>
__global__ void sum_channels(F f, ReductionPlan plan, Sums* partial) {
  const Share share = share_of(plan);
  Sums sums{};
  if (share.result < plan.results) {
    const auto term = f.of_channel(share.result);
    for_each_row(plan, share, term, [&](int64_t, const Sums& sum) { sums = AddSums()(sums, sum); });
  }
  sums = combine_block(sums, plan.wide, AddSums());
  if (threadIdx.x < plan.wide && share.result < plan.results) {
    partial[blockIdx.y * plan.results + share.result] = sums;
  }
}

// The sums of the channel of this thread over all rows; every thread of the block must call it.
__device__ Sums whole_sums(const ReductionPlan& plan, int64_t channel, const Sums* partial) {
  Sums sums{};
  if (channel < plan.results) {
    for (int split = static_cast<int>(threadIdx.x) / plan.wide; split < plan.splits;
         split += kThreads / plan.wide) {
      sums = AddSums()(sums, partial[split * plan.results + channel]);
    }
  }
  return combine_block(sums, plan.wide, AddSums());
}

// Whether this thread is the one of its channel that writes down what concerns the whole channel.
__device__ bool speaks_for_channel(const ReductionPlan& plan) {
  return blockIdx.y == 0 && threadIdx.x < plan.wide;
}

// Sums of x and x^2, both less the channel's first value: otherwise the mean of squares less the squared mean
// would cancel where values are far from zero.
struct Moments {
  const float* x;
  __device__ auto of_channel(int64_t channel) const {
    return [x = x, origin = static_cast<double>(x[channel])](int64_t i) {
      const double centred = static_cast<double>(x[i]) - origin;
      return Sums{centred, centred * centred};
    };
  }
};

__global__ void normalise_batch(ReductionPlan plan, float epsilon, const Sums* partial, const float* x,
                                const float* gamma, const float* beta, float* y, float* mean,
                                float* variance) {
  const Share share = share_of(plan);
  const int64_t c = share.result;
  const Sums sums = whole_sums(plan, c, partial);
  if (c >= plan.results) return;
  const double rows = static_cast<double>(plan.terms), shift = sums.first / rows;
  const auto centre = static_cast<float>(static_cast<double>(x[c]) + shift);
  const double square = sums.second / rows - shift * shift;
  // Rounding may leave it below 0; in this order NaN stays.
  const auto spread = static_cast<float>(square < 0 ? 0 : square);
  if (speaks_for_channel(plan)) {
    mean[c] = centre;
    variance[c] = spread;
  }
  const float scale = gamma[c] / sqrtf(spread + epsilon), offset = beta[c];
  for_each_row(
      plan, share, [&](int64_t i) { return x[i]; },
      [&](int64_t i, float value) { y[i] = (value - centre) * scale + offset; });
}

// Sums of dy and of dy x', where x' = (x - mean) / sqrt(variance + epsilon).
struct GradientSums {
  float epsilon;
  const float *dy, *x, *mean, *variance;
  __device__ auto of_channel(int64_t channel) const {
    return [dy = dy, x = x, centre = mean[channel],
            inverse = 1 / sqrtf(variance[channel] + epsilon)](int64_t i) {
      return Sums{static_cast<double>(dy[i]), static_cast<double>(dy[i] * ((x[i] - centre) * inverse))};
    };
  }
};

struct Elements {
  float dy, x;
};

//   dbeta = sum dy,  dgamma = sum dy x',  dx = gamma / sqrt(variance + epsilon) (dy - (dbeta + x' dgamma) /
//   rows)
__global__ void normalise_gradient(ReductionPlan plan, GradientSums in, const Sums* partial,
                                   const float* gamma, float* dx, float* dgamma, float* dbeta) {
  const Share share = share_of(plan);
  const int64_t c = share.result;
  const Sums sums = whole_sums(plan, c, partial);
  if (c >= plan.results) return;
  const auto shift = static_cast<float>(sums.first), slope = static_cast<float>(sums.second);
  if (speaks_for_channel(plan)) {
    dbeta[c] = shift;
    dgamma[c] = slope;
  }
  const float centre = in.mean[c], inverse = 1 / sqrtf(in.variance[c] + in.epsilon);
  const float scale = gamma[c] * inverse, per_row = 1 / static_cast<float>(plan.terms);
  for_each_row(
      plan, share,
      [&](int64_t i) {
        return Elements{in.dy[i], in.x[i]};
      },
      [&](int64_t i, const Elements& at) {
        const float normal = (at.x - centre) * inverse;
        dx[i] = scale * (at.dy - (shift + normal * slope) * per_row);
      });
}

__global__ void normalise_by(ReductionPlan plan, float epsilon, const float* x, const float* gamma,
                             const float* beta, const float* mean, const float* variance, float* y) {
  const Share share = share_of(plan);
  const int64_t c = share.result;
  if (c >= plan.results) return;
  const float centre = mean[c], scale = gamma[c] / sqrtf(variance[c] + epsilon), offset = beta[c];
  for_each_row(
      plan, share, [&](int64_t i) { return x[i]; },
      [&](int64_t i, float value) { y[i] = (value - centre) * scale + offset; });
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const BatchNorm& op, const Request& request) {
  const ReductionPlan plan = plan_of(request, request.inputs[0].shape);
  return function_kernel(
      [plan, epsilon = op.epsilon](const Call& call) {
        auto* partial = call.scratch<Sums>();
        launch(sum_channels<Moments>, plan.grid(), kThreads, call.stream, Moments{call.in(0)}, plan, partial);
        launch(normalise_batch, plan.grid(), kThreads, call.stream, plan, epsilon, partial, call.in(0),
               call.in(1), call.in(2), call.out(0), call.out(1), call.out(2));
      },
      partial_bytes(plan));
}

std::unique_ptr<Kernel> make_kernel(const BatchNormGrad& op, const Request& request) {
  const ReductionPlan plan = plan_of(request, request.inputs[1].shape);
  return function_kernel(
      [plan, epsilon = op.epsilon](const Call& call) {
        auto* partial = call.scratch<Sums>();
        const GradientSums in{epsilon, call.in(0), call.in(1), call.in(3), call.in(4)};
        launch(sum_channels<GradientSums>, plan.grid(), kThreads, call.stream, in, plan, partial);
        launch(normalise_gradient, plan.grid(), kThreads, call.stream, plan, in, partial, call.in(2),
               call.out(0), call.out(1), call.out(2));
      },
      partial_bytes(plan));
}

std::unique_ptr<Kernel> make_kernel(const BatchNormInference& op, const Request& request) {
  const ReductionPlan plan = plan_of(request, request.inputs[0].shape);
  return function_kernel([plan, epsilon = op.epsilon](const Call& call) {
    launch(normalise_by, plan.grid(), kThreads, call.stream, plan, epsilon, call.in(0), call.in(1),
           call.in(2), call.in(3), call.in(4), call.out());
  });
}

}  // namespace headroom::cuda
