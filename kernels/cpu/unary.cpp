// Functions of one number, and their gradients. Eigen's expressions give vectorized log, sin, cos and erf;
// plain loops are marked `omp simd`, see elementwise.cpp.
#include <Eigen/Core>
#include <cmath>
#include <numbers>
#include <unsupported/Eigen/SpecialFunctions>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/vector_math.h"

namespace headroom::cpu {
namespace {

using Array = Eigen::Map<Eigen::ArrayXf>;
using ConstArray = Eigen::Map<const Eigen::ArrayXf>;

constexpr float kSqrtHalf = static_cast<float>(1 / std::numbers::sqrt2);
// Density of the normal distribution at 0: 1 / sqrt(2 pi).
constexpr float kNormalDensity = static_cast<float>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);
// The slope of erf at 0: 2 / sqrt(pi).
constexpr float kErfSlope = static_cast<float>(2 * std::numbers::inv_sqrtpi);
// tanh_gelu(x) = x / 2 (1 + tanh(kInner (x + kCubic x^3))): Hendrycks, Gimpel 2016.
constexpr float kInner = static_cast<float>(std::numbers::sqrt2 * std::numbers::inv_sqrtpi),
                kCubic = 0.044715f;

// The kernel that calls f(x, y) with x and y as Eigen arrays.
template <typename F>
std::unique_ptr<Kernel> array_kernel(int64_t n, F f) {
  return function_kernel([=](const Call& call) { f(ConstArray(call.in(0), n), Array(call.out(), n)); });
}

// The kernel that calls f(dy, saved, dx) likewise.
template <typename F>
std::unique_ptr<Kernel> array_grad_kernel(int64_t n, F f) {
  return function_kernel([=](const Call& call) {
    f(ConstArray(call.in(0), n), ConstArray(call.in(1), n), Array(call.out(), n));
  });
}

// The kernel y = f(x), a vector at a time.
template <typename F>
std::unique_ptr<Kernel> vector_kernel(int64_t n, F f) {
  return function_kernel([=](const Call& call) { for_each_vector(call.in(0), call.out(), n, f); });
}

// The kernel y = f(x), number by number.
template <typename F>
std::unique_ptr<Kernel> number_kernel(int64_t n, F f) {
  return function_kernel([=](const Call& call) {
    const float* x = call.in(0);
    float* y = call.out();
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = f(x[i]);
  });
}

// The kernel dx = dy f(saved).
template <typename F>
std::unique_ptr<Kernel> slope_kernel(int64_t n, F f) {
  return function_kernel([=](const Call& call) {
    const float *dy = call.in(0), *saved = call.in(1);
    float* dx = call.out();
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) dx[i] = dy[i] * f(saved[i]);
  });
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Unary& op, const Request& request) {
  const int64_t n = request.inputs[0].shape.elements();
  const float alpha = op.alpha, beta = op.beta;
  // Comparisons are ordered so that NaN stays: it is neither below nor above.
  switch (op.kind) {
    case UnaryKind::kRelu:
      return number_kernel(n, [](float x) { return x < 0 ? 0 : x; });
    case UnaryKind::kSigmoid:
      return vector_kernel(n, [](Vec x) { return sigmoid(x); });
    case UnaryKind::kTanh:
      return vector_kernel(n, [](Vec x) { return tanh(x); });
    case UnaryKind::kExp:
      return vector_kernel(n, [](Vec x) { return exp(x); });
    case UnaryKind::kSqrt:
      return number_kernel(n, [](float x) { return std::sqrt(x); });
    case UnaryKind::kReciprocal:
      return number_kernel(n, [](float x) { return 1 / x; });
    case UnaryKind::kGelu:
      return array_kernel(n, [](auto x, auto y) { y = 0.5f * x * (1 + (x * kSqrtHalf).erf()); });
    case UnaryKind::kTanhGelu:
      return array_kernel(
          n, [](auto x, auto y) { y = 0.5f * x * (1 + (kInner * (x + kCubic * x * x * x)).tanh()); });
    case UnaryKind::kLog:
      return array_kernel(n, [](auto x, auto y) { y = x.log(); });
    case UnaryKind::kErf:
      return array_kernel(n, [](auto x, auto y) { y = x.erf(); });
    case UnaryKind::kAbs:
      return number_kernel(n, [](float x) { return std::abs(x); });
    case UnaryKind::kSin:
      return array_kernel(n, [](auto x, auto y) { y = x.sin(); });
    case UnaryKind::kCos:
      return array_kernel(n, [](auto x, auto y) { y = x.cos(); });
    case UnaryKind::kSoftplus:
      // log1p(exp(-|x|)) cannot overflow.
      return number_kernel(n, [](float x) { return (x < 0 ? 0 : x) + std::log1p(std::exp(-std::abs(x))); });
    case UnaryKind::kClip:
      return number_kernel(n, [=](float x) {
        const float raised = x < alpha ? alpha : x;
        return raised > beta ? beta : raised;
      });
    case UnaryKind::kLeakyRelu:
      return number_kernel(n, [=](float x) { return x < 0 ? alpha * x : x; });
    case UnaryKind::kElu:
      return number_kernel(n, [=](float x) { return x < 0 ? alpha * std::expm1(x) : x; });
    case UnaryKind::kHardSigmoid:
      return number_kernel(n, [=](float x) {
        const float y = alpha * x + beta, raised = y < 0 ? 0 : y;
        return raised > 1 ? 1 : raised;
      });
    case UnaryKind::kPower:
      if (alpha == 2) return number_kernel(n, [](float x) { return x * x; });
      if (alpha == 3) return number_kernel(n, [](float x) { return x * x * x; });
      return number_kernel(n, [=](float x) { return std::pow(x, alpha); });
    case UnaryKind::kFloor:
      return number_kernel(n, [](float x) { return std::floor(x); });
    case UnaryKind::kCeil:
      return number_kernel(n, [](float x) { return std::ceil(x); });
    case UnaryKind::kRound:
      return number_kernel(n, [](float x) { return std::nearbyint(x); });
    case UnaryKind::kSign:
      return number_kernel(n, [](float x) { return x > 0 ? 1 : x < 0 ? -1 : x; });
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_kernel(const UnaryGrad& op, const Request& request) {
  const int64_t n = request.inputs[0].shape.elements();
  const float alpha = op.alpha, beta = op.beta;
  switch (op.kind) {
    case UnaryKind::kRelu:
      return function_kernel([=](const Call& call) {
        const float *dy = call.in(0), *y = call.in(1);
        float* dx = call.out();
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) dx[i] = y[i] <= 0 ? 0 : dy[i];
      });
    case UnaryKind::kSigmoid:
      return array_grad_kernel(n, [](auto dy, auto y, auto dx) { dx = dy * y * (1 - y); });
    case UnaryKind::kTanh:
      return array_grad_kernel(n, [](auto dy, auto y, auto dx) { dx = dy * (1 - y * y); });
    case UnaryKind::kExp:
      return array_grad_kernel(n, [](auto dy, auto y, auto dx) { dx = dy * y; });
    case UnaryKind::kSqrt:
      return array_grad_kernel(n, [](auto dy, auto y, auto dx) { dx = dy / (2 * y); });
    case UnaryKind::kReciprocal:
      return array_grad_kernel(n, [](auto dy, auto y, auto dx) { dx = -dy * y * y; });
    case UnaryKind::kGelu:
      return array_grad_kernel(n, [](auto dy, auto x, auto dx) {
        dx = dy * (0.5f * (1 + (x * kSqrtHalf).erf()) + x * kNormalDensity * (-0.5f * x * x).exp());
      });
    case UnaryKind::kTanhGelu:
      return slope_kernel(n, [](float x) {
        const float t = std::tanh(kInner * (x + kCubic * x * x * x));
        return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * kInner * (1 + 3 * kCubic * x * x);
      });
    case UnaryKind::kLog:
      return array_grad_kernel(n, [](auto dy, auto x, auto dx) { dx = dy / x; });
    case UnaryKind::kErf:
      return array_grad_kernel(n, [](auto dy, auto x, auto dx) { dx = dy * kErfSlope * (-x * x).exp(); });
    case UnaryKind::kAbs:
      return slope_kernel(n, [](float x) { return x > 0 ? 1 : x < 0 ? -1 : x; });
    case UnaryKind::kSin:
      return array_grad_kernel(n, [](auto dy, auto x, auto dx) { dx = dy * x.cos(); });
    case UnaryKind::kCos:
      return array_grad_kernel(n, [](auto dy, auto x, auto dx) { dx = -dy * x.sin(); });
    case UnaryKind::kSoftplus:
      return array_grad_kernel(n, [](auto dy, auto x, auto dx) { dx = dy / (1 + (-x).exp()); });
    case UnaryKind::kClip:
      // NaN is neither: its gradient is NaN.
      return slope_kernel(n, [=](float x) { return x < alpha || x > beta ? 0 : x != x ? x : 1; });
    case UnaryKind::kLeakyRelu:
      return slope_kernel(n, [=](float x) { return x < 0 ? alpha : x != x ? x : 1; });
    case UnaryKind::kElu:
      return slope_kernel(n, [=](float x) { return x < 0 ? alpha * std::exp(x) : x != x ? x : 1; });
    case UnaryKind::kHardSigmoid:
      return slope_kernel(n, [=](float x) {
        const float y = alpha * x + beta;
        return y <= 0 || y >= 1 ? 0 : x != x ? x : alpha;
      });
    case UnaryKind::kPower:
      if (alpha == 2) return slope_kernel(n, [](float x) { return 2 * x; });
      if (alpha == 3) return slope_kernel(n, [](float x) { return 3 * x * x; });
      return slope_kernel(n, [=](float x) { return alpha * std::pow(x, alpha - 1); });
    case UnaryKind::kFloor:
    case UnaryKind::kCeil:
    case UnaryKind::kRound:
    case UnaryKind::kSign:
      return slope_kernel(n, [](float x) { return x != x ? x : 0; });
  }
  return nullptr;
}

}  // namespace headroom::cpu
