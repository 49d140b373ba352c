// One input element, one output element: activations, their gradients, scale, cast and fill.
#include <limits>
#include <numbers>
#include <type_traits>

#include "kernels/cuda/device_loops.cuh"

namespace headroom::cuda {
namespace {

constexpr float kSqrtHalf = static_cast<float>(1 / std::numbers::sqrt2);
// Density of the normal distribution at 0: 1 / sqrt(2 pi).
constexpr float kNormalDensity = static_cast<float>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);

// The kernel y = f(x).
template <typename X, typename Y, typename F>
std::unique_ptr<Kernel> map_kernel(const Request& request, F f) {
  return function_kernel(
      [&device = request.device, f, n = request.outputs[0].shape.elements()](const Call& call) {
        map(device, call.stream, f, n, call.out<Y>(), call.in<X>(0));
      });
}

// The kernel dx = f(dy, saved).
template <typename F>
std::unique_ptr<Kernel> map_grad_kernel(const Request& request, F f) {
  return function_kernel(
      [&device = request.device, f, n = request.outputs[0].shape.elements()](const Call& call) {
        map(device, call.stream, f, n, call.out(), call.in(0), call.in(1));
      });
}

// Towards zero, saturating, NaN to 0.
template <typename To, typename From>
struct Convert {
  __device__ To operator()(From value) const {
    if constexpr (std::is_same_v<From, float> && std::is_same_v<To, int32_t>) {
      return __float2int_rz(value);  // saturates and takes NaN to 0 by itself
    } else if constexpr (std::is_same_v<From, float> && std::is_same_v<To, uint8_t>) {
      return static_cast<To>(min(max(__float2int_rz(value), 0), 255));
    } else if constexpr (std::is_same_v<From, int32_t> && std::is_same_v<To, uint8_t>) {
      return static_cast<To>(min(max(value, 0), 255));
    } else {
      return static_cast<To>(value);
    }
  }
};

template <typename From>
std::unique_ptr<Kernel> make_cast_from(DType to, const Request& request) {
  switch (to) {
    case DType::kF32:
      return map_kernel<From, float>(request, Convert<float, From>());
    case DType::kI32:
      return map_kernel<From, int32_t>(request, Convert<int32_t, From>());
    case DType::kU8:
      return map_kernel<From, uint8_t>(request, Convert<uint8_t, From>());
  }
  return nullptr;
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Unary& op, const Request& request) {
  const auto make = [&](auto f) { return map_kernel<float, float>(request, f); };
  switch (op.kind) {
    case UnaryKind::kRelu:
      // In this order NaN stays: it is not below 0.
      return make([] __device__(float x) { return x < 0 ? 0 : x; });
    case UnaryKind::kSigmoid:
      return make([] __device__(float x) { return 1 / (1 + expf(-x)); });
    case UnaryKind::kTanh:
      return make([] __device__(float x) { return tanhf(x); });
    case UnaryKind::kGelu:
      return make([] __device__(float x) { return 0.5f * x * (1 + erff(x * kSqrtHalf)); });
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_kernel(const UnaryGrad& op, const Request& request) {
  switch (op.kind) {
    case UnaryKind::kRelu:
      return map_grad_kernel(request, [] __device__(float dy, float y) { return y <= 0 ? 0 : dy; });
    case UnaryKind::kSigmoid:
      return map_grad_kernel(request, [] __device__(float dy, float y) { return dy * y * (1 - y); });
    case UnaryKind::kTanh:
      return map_grad_kernel(request, [] __device__(float dy, float y) { return dy * (1 - y * y); });
    case UnaryKind::kGelu:
      return map_grad_kernel(request, [] __device__(float dy, float x) {
        return dy * (0.5f * (1 + erff(x * kSqrtHalf)) + x * kNormalDensity * expf(-0.5f * x * x));
      });
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_kernel(const Scale& op, const Request& request) {
  return map_kernel<float, float>(request, [factor = op.factor] __device__(float x) { return factor * x; });
}

std::unique_ptr<Kernel> make_kernel(const Cast& op, const Request& request) {
  switch (request.inputs[0].dtype) {
    case DType::kF32:
      return make_cast_from<float>(op.to, request);
    case DType::kI32:
      return make_cast_from<int32_t>(op.to, request);
    case DType::kU8:
      return make_cast_from<uint8_t>(op.to, request);
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_kernel(const Fill& op, const Request& request) {
  const auto fill = [value = op.value] __device__() { return value; };
  return function_kernel([&device = request.device, fill, n = request.outputs[0].shape.elements()](
                             const Call& call) { map(device, call.stream, fill, n, call.out()); });
}

}  // namespace headroom::cuda
