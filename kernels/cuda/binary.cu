// Arithmetic, comparison and choice with NumPy's broadcasting.
#include <cmath>
#include <type_traits>

#include "kernels/cuda/device_loops.cuh"

namespace headroom::cuda {
namespace {

// Returns N neighbors along a row; dense operands are dense along it or one number.
template <int N, typename X>
__device__ auto load_along_row(const X& from, bool fixed) {
  if (!fixed) return load<N>(from);
  const auto value = from[0];
  decltype(load<N>(from)) lanes;
#pragma unroll
  for (int lane = 0; lane < N; ++lane) lanes.values[lane] = value;
  return lanes;
}

// y may be a or b if that is not broadcast: the same thread reads an element before it writes it.
template <int N, typename X, typename Y, typename F, typename I>
__global__ void combine(F f, StridedIndex<3, I> index, int64_t groups, bool a_fixed, bool b_fixed, X a, X b,
                        Y y) {
  for (int64_t i = grid_thread(); i < groups; i += grid_threads()) {
    const Offsets<3, I> offsets = index(static_cast<I>(i));
    store(y + offsets.at[2], apply<N, ElementOf<Y>>(f, load_along_row<N>(a + offsets.at[0], a_fixed),
                                                    load_along_row<N>(b + offsets.at[1], b_fixed)));
  }
}

// Queues y = f(a, b) for groups of N neighbors along rows.
template <int N, typename X, typename Y, typename F>
void launch_combine(const CudaGpu& device, cudaStream_t stream, const F& f, const LoopNest<3>& nest,
                    int64_t count, X a, X b, Y y) {
  with_index_type(count, [&](auto type) {
    using I = decltype(type);
    launch(combine<N, X, Y, F, I>, blocks_for(device, count / N), kThreads, stream, f,
           StridedIndex<3, I>(nest, N), count / N, nest.row_strides()[0] == 0, nest.row_strides()[1] == 0, a,
           b, y);
  });
}

// The kernel y = f(a, b) for operands of T.
template <typename T, typename Y, typename F>
std::unique_ptr<Kernel> pair_kernel(F f, const Request& request) {
  const Shape &a = request.inputs[0].shape, &b = request.inputs[1].shape, &y = request.outputs[0].shape;
  const int64_t n = y.elements();
  if (n == 0) return function_kernel([](const Call&) {});
  if (a.elements() == n && b.elements() == n) {
    return function_kernel([&device = request.device, f, n](const Call& call) {
      map(device, call.stream, lanes_of(call), f, n, result<Y>(call), operand<T>(call, 0),
          operand<T>(call, 1));
    });
  }
  const LoopNest<3> nest(y, {broadcast_strides(a, y), broadcast_strides(b, y), strides_of(y)});
  return function_kernel([=, &device = request.device](const Call& call) {
    const auto a = operand<T>(call, 0), b = operand<T>(call, 1);
    const auto y = result<Y>(call);
    const auto fits = [&](auto lanes) {
      return rows_have_lanes(nest, lanes) && (nest.row_strides()[0] == 0 || aligned<lanes>(a)) &&
             (nest.row_strides()[1] == 0 || aligned<lanes>(b)) && aligned<lanes>(y);
    };
    if constexpr (std::is_same_v<T, float>) {
      if (lanes_of(call) == 8 && fits(std::integral_constant<int, 8>()))
        return launch_combine<8>(device, call.stream, f, nest, n, a, b, y);
    }
    if (fits(std::integral_constant<int, 4>())) {
      launch_combine<4>(device, call.stream, f, nest, n, a, b, y);
    } else {
      launch_combine<1>(device, call.stream, f, nest, n, a, b, y);
    }
  });
}

template <typename T>
std::unique_ptr<Kernel> make_whole(BinaryKind kind, const Request& request) {
  using U = std::make_unsigned_t<T>;  // wraps around, without the undefined overflow of signed numbers
  switch (kind) {
    case BinaryKind::kAdd:
      return pair_kernel<T, T>(
          [] __device__(T a, T b) { return static_cast<T>(static_cast<U>(a) + static_cast<U>(b)); }, request);
    case BinaryKind::kSub:
      return pair_kernel<T, T>(
          [] __device__(T a, T b) { return static_cast<T>(static_cast<U>(a) - static_cast<U>(b)); }, request);
    case BinaryKind::kMul:
      return pair_kernel<T, T>(
          [] __device__(T a, T b) { return static_cast<T>(static_cast<U>(a) * static_cast<U>(b)); }, request);
    case BinaryKind::kDiv:
      return pair_kernel<T, T>(
          [] __device__(T a, T b) { return b == 0 ? T{0} : static_cast<T>(int64_t{a} / int64_t{b}); },
          request);
    case BinaryKind::kMax:
      return pair_kernel<T, T>([] __device__(T a, T b) { return a > b ? a : b; }, request);
    case BinaryKind::kMin:
      return pair_kernel<T, T>([] __device__(T a, T b) { return a < b ? a : b; }, request);
    case BinaryKind::kMod:
      return pair_kernel<T, T>(
          [] __device__(T a, T b) {
            if (b == 0) return T{0};
            const int64_t divisor = b, rest = int64_t{a} % divisor;
            return static_cast<T>(rest != 0 && (rest < 0) != (divisor < 0) ? rest + divisor : rest);
          },
          request);
    case BinaryKind::kPow:
      break;
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_real(BinaryKind kind, const Request& request) {
  using T = float;
  switch (kind) {
    case BinaryKind::kAdd:
      return pair_kernel<T, T>([] __device__(T a, T b) { return a + b; }, request);
    case BinaryKind::kSub:
      return pair_kernel<T, T>([] __device__(T a, T b) { return a - b; }, request);
    case BinaryKind::kMul:
      return pair_kernel<T, T>([] __device__(T a, T b) { return a * b; }, request);
    case BinaryKind::kDiv:
      return pair_kernel<T, T>([] __device__(T a, T b) { return a / b; }, request);
    case BinaryKind::kPow:
      return pair_kernel<T, T>([] __device__(T a, T b) { return powf(a, b); }, request);
    case BinaryKind::kMax:
      return pair_kernel<T, T>([] __device__(T a, T b) { return a > b || a != a ? a : b; }, request);
    case BinaryKind::kMin:
      return pair_kernel<T, T>([] __device__(T a, T b) { return a < b || a != a ? a : b; }, request);
    case BinaryKind::kMod:
      return pair_kernel<T, T>(
          [] __device__(T a, T b) {
            const T rest = fmodf(a, b);  // exact, also by infinity
            if (rest == 0) return copysignf(0.0f, b);
            return (rest < 0) != (b < 0) ? rest + b : rest;
          },
          request);
  }
  return nullptr;
}

template <typename T>
std::unique_ptr<Kernel> make_compare(CompareKind kind, const Request& request) {
  switch (kind) {
    case CompareKind::kEqual:
      return pair_kernel<T, uint8_t>([] __device__(T a, T b) { return static_cast<uint8_t>(a == b); },
                                     request);
    case CompareKind::kNotEqual:
      return pair_kernel<T, uint8_t>([] __device__(T a, T b) { return static_cast<uint8_t>(a != b); },
                                     request);
    case CompareKind::kLess:
      return pair_kernel<T, uint8_t>([] __device__(T a, T b) { return static_cast<uint8_t>(a < b); },
                                     request);
    case CompareKind::kLessEqual:
      return pair_kernel<T, uint8_t>([] __device__(T a, T b) { return static_cast<uint8_t>(a <= b); },
                                     request);
  }
  return nullptr;
}

template <typename X, typename Y, typename I>
__global__ void choose(StridedIndex<4, I> index, int64_t count, const uint8_t* condition, X a, X b, Y y) {
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) {
    const Offsets<4, I> offsets = index(static_cast<I>(i));
    put(y, offsets.at[3], condition[offsets.at[0]] != 0 ? a[offsets.at[1]] : b[offsets.at[2]]);
  }
}

template <typename T>
std::unique_ptr<Kernel> make_where(const Request& request) {
  const Shape& shape = request.outputs[0].shape;
  const auto strides = [&](size_t i) { return broadcast_strides(request.inputs[i].shape, shape); };
  const LoopNest<4> nest(shape, {strides(0), strides(1), strides(2), strides_of(shape)});
  return function_kernel([nest, n = shape.elements(), &device = request.device](const Call& call) {
    if (n == 0) return;
    with_index_type(n, [&](auto type) {
      using I = decltype(type);
      const auto a = operand<T>(call, 1), b = operand<T>(call, 2);
      const auto y = result<T>(call);
      launch(choose<std::decay_t<decltype(a)>, std::decay_t<decltype(y)>, I>, blocks_for(device, n), kThreads,
             call.stream, StridedIndex<4, I>(nest), n, call.in<uint8_t>(0), a, b, y);
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Binary& op, const Request& request) {
  switch (request.inputs[0].dtype) {
    case DType::kF32:
    case DType::kBf16:
    case DType::kF16:
      return make_real(op.kind, request);
    case DType::kI32:
      return make_whole<int32_t>(op.kind, request);
    case DType::kU8:
      return make_whole<uint8_t>(op.kind, request);
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_kernel(const Compare& op, const Request& request) {
  switch (request.inputs[0].dtype) {
    case DType::kF32:
    case DType::kBf16:
    case DType::kF16:
      return make_compare<float>(op.kind, request);
    case DType::kI32:
      return make_compare<int32_t>(op.kind, request);
    case DType::kU8:
      return make_compare<uint8_t>(op.kind, request);
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_kernel(const Where&, const Request& request) {
  // Moves whole numbers by size, and rounds others to the stored type.
  switch (request.outputs[0].dtype) {
    case DType::kU8:
      return make_where<uint8_t>(request);
    case DType::kI32:
      return make_where<uint32_t>(request);
    default:
      return make_where<float>(request);
  }
}

}  // namespace headroom::cuda
