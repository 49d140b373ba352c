// Functions of one number, and their gradients, for the kernels of single ops and of expressions. Generated
// kernels include this file at run time, where no header of the system is. Knows no tensor.
#pragma once

#include <cmath>
#include <numbers>

#include "kernels/cuda/fast_math.cuh"
#include "ops/function_kinds.h"

namespace headroom::cuda {

inline constexpr float kSqrtHalf = static_cast<float>(1 / std::numbers::sqrt2);
// Density of the normal distribution at 0: 1 / sqrt(2 pi).
inline constexpr float kNormalDensity = static_cast<float>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
// The slope of erf at 0: 2 / sqrt(pi).
inline constexpr float kErfSlope = static_cast<float>(2 * std::numbers::inv_sqrtpi);
// tanh_gelu(x) = x / 2 (1 + tanh(kInner (x + kCubic x^3))): Hendrycks, Gimpel 2016.
inline constexpr float kInner = static_cast<float>(std::numbers::sqrt2 * std::numbers::inv_sqrtpi),
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
__device__ inline float tanh_gelu_share(float x) {
  constexpr float kFirst = -2 * kInner * kLog2E, kThird = kFirst * kCubic;
  return reciprocal(1 + power_of_2(x * fmaf(x * x, kThird, kFirst)));
}

// The parameters of a function, and y = f(x). Comparisons are ordered so that NaN stays: it is neither below
// nor above. `kHalf`: the result is stored in 16 bits, and shorter forms will do.
struct Parameters {
  float alpha, beta;
};
template <UnaryKind kKind, bool kHalf>
__device__ inline float function(Parameters p, float x) {
  using enum UnaryKind;
  if constexpr (kKind == kRelu) return x < 0 ? 0 : x;
  if constexpr (kKind == kSigmoid) {
    if constexpr (kHalf) return reciprocal(1 + power_of_2(-kLog2E * x));
    return 1 / (1 + expf(-x));
  }
  if constexpr (kKind == kTanh) return tanhf(x);
  if constexpr (kKind == kExp) return expf(x);
  if constexpr (kKind == kSqrt) return sqrtf(x);
  if constexpr (kKind == kReciprocal) return 1 / x;
  if constexpr (kKind == kGelu) {
    if constexpr (kHalf) return x * NormalTail(x).below(x);
    return 0.5f * x * (1 + erff(x * kSqrtHalf));
  }
  if constexpr (kKind == kTanhGelu) {
    if constexpr (kHalf) return x * tanh_gelu_share(x);
    return 0.5f * x * (1 + tanhf(kInner * (x + kCubic * x * x * x)));
  }
  if constexpr (kKind == kLog) return logf(x);
  if constexpr (kKind == kErf) return erff(x);
  if constexpr (kKind == kAbs) return fabsf(x);
  if constexpr (kKind == kSin) return sinf(x);
  if constexpr (kKind == kCos) return cosf(x);
  // log1p(exp(-|x|)) cannot overflow.
  if constexpr (kKind == kSoftplus) return (x < 0 ? 0 : x) + log1pf(expf(-fabsf(x)));
  if constexpr (kKind == kClip) {
    const float raised = x < p.alpha ? p.alpha : x;
    return raised > p.beta ? p.beta : raised;
  }
  if constexpr (kKind == kLeakyRelu) return x < 0 ? p.alpha * x : x;
  if constexpr (kKind == kElu) return x < 0 ? p.alpha * expm1f(x) : x;
  if constexpr (kKind == kHardSigmoid) {
    const float y = p.alpha * x + p.beta, raised = y < 0 ? 0 : y;
    return raised > 1 ? 1.0f : raised;
  }
  if constexpr (kKind == kPower) return powf(x, p.alpha);
  if constexpr (kKind == kFloor) return floorf(x);
  if constexpr (kKind == kCeil) return ceilf(x);
  if constexpr (kKind == kRound) return rintf(x);
  if constexpr (kKind == kSign) return x > 0 ? 1.0f : x < 0 ? -1.0f : x;
}

// dx of dy and what the gradient saves: y for the first kinds, x for others.
template <UnaryKind kKind, bool kHalf>
__device__ inline float gradient(Parameters p, float dy, float saved) {
  using enum UnaryKind;
  const float x = saved, y = saved;
  if constexpr (kKind == kRelu) return y <= 0 ? 0 : dy;
  if constexpr (kKind == kSigmoid) return dy * y * (1 - y);
  if constexpr (kKind == kTanh) return dy * (1 - y * y);
  if constexpr (kKind == kExp) return dy * y;
  if constexpr (kKind == kSqrt) return dy / (2 * y);
  if constexpr (kKind == kReciprocal) return -dy * y * y;
  if constexpr (kKind == kGelu) {
    if constexpr (kHalf) {
      const NormalTail tail(x);
      return dy * fmaf(x * kNormalDensity, tail.density, tail.below(x));
    }
    return dy * (0.5f * (1 + erff(x * kSqrtHalf)) + x * kNormalDensity * expf(-0.5f * x * x));
  }
  if constexpr (kKind == kTanhGelu) {
    if constexpr (kHalf) {
      const float share = tanh_gelu_share(x);
      const float slope = fmaf(x * x, 6 * kInner * kCubic, 2 * kInner);
      return dy * fmaf(x * share * (1 - share), slope, share);
    }
    const float t = tanhf(kInner * (x + kCubic * x * x * x));
    return dy * (0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kInner * (1 + 3 * kCubic * x * x));
  }
  if constexpr (kKind == kLog) return dy / x;
  if constexpr (kKind == kErf) return dy * kErfSlope * expf(-x * x);
  if constexpr (kKind == kAbs) return dy * (x > 0 ? 1.0f : x < 0 ? -1.0f : x);
  if constexpr (kKind == kSin) return dy * cosf(x);
  if constexpr (kKind == kCos) return -dy * sinf(x);
  if constexpr (kKind == kSoftplus) return dy / (1 + expf(-x));
  // NaN is neither: its gradient is NaN.
  if constexpr (kKind == kClip) return dy * (x < p.alpha || x > p.beta ? 0.0f : x != x ? x : 1.0f);
  if constexpr (kKind == kLeakyRelu) return dy * (x < 0 ? p.alpha : x != x ? x : 1.0f);
  if constexpr (kKind == kElu) return dy * (x < 0 ? p.alpha * expf(x) : x != x ? x : 1.0f);
  if constexpr (kKind == kHardSigmoid) {
    const float line = p.alpha * x + p.beta;
    return dy * (line <= 0 || line >= 1 ? 0.0f : x != x ? x : p.alpha);
  }
  if constexpr (kKind == kPower) return dy * (p.alpha * powf(x, p.alpha - 1));
  if constexpr (kKind >= kFloor) return dy * (x != x ? x : 0.0f);
}

}  // namespace headroom::cuda
