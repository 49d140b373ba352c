// Batch normalisation over all axes but the last (Ioffe, Szegedy 2015). Statistics are summed in double.
#include "kernels/cuda/channel_sums.cuh"

namespace headroom::cuda {
namespace {

// Calls use(i, load(i)) for the elements i of this thread's channel and rows.
template <typename Load, typename Use>
__device__ void for_each_row(const ReductionLayout& layout, const Share& share, const Load& load,
                             const Use& use) {
  for_each_term(
      share, [&](int64_t row) { return row * layout.results + share.result; }, load, use);
}

// Sums of x and x^2, both less the channel's first value: otherwise the mean of squares less the squared mean
// would cancel where values are far from zero.
struct Moments {
  int64_t channels;
  Reals x;
  __device__ auto of_channel(int64_t channel) const {
    return [from = x + channel, step = channels, origin = static_cast<double>(x[channel])](int64_t row) {
      const double centred = static_cast<double>(from[row * step]) - origin;
      return ChannelSums{centred, centred * centred};
    };
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

// Sums of dy and of dy x', where x' = (x - mean) / sqrt(variance + epsilon).
struct GradientSums {
  int64_t channels;
  float epsilon;
  Reals dy, x, mean, variance;
  __device__ auto of_channel(int64_t channel) const {
    return [gradients = dy + channel, from = x + channel, step = channels, centre = mean[channel],
            inverse = 1 / sqrtf(variance[channel] + epsilon)](int64_t row) {
      const float gradient = gradients[row * step];
      return ChannelSums{static_cast<double>(gradient),
                         static_cast<double>(gradient * ((from[row * step] - centre) * inverse))};
    };
  }
};

struct Elements {
  float dy, x;
};

//   dbeta = sum dy,  dgamma = sum dy x',  dx = gamma / sqrt(variance + epsilon) (dy - (dbeta + x' dgamma) /
//   rows)
__global__ void normalise_gradient(ReductionLayout layout, GradientSums in, Reals gamma, Reals dgamma,
                                   Reals dbeta, RealsOut dx) {
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
        dx.set(i, scale * (at.dy - (shift + normal * slope) * per_row));
      });
}

__global__ void normalise_by(ReductionLayout layout, float epsilon, Reals x, Reals gamma, Reals beta,
                             Reals mean, Reals variance, RealsOut y) {
  const Share share = share_of(layout);
  const int64_t c = share.result;
  if (c >= layout.results) return;
  const float centre = mean[c], scale = gamma[c] / sqrtf(variance[c] + epsilon), offset = beta[c];
  for_each_row(
      layout, share, [&](int64_t i) { return x[i]; },
      [&](int64_t i, float value) { y.set(i, (value - centre) * scale + offset); });
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const BatchNorm& op, const Request& request) {
  const ReductionLayout layout = channel_layout(request, request.inputs[0].shape);
  return function_kernel(
      [layout, last = layout_of_partials(layout), epsilon = op.epsilon](const Call& call) {
        auto* partial = call.scratch<ChannelSums>();
        launch(sum_channels<Moments>, layout.grid(), kThreads, call.stream,
               Moments{layout.results, operand(call, 0)}, layout, partial);
        launch(finish_statistics, last.grid(), kThreads, call.stream, last, layout.terms, partial,
               operand(call, 0), result(call, 1), result(call, 2));
        launch(normalise_by, layout.grid(), kThreads, call.stream, layout, epsilon, operand(call, 0),
               operand(call, 1), operand(call, 2), result(call, 1), result(call, 2), result(call, 0));
      },
      partial_bytes(layout));
}

std::unique_ptr<Kernel> make_kernel(const BatchNormGrad& op, const Request& request) {
  const ReductionLayout layout = channel_layout(request, request.inputs[1].shape);
  return function_kernel(
      [layout, last = layout_of_partials(layout), epsilon = op.epsilon](const Call& call) {
        auto* partial = call.scratch<ChannelSums>();
        const GradientSums in{layout.results,   epsilon,          operand(call, 0),
                              operand(call, 1), operand(call, 3), operand(call, 4)};
        launch(sum_channels<GradientSums>, layout.grid(), kThreads, call.stream, in, layout, partial);
        launch(finish_gradients, last.grid(), kThreads, call.stream, last, partial, result(call, 1),
               result(call, 2));
        launch(normalise_gradient, layout.grid(), kThreads, call.stream, layout, in, operand(call, 2),
               result(call, 1), result(call, 2), result(call, 0));
      },
      partial_bytes(layout));
}

std::unique_ptr<Kernel> make_kernel(const BatchNormInference& op, const Request& request) {
  const ReductionLayout layout = channel_layout(request, request.inputs[0].shape);
  return function_kernel([layout, epsilon = op.epsilon](const Call& call) {
    launch(normalise_by, layout.grid(), kThreads, call.stream, layout, epsilon, operand(call, 0),
           operand(call, 1), operand(call, 2), operand(call, 3), operand(call, 4), result(call));
  });
}

}  // namespace headroom::cuda
