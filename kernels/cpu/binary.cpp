// Arithmetic, comparison and choice with NumPy's broadcasting. Loops are marked `omp simd`, see
// elementwise.cpp.
#include <cmath>
#include <type_traits>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/loop_nest.h"

namespace headroom::cpu {
namespace {

// The kernel y = f(a, b) for operands of T.
template <typename T, typename Y, typename F>
std::unique_ptr<Kernel> pair_kernel(F f, const Request& request) {
  const Shape& shape = request.outputs[0].shape;
  const LoopNest<3> nest(shape, {broadcast_strides(request.inputs[0].shape, shape),
                                 broadcast_strides(request.inputs[1].shape, shape), strides_of(shape)});
  return function_kernel([=](const Call& call) {
    const int64_t n = nest.row_extent();
    const auto strides = nest.row_strides();
    // Along a row an operand is dense or one number, for dense operands have no other strides there. Equal
    // shapes and numbers make one row; a bias makes a row per pixel.
    const bool a_fixed = strides[0] == 0, b_fixed = strides[1] == 0;
    nest.for_each_row([&](const auto& at) {
      const T *a = call.in<T>(0) + at[0], *b = call.in<T>(1) + at[1];
      Y* y = call.out<Y>() + at[2];
      if (a_fixed) {
        const T fixed = *a;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Y>(f(fixed, b[i]));
      } else if (b_fixed) {
        const T fixed = *b;
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Y>(f(a[i], fixed));
      } else {
#pragma omp simd
        for (int64_t i = 0; i < n; ++i) y[i] = static_cast<Y>(f(a[i], b[i]));
      }
    });
  });
}

// Whole numbers wrap around, without the undefined overflow of signed ones.
template <typename T, typename F>
auto wrapping(F f) {
  using U = std::make_unsigned_t<T>;
  return [f](T a, T b) { return static_cast<T>(f(static_cast<U>(a), static_cast<U>(b))); };
}

template <typename T>
std::unique_ptr<Kernel> make_whole(BinaryKind kind, const Request& request) {
  const auto make = [&](auto f) { return pair_kernel<T, T>(f, request); };
  switch (kind) {
    case BinaryKind::kAdd:
      return make(wrapping<T>([](auto a, auto b) { return a + b; }));
    case BinaryKind::kSub:
      return make(wrapping<T>([](auto a, auto b) { return a - b; }));
    case BinaryKind::kMul:
      return make(wrapping<T>([](auto a, auto b) { return a * b; }));
    case BinaryKind::kDiv:
      return make([](T a, T b) { return b == 0 ? T{0} : static_cast<T>(int64_t{a} / int64_t{b}); });
    case BinaryKind::kMax:
      return make([](T a, T b) { return a > b ? a : b; });
    case BinaryKind::kMin:
      return make([](T a, T b) { return a < b ? a : b; });
    case BinaryKind::kMod:
      return make([](T a, T b) {
        if (b == 0) return T{0};
        const int64_t rest = int64_t{a} % int64_t{b};
        return static_cast<T>(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
      });
    case BinaryKind::kPow:
      break;
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_real(BinaryKind kind, const Request& request) {
  const auto make = [&](auto f) { return pair_kernel<float, float>(f, request); };
  switch (kind) {
    case BinaryKind::kAdd:
      return make([](float a, float b) { return a + b; });
    case BinaryKind::kSub:
      return make([](float a, float b) { return a - b; });
    case BinaryKind::kMul:
      return make([](float a, float b) { return a * b; });
    case BinaryKind::kDiv:
      return make([](float a, float b) { return a / b; });
    case BinaryKind::kPow:
      return make([](float a, float b) { return std::pow(a, b); });
    case BinaryKind::kMax:
      return make([](float a, float b) { return ((a > b) | (a != a)) ? a : b; });
    case BinaryKind::kMin:
      return make([](float a, float b) { return ((a < b) | (a != a)) ? a : b; });
    case BinaryKind::kMod:
      return make([](float a, float b) {
        const float rest = std::fmod(a, b);  // exact, also by infinity
        if (rest == 0) return std::copysign(0.0f, b);
        return (rest < 0) != (b < 0) ? rest + b : rest;
      });
  }
  return nullptr;
}

template <typename T>
std::unique_ptr<Kernel> make_compare(CompareKind kind, const Request& request) {
  const auto make = [&](auto f) { return pair_kernel<T, uint8_t>(f, request); };
  switch (kind) {
    case CompareKind::kEqual:
      return make([](T a, T b) { return a == b; });
    case CompareKind::kNotEqual:
      return make([](T a, T b) { return a != b; });
    case CompareKind::kLess:
      return make([](T a, T b) { return a < b; });
    case CompareKind::kLessEqual:
      return make([](T a, T b) { return a <= b; });
  }
  return nullptr;
}

template <typename T>
std::unique_ptr<Kernel> make_where(const Request& request) {
  const Shape& shape = request.outputs[0].shape;
  const auto strides = [&](size_t i) { return broadcast_strides(request.inputs[i].shape, shape); };
  const LoopNest<4> nest(shape, {strides(0), strides(1), strides(2), strides_of(shape)});
  return function_kernel([=](const Call& call) {
    const int64_t n = nest.row_extent();
    const auto step = nest.row_strides();
    nest.for_each_row([&](const auto& at) {
      const uint8_t* condition = call.in<uint8_t>(0) + at[0];
      const T *a = call.in<T>(1) + at[1], *b = call.in<T>(2) + at[2];
      T* y = call.out<T>() + at[3];
      for (int64_t i = 0; i < n; ++i) y[i] = condition[i * step[0]] != 0 ? a[i * step[1]] : b[i * step[2]];
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Binary& op, const Request& request) {
  switch (request.inputs[0].dtype) {
    case DType::kF32:
      return make_real(op.kind, request);
    case DType::kI32:
      return make_whole<int32_t>(op.kind, request);
    case DType::kU8:
      return make_whole<uint8_t>(op.kind, request);
    case DType::kBf16:
    case DType::kF16:
      break;  // see half_kernel.h
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_kernel(const Compare& op, const Request& request) {
  switch (request.inputs[0].dtype) {
    case DType::kF32:
      return make_compare<float>(op.kind, request);
    case DType::kI32:
      return make_compare<int32_t>(op.kind, request);
    case DType::kU8:
      return make_compare<uint8_t>(op.kind, request);
    case DType::kBf16:
    case DType::kF16:
      break;  // see half_kernel.h
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_kernel(const Where&, const Request& request) {
  // Only moves numbers, so that only their size counts.
  return element_bytes(request.inputs[1].dtype) == 1 ? make_where<uint8_t>(request)
                                                     : make_where<uint32_t>(request);
}

}  // namespace headroom::cpu
