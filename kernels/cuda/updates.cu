// Optimizer steps and other changes of variables in place: one launch for all variables of a node. A
// variable, its gradient and its state are different memory.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/multi_tensor.cuh"

namespace headroom::cuda {
namespace {

// Each rule changes x = {w, g, states...} of one element; the type around it reads the rate and the step.
struct PlainSgd {
  const float* rate;
  GradientScale scale;
  struct Rule {
    float factor;
    __device__ void operator()(float (&x)[2]) const { x[0] -= factor * x[1]; }
  };
  __device__ Rule operator()() const { return {*rate * scale.value()}; }
};

struct MomentumSgd {
  const float* rate;
  GradientScale scale;
  float momentum;
  bool nesterov;
  struct Rule {
    float rate, momentum, scale;
    bool nesterov;
    __device__ void operator()(float (&x)[3]) const {
      const float g = scale * x[1];
      x[2] = momentum * x[2] + g;
      x[0] -= rate * (nesterov ? g + momentum * x[2] : x[2]);
    }
  };
  __device__ Rule operator()() const { return {*rate, momentum, scale.value(), nesterov}; }
};

struct Rmsprop {
  const float* rate;
  GradientScale scale;
  float rho, epsilon;
  struct Rule {
    float rate, rho, epsilon, scale;
    __device__ void operator()(float (&x)[3]) const {
      const float g = scale * x[1];
      x[2] = rho * x[2] + (1 - rho) * g * g;
      x[0] -= rate * g / (sqrtf(x[2]) + epsilon);
    }
  };
  __device__ Rule operator()() const { return {*rate, rho, epsilon, scale.value()}; }
};

struct Adam {
  const float* rate;
  const int32_t* step;
  GradientScale scale;
  float beta1, beta2, epsilon, weight_decay;
  float log_beta1, log_beta2;
  struct Rule {
    float beta1, beta2, epsilon, scale, kept, step, v_factor;
    __device__ void operator()(float (&x)[4]) const {
      const float g = scale * x[1];
      x[2] = beta1 * x[2] + (1 - beta1) * g;
      x[3] = beta2 * x[3] + (1 - beta2) * g * g;
      x[0] = kept * x[0] - step * x[2] / (sqrtf(x[3] * v_factor) + epsilon);
    }
  };
  __device__ Rule operator()() const {
    // 1 - beta^t as -expm1(t log beta), which keeps precision at the first updates, where beta^t is near 1.
    const auto updates = static_cast<float>(*step) + 1;
    const float m_factor = -1 / expm1f(updates * log_beta1), v_factor = -1 / expm1f(updates * log_beta2);
    return {beta1, beta2, epsilon, scale.value(), 1 - *rate * weight_decay, *rate * m_factor, v_factor};
  }
};

struct MovingAverage {
  GradientScale scale;
  float momentum;
  struct Rule {
    float momentum;
    __device__ void operator()(float (&x)[2]) const { x[0] = momentum * x[0] + (1 - momentum) * x[1]; }
  };
  __device__ Rule operator()() const { return {momentum}; }
};

// The kernel of an optimizer whose variables have N operands each; make_rule(call, scale) is its rule. Before
// it waits it reads all of them but the gradients.
template <int N, typename Update, typename MakeRule>
std::unique_ptr<Kernel> update_kernel(const Update& op, const Request& request, MakeRule make_rule) {
  const size_t shared = op.operands().shared;
  std::vector<int> read_early;
  for (size_t i = shared; i < request.inputs.size(); ++i) {
    if ((i - shared) % N != 1) read_early.push_back(static_cast<int>(i));
  }
  return function_kernel(
      [=, shard = op.shard, factor = op.gradient_scale, is_scaled = op.scaled](const Call& call) {
        const GradientScale scale{factor, is_scaled ? call.in(shared - 1) : nullptr};
        update_all<N>(call.inputs.subspan(shared), shard, call.stream, make_rule(call, scale));
      },
      0, starts_early(request.device, std::move(read_early)));
}

float log_of(float beta) {
  return static_cast<float>(std::log(static_cast<double>(beta)));
}

__global__ void count_up(int32_t* counter) {
  ++*counter;
}

__global__ void adapt_loss_scale(float growth, float backoff, int32_t interval, const uint8_t* finite,
                                 float* scale, int32_t* streak, int32_t* updates) {
  constexpr float kSmallestNormal = 0x1p-126f;
  if (*finite == 0) {
    const float lower = *scale * backoff;
    if (isfinite(lower) && fabsf(lower) >= kSmallestNormal) *scale = lower;
    *streak = 0;
    return;
  }
  *updates += 1;
  *streak += 1;
  if (*streak < interval) return;
  if (isfinite(*scale * growth)) *scale *= growth;
  *streak = 0;
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const SgdUpdate& op, const Request& request) {
  if (op.momentum == 0) {
    return update_kernel<2>(op, request, [](const Call& call, const GradientScale& scale) {
      return PlainSgd{call.in(0), scale};
    });
  }
  return update_kernel<3>(
      op, request,
      [momentum = op.momentum, nesterov = op.nesterov](const Call& call, const GradientScale& scale) {
        return MomentumSgd{call.in(0), scale, momentum, nesterov};
      });
}

std::unique_ptr<Kernel> make_kernel(const RmspropUpdate& op, const Request& request) {
  return update_kernel<3>(op, request,
                          [rho = op.rho, epsilon = op.epsilon](const Call& call, const GradientScale& scale) {
                            return Rmsprop{call.in(0), scale, rho, epsilon};
                          });
}

std::unique_ptr<Kernel> make_kernel(const AdamUpdate& op, const Request& request) {
  return update_kernel<4>(op, request, [op](const Call& call, const GradientScale& scale) {
    return Adam{call.in(0),      call.in<int32_t>(1), scale,           op.beta1, op.beta2, op.epsilon,
                op.weight_decay, log_of(op.beta1),    log_of(op.beta2)};
  });
}

std::unique_ptr<Kernel> make_kernel(const MovingAverageUpdate& op, const Request& request) {
  std::vector<int> averages;
  for (size_t i = 0; i < request.inputs.size(); i += 2) averages.push_back(static_cast<int>(i));
  return function_kernel(
      [momentum = op.momentum](const Call& call) {
        update_all<2>(call.inputs, Shard{}, call.stream, MovingAverage{{1, nullptr}, momentum});
      },
      0, starts_early(request.device, std::move(averages)));
}

std::unique_ptr<Kernel> make_kernel(const LossScaleUpdate& op, const Request&) {
  return function_kernel([op](const Call& call) {
    launch(adapt_loss_scale, 1, 1, call.stream, op.growth, op.backoff, op.interval, call.in<uint8_t>(0),
           call.mutated(1), call.mutated<int32_t>(2), call.mutated<int32_t>(3));
  });
}

std::unique_ptr<Kernel> make_kernel(const CounterUpdate&, const Request&) {
  return function_kernel(
      [](const Call& call) { launch(count_up, 1, 1, call.stream, call.mutated<int32_t>(0)); });
}

}  // namespace headroom::cuda
