// Functions of one number, and their gradients.
#include <cmath>
#include <numbers>

#include "kernels/cuda/device_loops.cuh"
#include "kernels/cuda/fast_math.cuh"

namespace headroom::cuda {
namespace {

constexpr float kSqrtHalf = static_cast<float>(1 / std::numbers::sqrt2);
// Density of the normal distribution at 0: 1 / sqrt(2 pi).
constexpr float kNormalDensity = static_cast<float>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
// The slope of erf at 0: 2 / sqrt(pi).
constexpr float kErfSlope = static_cast<float>(2 * std::numbers::inv_sqrtpi);
// tanh_gelu(x) = x / 2 (1 + tanh(kInner (x + kCubic x^3))): Hendrycks, Gimpel 2016.
constexpr float kInner = static_cast<float>(std::numbers::sqrt2 * std::numbers::inv_sqrtpi),
                kCubic = 0.044715f;

// Gelu of numbers stored in 16 bits would take longer than memory with erff(), tanhf() and a division.

// The share of the standard normal distribution beyond |x|, within 1e-7, and its density over that at 0,
// which the share is made of: Abramowitz and Stegun, formula 7.1.26, halved.
struct NormalTail {
  float share, density;
  __device__ explicit NormalTail(float x) {
    const float t = reciprocal(fmaf(0.3275911f * kSqrtHalf, fabsf(x), 1.0f));
    density = power_of_2(x * (x * (-0.5f * kLog2E)));
    const float series =
        fmaf(t, fmaf(t, fmaf(t, fmaf(t, 0.5307027145f, -0.7265760135f), 0.7107068705f), -0.142248368f),
             0.127414796f);
    share = density * t * series;
  }
  __device__ float below(float x) const { return x < 0 ? share : 1 - share; }
};

// (1 + tanh(u)) / 2 = 1 / (1 + exp(-2 u)) where u = kInner (x + kCubic x^3).
__device__ float tanh_gelu_share(float x) {
  constexpr float kFirst = -2 * kInner * kLog2E, kThird = kFirst * kCubic;
  return reciprocal(1 + power_of_2(x * fmaf(x * x, kThird, kFirst)));
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Unary& op, const Request& request) {
  const float alpha = op.alpha, beta = op.beta;
  // Comparisons are ordered so that NaN stays: it is neither below nor above.
  switch (op.kind) {
    case UnaryKind::kRelu:
      return map_kernel(request, [] __device__(float x) { return x < 0 ? 0 : x; });
    case UnaryKind::kSigmoid:
      return map_kernel(request, [] __device__(float x) { return 1 / (1 + expf(-x)); });
    case UnaryKind::kTanh:
      return map_kernel(request, [] __device__(float x) { return tanhf(x); });
    case UnaryKind::kExp:
      return map_kernel(request, [] __device__(float x) { return expf(x); });
    case UnaryKind::kSqrt:
      return map_kernel(request, [] __device__(float x) { return sqrtf(x); });
    case UnaryKind::kReciprocal:
      return map_kernel(request, [] __device__(float x) { return 1 / x; });
    case UnaryKind::kGelu:
      if (is_half(request.outputs[0].dtype)) {
        return map_kernel(request, [] __device__(float x) { return x * NormalTail(x).below(x); });
      }
      return map_kernel(request, [] __device__(float x) { return 0.5f * x * (1 + erff(x * kSqrtHalf)); });
    case UnaryKind::kTanhGelu:
      if (is_half(request.outputs[0].dtype)) {
        return map_kernel(request, [] __device__(float x) { return x * tanh_gelu_share(x); });
      }
      return map_kernel(request, [] __device__(float x) {
        return 0.5f * x * (1 + tanhf(kInner * (x + kCubic * x * x * x)));
      });
    case UnaryKind::kLog:
      return map_kernel(request, [] __device__(float x) { return logf(x); });
    case UnaryKind::kErf:
      return map_kernel(request, [] __device__(float x) { return erff(x); });
    case UnaryKind::kAbs:
      return map_kernel(request, [] __device__(float x) { return fabsf(x); });
    case UnaryKind::kSin:
      return map_kernel(request, [] __device__(float x) { return sinf(x); });
    case UnaryKind::kCos:
      return map_kernel(request, [] __device__(float x) { return cosf(x); });
    case UnaryKind::kSoftplus:
      // log1p(exp(-|x|)) cannot overflow.
      return map_kernel(request,
                        [] __device__(float x) { return (x < 0 ? 0 : x) + log1pf(expf(-fabsf(x))); });
    case UnaryKind::kClip:
      return map_kernel(request, [=] __device__(float x) {
        const float raised = x < alpha ? alpha : x;
        return raised > beta ? beta : raised;
      });
    case UnaryKind::kLeakyRelu:
      return map_kernel(request, [=] __device__(float x) { return x < 0 ? alpha * x : x; });
    case UnaryKind::kElu:
      return map_kernel(request, [=] __device__(float x) { return x < 0 ? alpha * expm1f(x) : x; });
    case UnaryKind::kHardSigmoid:
      return map_kernel(request, [=] __device__(float x) {
        const float y = alpha * x + beta, raised = y < 0 ? 0 : y;
        return raised > 1 ? 1.0f : raised;
      });
    case UnaryKind::kPower:
      if (alpha == 2) return map_kernel(request, [] __device__(float x) { return x * x; });
      if (alpha == 3) return map_kernel(request, [] __device__(float x) { return x * x * x; });
      return map_kernel(request, [=] __device__(float x) { return powf(x, alpha); });
    case UnaryKind::kFloor:
      return map_kernel(request, [] __device__(float x) { return floorf(x); });
    case UnaryKind::kCeil:
      return map_kernel(request, [] __device__(float x) { return ceilf(x); });
    case UnaryKind::kRound:
      return map_kernel(request, [] __device__(float x) { return rintf(x); });
    case UnaryKind::kSign:
      return map_kernel(request, [] __device__(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; });
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_kernel(const UnaryGrad& op, const Request& request) {
  const float alpha = op.alpha, beta = op.beta;
  switch (op.kind) {
    case UnaryKind::kRelu:
      return map_pair_kernel(request, [] __device__(float dy, float y) { return y <= 0 ? 0 : dy; });
    case UnaryKind::kSigmoid:
      return map_pair_kernel(request, [] __device__(float dy, float y) { return dy * y * (1 - y); });
    case UnaryKind::kTanh:
      return map_pair_kernel(request, [] __device__(float dy, float y) { return dy * (1 - y * y); });
    case UnaryKind::kExp:
      return map_pair_kernel(request, [] __device__(float dy, float y) { return dy * y; });
    case UnaryKind::kSqrt:
      return map_pair_kernel(request, [] __device__(float dy, float y) { return dy / (2 * y); });
    case UnaryKind::kReciprocal:
      return map_pair_kernel(request, [] __device__(float dy, float y) { return -dy * y * y; });
    case UnaryKind::kGelu:
      if (is_half(request.outputs[0].dtype)) {
        return map_pair_kernel(request, [] __device__(float dy, float x) {
          const NormalTail tail(x);
          return dy * fmaf(x * kNormalDensity, tail.density, tail.below(x));
        });
      }
      return map_pair_kernel(request, [] __device__(float dy, float x) {
        return dy * (0.5f * (1 + erff(x * kSqrtHalf)) + x * kNormalDensity * expf(-0.5f * x * x));
      });
    case UnaryKind::kTanhGelu:
      if (is_half(request.outputs[0].dtype)) {
        return map_pair_kernel(request, [] __device__(float dy, float x) {
          const float share = tanh_gelu_share(x);
          const float slope = fmaf(x * x, 6 * kInner * kCubic, 2 * kInner);
          return dy * fmaf(x * share * (1 - share), slope, share);
        });
      }
      return map_pair_kernel(request, [] __device__(float dy, float x) {
        const float t = tanhf(kInner * (x + kCubic * x * x * x));
        return dy * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kInner * (1 + 3 * kCubic * x * x));
      });
    case UnaryKind::kLog:
      return map_pair_kernel(request, [] __device__(float dy, float x) { return dy / x; });
    case UnaryKind::kErf:
      return map_pair_kernel(request,
                             [] __device__(float dy, float x) { return dy * kErfSlope * expf(-x * x); });
    case UnaryKind::kAbs:
      return map_pair_kernel(request, [] __device__(float dy, float x) {
        return dy * (x > 0 ? 1.0f : x < 0 ? -1.0f : x);
      });
    case UnaryKind::kSin:
      return map_pair_kernel(request, [] __device__(float dy, float x) { return dy * cosf(x); });
    case UnaryKind::kCos:
      return map_pair_kernel(request, [] __device__(float dy, float x) { return -dy * sinf(x); });
    case UnaryKind::kSoftplus:
      return map_pair_kernel(request, [] __device__(float dy, float x) { return dy / (1 + expf(-x)); });
    case UnaryKind::kClip:
      // NaN is neither: its gradient is NaN.
      return map_pair_kernel(request, [=] __device__(float dy, float x) {
        return dy * (x < alpha || x > beta ? 0.0f : x != x ? x : 1.0f);
      });
    case UnaryKind::kLeakyRelu:
      return map_pair_kernel(request, [=] __device__(float dy, float x) {
        return dy * (x < 0 ? alpha : x != x ? x : 1.0f);
      });
    case UnaryKind::kElu:
      return map_pair_kernel(request, [=] __device__(float dy, float x) {
        return dy * (x < 0 ? alpha * expf(x) : x != x ? x : 1.0f);
      });
    case UnaryKind::kHardSigmoid:
      return map_pair_kernel(request, [=] __device__(float dy, float x) {
        const float y = alpha * x + beta;
        return dy * (y <= 0 || y >= 1 ? 0.0f : x != x ? x : alpha);
      });
    case UnaryKind::kPower:
      if (alpha == 2)
        return map_pair_kernel(request, [] __device__(float dy, float x) { return dy * (2 * x); });
      if (alpha == 3) {
        return map_pair_kernel(request, [] __device__(float dy, float x) { return dy * (3 * x * x); });
      }
      return map_pair_kernel(request,
                             [=] __device__(float dy, float x) { return dy * (alpha * powf(x, alpha - 1)); });
    case UnaryKind::kFloor:
    case UnaryKind::kCeil:
    case UnaryKind::kRound:
    case UnaryKind::kSign:
      return map_pair_kernel(request, [] __device__(float dy, float x) { return dy * (x != x ? x : 0.0f); });
  }
  return nullptr;
}

}  // namespace headroom::cuda
