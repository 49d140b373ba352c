// One input element, one output element: activations, their gradients, scale and cast.
//
// Loops are marked `omp simd` (a promise about the loop, not OpenMP threads): in place, input and output are
// the same memory, which the compiler's own overlap check would send to the scalar loop. Eigen's expressions
// give vectorised exp, tanh and erf.
#include <Eigen/Core>
#include <cmath>
#include <limits>
#include <numbers>
#include <type_traits>
#include <unsupported/Eigen/SpecialFunctions>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/function_kernel.h"

namespace headroom::cpu {
namespace {

using Array = Eigen::Map<Eigen::ArrayXf>;
using ConstArray = Eigen::Map<const Eigen::ArrayXf>;

constexpr float kSqrtHalf = static_cast<float>(1 / std::numbers::sqrt2);
// Density of the normal distribution at 0: 1 / sqrt(2 pi).
constexpr float kNormalDensity = static_cast<float>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);

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

template <typename To, typename From>
To convert(From value) {
  if constexpr (std::is_same_v<To, float> || std::is_same_v<To, From> || std::is_same_v<From, uint8_t>) {
    return static_cast<To>(value);
  } else {
    // Both limits are powers of two or zero, so exact in every type; the upper one is the first value beyond.
    constexpr int64_t kLowest = std::numeric_limits<To>::lowest();
    constexpr int64_t kBeyond = int64_t{std::numeric_limits<To>::max()} + 1;
    using Limit = std::conditional_t<std::is_same_v<From, float>, float, int64_t>;
    const Limit wide = value;
    if (wide != wide) return 0;
    if (wide >= static_cast<Limit>(kBeyond)) return std::numeric_limits<To>::max();
    if (wide <= static_cast<Limit>(kLowest)) return std::numeric_limits<To>::lowest();
    return static_cast<To>(wide);
  }
}

template <typename From, typename To>
std::unique_ptr<Kernel> make_cast(int64_t n) {
  return function_kernel([=](const Call& call) {
    const From* x = call.in<From>(0);
    To* y = call.out<To>();
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
  });
}

template <typename From>
std::unique_ptr<Kernel> make_cast_from(DType to, int64_t n) {
  switch (to) {
    case DType::kF32:
      return make_cast<From, float>(n);
    case DType::kI32:
      return make_cast<From, int32_t>(n);
    case DType::kU8:
      return make_cast<From, uint8_t>(n);
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Unary& op, const Request& request) {
  const int64_t n = request.inputs[0].shape.elements();
  switch (op.kind) {
    case UnaryKind::kRelu:
      return function_kernel([=](const Call& call) {
        const float* x = call.in(0);
        float* y = call.out();
        // In this order NaN stays: it is not below 0.
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) y[i] = x[i] < 0 ? 0 : x[i];
      });
    case UnaryKind::kSigmoid:
      return array_kernel(n, [](auto x, auto y) { y = 1 / (1 + (-x).exp()); });
    case UnaryKind::kTanh:
      return array_kernel(n, [](auto x, auto y) { y = x.tanh(); });
    case UnaryKind::kGelu:
      return array_kernel(n, [](auto x, auto y) { y = 0.5f * x * (1 + (x * kSqrtHalf).erf()); });
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_kernel(const UnaryGrad& op, const Request& request) {
  const int64_t n = request.inputs[0].shape.elements();
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
    case UnaryKind::kGelu:
      return array_grad_kernel(n, [](auto dy, auto x, auto dx) {
        dx = dy * (0.5f * (1 + (x * kSqrtHalf).erf()) + x * kNormalDensity * (-0.5f * x * x).exp());
      });
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_kernel(const Scale& op, const Request& request) {
  return function_kernel([factor = op.factor, n = request.inputs[0].shape.elements()](const Call& call) {
    const float* x = call.in(0);
    float* y = call.out();
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = factor * x[i];
  });
}

std::unique_ptr<Kernel> make_kernel(const Cast& op, const Request& request) {
  const int64_t n = request.inputs[0].shape.elements();
  switch (request.inputs[0].dtype) {
    case DType::kF32:
      return make_cast_from<float>(op.to, n);
    case DType::kI32:
      return make_cast_from<int32_t>(op.to, n);
    case DType::kU8:
      return make_cast_from<uint8_t>(op.to, n);
  }
  return nullptr;
}

}  // namespace headroom::cpu
