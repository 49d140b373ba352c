// One output element from one element of each input: activations, their gradients, scale, cast, fill,
// arithmetic with NumPy's broadcasting, and dropout.
#include <limits>
#include <numbers>
#include <type_traits>

#include "kernels/cuda/device_loops.cuh"
#include "runtime/base/random.h"

namespace headroom::cuda {
namespace {

constexpr float kSqrtHalf = static_cast<float>(1 / std::numbers::sqrt2);
// Density of the normal distribution at 0: 1 / sqrt(2 pi).
constexpr float kNormalDensity = static_cast<float>(std::numbers::inv_sqrtpi / std::numbers::sqrt2);

// The kernel y = f(x).
template <typename X = float, typename Y = float, typename F>
std::unique_ptr<Kernel> map_kernel(const Request& request, F f) {
  return function_kernel(
      [&device = request.device, f, n = request.outputs[0].shape.elements()](const Call& call) {
        map(device, call.stream, f, n, call.out<Y>(), call.in<X>(0));
      });
}

// The kernel y = f(a, b) for operands of one shape.
template <typename F>
std::unique_ptr<Kernel> map_pair_kernel(const Request& request, F f) {
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

// ---- add, sub, mul, div

// N neighbours along a row, where dense operands are dense or one number.
template <int N>
__device__ Lanes<float, N> load_along_row(const float* from, bool fixed) {
  if (!fixed) return load<N>(from);
  Lanes<float, N> lanes;
#pragma unroll
  for (int lane = 0; lane < N; ++lane) lanes.values[lane] = *from;
  return lanes;
}

// y may be a or b where that is not broadcast: an element is read before it is written, by the same thread.
template <int N, typename F, typename I>
__global__ void combine(F f, StridedIndex<3, I> index, int64_t groups, bool a_fixed, bool b_fixed,
                        const float* a, const float* b, float* y) {
  for (int64_t i = grid_thread(); i < groups; i += grid_threads()) {
    const Offsets<3, I> offsets = index(static_cast<I>(i));
    store(y + offsets.at[2], apply<N, F, float>(f, load_along_row<N>(a + offsets.at[0], a_fixed),
                                                load_along_row<N>(b + offsets.at[1], b_fixed)));
  }
}

template <int N, typename F, typename I>
void launch_combine(const CudaGpu& device, const Call& call, const F& f, const LoopNest<3>& nest,
                    int64_t groups) {
  launch(combine<N, F, I>, blocks_for(device, groups), kThreads, call.stream, f, StridedIndex<3, I>(nest, N),
         groups, nest.row_strides()[0] == 0, nest.row_strides()[1] == 0, call.in(0), call.in(1), call.out());
}

template <typename F>
std::unique_ptr<Kernel> make_binary(F f, const Request& request) {
  const Shape &a = request.inputs[0].shape, &b = request.inputs[1].shape, &y = request.outputs[0].shape;
  const int64_t n = y.elements();
  if (n == 0) return function_kernel([](const Call&) {});
  if (a.elements() == n && b.elements() == n) return map_pair_kernel(request, f);
  const LoopNest<3> nest(y, {broadcast_strides(a, y), broadcast_strides(b, y), strides_of(y)});
  const bool in_fours = rows_have_lanes(nest, 4);
  return function_kernel([=, &device = request.device](const Call& call) {
    const bool a_fits = nest.row_strides()[0] == 0 || aligned<4>(call.in(0));
    const bool b_fits = nest.row_strides()[1] == 0 || aligned<4>(call.in(1));
    const bool fours = in_fours && a_fits && b_fits && aligned<4>(call.out());
    with_index_type(n, [&](auto type) {
      using I = decltype(type);
      if (fours) {
        launch_combine<4, F, I>(device, call, f, nest, n / 4);
      } else {
        launch_combine<1, F, I>(device, call, f, nest, n);
      }
    });
  });
}

// ---- dropout: the mask is drawn again rather than kept, and the numbers are the CPU's

// One thread for the four elements whose words one counter gives. y may be x.
template <bool kAligned>
__global__ void drop(uint64_t seed, uint32_t threshold, float factor, int64_t n, const float* x,
                     const int32_t* step, float* y) {
  // A negative step is none that a counter reaches, but still a stream of its own.
  const auto stream = static_cast<uint32_t>(*step);
  for (int64_t block = grid_thread(); 4 * block < n; block += grid_threads()) {
    const PhiloxCounter words = random_words(seed, stream, static_cast<uint64_t>(block));
    const auto keep = [&](int lane, float value) { return words[lane] < threshold ? 0 : value * factor; };
    const int64_t first = 4 * block;
    if (kAligned && first + 4 <= n) {
      Lanes<float, 4> lanes = load<4>(x + first);
#pragma unroll
      for (int lane = 0; lane < 4; ++lane) lanes.values[lane] = keep(lane, lanes.values[lane]);
      store(y + first, lanes);
    } else {
#pragma unroll
      for (int lane = 0; lane < 4; ++lane) {
        if (first + lane < n) y[first + lane] = keep(lane, x[first + lane]);
      }
    }
  }
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Unary& op, const Request& request) {
  switch (op.kind) {
    case UnaryKind::kRelu:
      // In this order NaN stays: it is not below 0.
      return map_kernel(request, [] __device__(float x) { return x < 0 ? 0 : x; });
    case UnaryKind::kSigmoid:
      return map_kernel(request, [] __device__(float x) { return 1 / (1 + expf(-x)); });
    case UnaryKind::kTanh:
      return map_kernel(request, [] __device__(float x) { return tanhf(x); });
    case UnaryKind::kGelu:
      return map_kernel(request, [] __device__(float x) { return 0.5f * x * (1 + erff(x * kSqrtHalf)); });
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_kernel(const UnaryGrad& op, const Request& request) {
  switch (op.kind) {
    case UnaryKind::kRelu:
      return map_pair_kernel(request, [] __device__(float dy, float y) { return y <= 0 ? 0 : dy; });
    case UnaryKind::kSigmoid:
      return map_pair_kernel(request, [] __device__(float dy, float y) { return dy * y * (1 - y); });
    case UnaryKind::kTanh:
      return map_pair_kernel(request, [] __device__(float dy, float y) { return dy * (1 - y * y); });
    case UnaryKind::kGelu:
      return map_pair_kernel(request, [] __device__(float dy, float x) {
        return dy * (0.5f * (1 + erff(x * kSqrtHalf)) + x * kNormalDensity * expf(-0.5f * x * x));
      });
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_kernel(const Scale& op, const Request& request) {
  return map_kernel(request, [factor = op.factor] __device__(float x) { return factor * x; });
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

std::unique_ptr<Kernel> make_kernel(const Binary& op, const Request& request) {
  switch (op.kind) {
    case BinaryKind::kAdd:
      return make_binary([] __device__(float a, float b) { return a + b; }, request);
    case BinaryKind::kSub:
      return make_binary([] __device__(float a, float b) { return a - b; }, request);
    case BinaryKind::kMul:
      return make_binary([] __device__(float a, float b) { return a * b; }, request);
    case BinaryKind::kDiv:
      return make_binary([] __device__(float a, float b) { return a / b; }, request);
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_kernel(const Dropout& op, const Request& request) {
  const int64_t n = request.inputs[0].shape.elements();
  const float factor = 1 / (1 - op.rate);
  // An element is dropped when its word is below this: rate * 2^32, at most 2^32 - 2^8 for any float below 1.
  const auto threshold = static_cast<uint32_t>(static_cast<double>(op.rate) * 0x1p32);
  return function_kernel([=, &device = request.device](const Call& call) {
    if (n == 0) return;
    const bool fours = aligned<4>(call.in(0)) && aligned<4>(call.out());
    launch(fours ? drop<true> : drop<false>, blocks_for(device, ceil_div(n, 4)), kThreads, call.stream,
           op.seed, threshold, factor, n, call.in(0), call.in<int32_t>(1), call.out());
  });
}

}  // namespace headroom::cuda
