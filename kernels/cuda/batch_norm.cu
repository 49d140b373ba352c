// Batch normalisation over all axes but the last (Ioffe, Szegedy 2015). Statistics are summed in double, a
// block for up to 32 neighbouring channels and a share of the rows; a second launch adds the shares up.
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
ReductionLayout layout_of(const Request& request, const Shape& shape) {
  const int64_t channels = shape.last();
  return reduction_layout(request.device, channels, shape.elements() / channels, Neighbours::kResults);
}
int64_t partial_bytes(const ReductionLayout& layout) {
  return layout.splits * layout.results * static_cast<int64_t>(sizeof(Sums));
}

// Calls use(i, load(i)) for the elements i of this thread's channel and rows.
template <typename Load, typename Use>
__device__ void for_each_row(const ReductionLayout& layout, const Share& share, const Load& load,
                             const Use& use) {
  for_each_term(
      share, [&](int64_t row) { return row * layout.results + share.result; }, load, use);
}

// partial (splits, C): the sums of f(channel) over a share of the rows.
template <typename F>
__global__ void sum_channels(F f, ReductionLayout layout, Sums* partial) {
  const Share share = share_of(layout);
  Sums sums{};
  if (share.result < layout.results) {
    const auto term = f.of_channel(share.result);
    for_each_row(layout, share, term, [&](int64_t, const Sums& sum) { sums = AddSums()(sums, sum); });
  }
  sums = combine_block(sums, layout.wide, AddSums());
  if (threadIdx.x < layout.wide && share.result < layout.results) {
    partial[blockIdx.y * layout.results + share.result] = sums;
  }
}

// The sums of this thread's channel over all shares; every thread of the block must call it.
__device__ Sums add_shares(const ReductionLayout& last, const Share& share, const Sums* partial) {
  Sums sums{};
  if (share.result < last.results) {
    for_each_row(
        last, share, [&](int64_t i) { return partial[i]; },
        [&](int64_t, const Sums& part) { sums = AddSums()(sums, part); });
  }
  return combine_block(sums, last.wide, AddSums());
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

__global__ void finish_statistics(ReductionLayout last, int64_t rows, const Sums* partial, const float* x,
                                  float* mean, float* variance) {
  const Share share = share_of(last);
  const Sums sums = add_shares(last, share, partial);
  if (threadIdx.x >= last.wide || share.result >= last.results) return;
  const double count = static_cast<double>(rows), shift = sums.first / count;
  const double square = sums.second / count - shift * shift;
  mean[share.result] = static_cast<float>(static_cast<double>(x[share.result]) + shift);
  // Rounding may leave it below 0; in this order NaN stays.
  variance[share.result] = static_cast<float>(square < 0 ? 0 : square);
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

__global__ void finish_gradients(ReductionLayout last, const Sums* partial, float* dgamma, float* dbeta) {
  const Share share = share_of(last);
  const Sums sums = add_shares(last, share, partial);
  if (threadIdx.x >= last.wide || share.result >= last.results) return;
  dbeta[share.result] = static_cast<float>(sums.first);
  dgamma[share.result] = static_cast<float>(sums.second);
}

struct Elements {
  float dy, x;
};

//   dbeta = sum dy,  dgamma = sum dy x',  dx = gamma / sqrt(variance + epsilon) (dy - (dbeta + x' dgamma) /
//   rows)
__global__ void normalise_gradient(ReductionLayout layout, GradientSums in, const float* gamma,
                                   const float* dgamma, const float* dbeta, float* dx) {
  const Share share = share_of(layout);
  const int64_t c = share.result;
  if (c >= layout.results) return;
  const float centre = in.mean[c], inverse = 1 / sqrtf(in.variance[c] + in.epsilon);
  const float shift = dbeta[c], slope = dgamma[c];
  const float scale = gamma[c] * inverse, per_row = 1 / static_cast<float>(layout.terms);
  for_each_row(
      layout, share,
      [&](int64_t i) {
        return Elements{in.dy[i], in.x[i]};
      },
      [&](int64_t i, const Elements& at) {
        const float normal = (at.x - centre) * inverse;
        dx[i] = scale * (at.dy - (shift + normal * slope) * per_row);
      });
}

__global__ void normalise_by(ReductionLayout layout, float epsilon, const float* x, const float* gamma,
                             const float* beta, const float* mean, const float* variance, float* y) {
  const Share share = share_of(layout);
  const int64_t c = share.result;
  if (c >= layout.results) return;
  const float centre = mean[c], scale = gamma[c] / sqrtf(variance[c] + epsilon), offset = beta[c];
  for_each_row(
      layout, share, [&](int64_t i) { return x[i]; },
      [&](int64_t i, float value) { y[i] = (value - centre) * scale + offset; });
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const BatchNorm& op, const Request& request) {
  const ReductionLayout layout = layout_of(request, request.inputs[0].shape);
  return function_kernel(
      [layout, last = layout_of_partials(layout), epsilon = op.epsilon](const Call& call) {
        auto* partial = call.scratch<Sums>();
        launch(sum_channels<Moments>, layout.grid(), kThreads, call.stream, Moments{call.in(0)}, layout,
               partial);
        launch(finish_statistics, last.grid(), kThreads, call.stream, last, layout.terms, partial, call.in(0),
               call.out(1), call.out(2));
        launch(normalise_by, layout.grid(), kThreads, call.stream, layout, epsilon, call.in(0), call.in(1),
               call.in(2), call.out(1), call.out(2), call.out(0));
      },
      partial_bytes(layout));
}

std::unique_ptr<Kernel> make_kernel(const BatchNormGrad& op, const Request& request) {
  const ReductionLayout layout = layout_of(request, request.inputs[1].shape);
  return function_kernel(
      [layout, last = layout_of_partials(layout), epsilon = op.epsilon](const Call& call) {
        auto* partial = call.scratch<Sums>();
        const GradientSums in{epsilon, call.in(0), call.in(1), call.in(3), call.in(4)};
        launch(sum_channels<GradientSums>, layout.grid(), kThreads, call.stream, in, layout, partial);
        launch(finish_gradients, last.grid(), kThreads, call.stream, last, partial, call.out(1), call.out(2));
        launch(normalise_gradient, layout.grid(), kThreads, call.stream, layout, in, call.in(2), call.out(1),
               call.out(2), call.out(0));
      },
      partial_bytes(layout));
}

std::unique_ptr<Kernel> make_kernel(const BatchNormInference& op, const Request& request) {
  const ReductionLayout layout = layout_of(request, request.inputs[0].shape);
  return function_kernel([layout, epsilon = op.epsilon](const Call& call) {
    launch(normalise_by, layout.grid(), kThreads, call.stream, layout, epsilon, call.in(0), call.in(1),
           call.in(2), call.in(3), call.in(4), call.out());
  });
}

}  // namespace headroom::cuda
