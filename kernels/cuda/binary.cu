// Arithmetic, comparison and choice with NumPy's broadcasting.
#include <cmath>
#include <type_traits>

#include "kernels/cuda/device_loops.cuh"

namespace headroom::cuda {
namespace {

// N neighbours along a row, where dense operands are dense or one number.
template <int N, typename T>
__device__ Lanes<T, N> load_along_row(const T* from, bool fixed) {
  if (!fixed) return load<N>(from);
  Lanes<T, N> lanes;
#pragma unroll
  for (int lane = 0; lane < N; ++lane) lanes.values[lane] = *from;
  return lanes;
}

// y may be a or b where that is not broadcast: an element is read before it is written, by the same thread.
template <int N, typename T, typename Y, typename F, typename I>
__global__ void combine(F f, StridedIndex<3, I> index, int64_t groups, bool a_fixed, bool b_fixed, const T* a,
                        const T* b, Y* y) {
  for (int64_t i = grid_thread(); i < groups; i += grid_threads()) {
    const Offsets<3, I> offsets = index(static_cast<I>(i));
    store(y + offsets.at[2], apply<N, F, Y>(f, load_along_row<N>(a + offsets.at[0], a_fixed),
                                            load_along_row<N>(b + offsets.at[1], b_fixed)));
  }
}

template <int N, typename T, typename Y, typename F, typename I>
void launch_combine(const CudaGpu& device, const Call& call, const F& f, const LoopNest<3>& nest,
                    int64_t groups) {
  launch(combine<N, T, Y, F, I>, blocks_for(device, groups), kThreads, call.stream, f,
         StridedIndex<3, I>(nest, N), groups, nest.row_strides()[0] == 0, nest.row_strides()[1] == 0,
         call.in<T>(0), call.in<T>(1), call.out<Y>());
}

// The kernel y = f(a, b) for operands of T.
template <typename T, typename Y, typename F>
std::unique_ptr<Kernel> pair_kernel(F f, const Request& request) {
  const Shape &a = request.inputs[0].shape, &b = request.inputs[1].shape, &y = request.outputs[0].shape;
  const int64_t n = y.elements();
  if (n == 0) return function_kernel([](const Call&) {});
  if (a.elements() == n && b.elements() == n) {
    return function_kernel([&device = request.device, f, n](const Call& call) {
      map(device, call.stream, f, n, call.out<Y>(), call.in<T>(0), call.in<T>(1));
    });
  }
  const LoopNest<3> nest(y, {broadcast_strides(a, y), broadcast_strides(b, y), strides_of(y)});
  const bool in_fours = rows_have_lanes(nest, 4);
  return function_kernel([=, &device = request.device](const Call& call) {
    const bool a_fits = nest.row_strides()[0] == 0 || aligned<4>(call.in<T>(0));
    const bool b_fits = nest.row_strides()[1] == 0 || aligned<4>(call.in<T>(1));
    const bool fours = in_fours && a_fits && b_fits && aligned<4>(call.out<Y>());
    with_index_type(n, [&](auto type) {
      using I = decltype(type);
      if (fours) {
        launch_combine<4, T, Y, F, I>(device, call, f, nest, n / 4);
      } else {
        launch_combine<1, T, Y, F, I>(device, call, f, nest, n);
      }
    });
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
      return pair_kernel<T, T>([] __device__(T a, T b) { return a - b * floorf(a / b); }, request);
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

template <typename T, typename I>
__global__ void choose(StridedIndex<4, I> index, int64_t count, const uint8_t* condition, const T* a,
                       const T* b, T* y) {
  for (int64_t i = grid_thread(); i < count; i += grid_threads()) {
    const Offsets<4, I> offsets = index(static_cast<I>(i));
    y[offsets.at[3]] = condition[offsets.at[0]] != 0 ? a[offsets.at[1]] : b[offsets.at[2]];
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
      launch(choose<T, I>, blocks_for(device, n), kThreads, call.stream, StridedIndex<4, I>(nest), n,
             call.in<uint8_t>(0), call.in<T>(1), call.in<T>(2), call.out<T>());
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
      break;  // refused before
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
      break;  // refused before
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_kernel(const Where&, const Request& request) {
  // Only moves numbers, so that only their size counts.
  return element_bytes(request.inputs[1].dtype) == 1 ? make_where<uint8_t>(request)
                                                     : make_where<uint32_t>(request);
}

}  // namespace headroom::cuda
