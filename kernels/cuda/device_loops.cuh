// Common parts of loops over elements: launches, vectors of neighboring elements, maps and strided operands.
// Knows no op.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <type_traits>

#include "device/cuda/check.h"
#include "kernels/cuda/reals.cuh"
#include "kernels/loop_nest.h"

namespace headroom::cuda {

// The default block size: full occupancy on every GPU since Turing.
inline constexpr int kThreads = 256;

constexpr int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Blocks for a grid-stride loop over `items`, one item per thread and turn. Sixteen blocks per
// multiprocessor are at least two waves: enough to balance the load, few enough to start quickly.
inline unsigned blocks_for(const CudaGpu& device, int64_t items, int threads = kThreads) {
  return static_cast<unsigned>(
      std::clamp<int64_t>(ceil_div(items, threads), 1, int64_t{16} * device.multiprocessors()));
}

// Queues `kernel` with one-dimensional blocks. Throws DeviceError when the launch is refused.
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), dim3 grid, int threads, cudaStream_t stream,
            const Arguments&... arguments) {
  kernel<<<grid, static_cast<unsigned>(threads), 0, stream>>>(arguments...);
  HR_CHECK(cudaGetLastError());
}

// This thread's number in the whole grid, and how many there are.
__device__ inline int64_t grid_thread() {
  return int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
}
__device__ inline int64_t grid_threads() {
  return int64_t{gridDim.x} * blockDim.x;
}

// ---- one result per element

// The element type of a result: float for RealsOut, otherwise the pointer's type.
template <typename Y>
using ElementOf = std::conditional_t<std::is_same_v<Y, RealsOut>, float, std::remove_pointer_t<Y>>;

// Applies f to the fetched values, once all of them are in flight.
template <int N, typename Y, typename F, typename... Fetched>
__device__ Lanes<Y, N> apply(const F& f, const Fetched&... fetched) {
  const auto lane_of = [](const auto& lanes, int lane) { return lanes.values[lane]; };
  Lanes<Y, N> y;
  const auto compute = [&](const auto&... x) {
#pragma unroll
    for (int lane = 0; lane < N; ++lane) y.values[lane] = f(lane_of(x, lane)...);
  };
  compute(widened(fetched)...);
  return y;
}

// y may be one of x: an element is read before it is written, by the same thread.
template <int N, typename F, typename Y, typename... X>
__global__ void map_lanes(F f, int64_t n, bool in_lanes, Y y, X... x) {
  for (int64_t i = N * grid_thread(); i < n; i += N * grid_threads()) {
    if (in_lanes && i + N <= n) {
      store(y + i, apply<N, ElementOf<Y>>(f, fetch<N>(x, i)...));
    } else {
      for (int64_t j = i; j < min(n, i + N); ++j) put(y, j, f(x[j]...));
    }
  }
}

// Queues y[i] = f(x[i]...) for i in [0, n), with N elements for each thread and turn.
template <int N, typename F, typename Y, typename... X>
void map_by(const CudaGpu& device, cudaStream_t stream, const F& f, int64_t n, Y y, X... x) {
  const bool in_lanes = aligned<N>(y) && (aligned<N>(x) && ...);
  launch(map_lanes<N, F, Y, X...>, blocks_for(device, ceil_div(n, N)), kThreads, stream, f, n, in_lanes, y,
         x...);
}

// Queues y[i] = f(x[i]...) for i in [0, n), with `lanes` (4 or 8) elements for each thread and turn.
template <typename F, typename Y, typename... X>
void map(const CudaGpu& device, cudaStream_t stream, int lanes, const F& f, int64_t n, Y y, X... x) {
  if (n == 0) return;
  // Whole numbers have no type of 16 bits.
  constexpr bool kAnyReals = std::is_same_v<Y, RealsOut> || (std::is_same_v<X, Reals> || ...);
  if constexpr (kAnyReals) {
    if (lanes == 8) return map_by<8>(device, stream, f, n, y, x...);
  }
  map_by<4>(device, stream, f, n, y, x...);
}

// The lanes of a call whose results are elementwise.
inline int lanes_of(const KernelCall& call) {
  return std::max(lanes_of(call.inputs), lanes_of(call.outputs));
}

// The kernel y = f(x).
template <typename X = float, typename Y = float, typename F>
std::unique_ptr<Kernel> map_kernel(const Request& request, F f) {
  return function_kernel(
      [&device = request.device, f, n = request.outputs[0].shape.elements()](const Call& call) {
        map(device, call.stream, lanes_of(call), f, n, result<Y>(call), operand<X>(call, 0));
      });
}

// The kernel y = f(a, b) for operands of one shape.
template <typename F>
std::unique_ptr<Kernel> map_pair_kernel(const Request& request, F f) {
  return function_kernel(
      [&device = request.device, f, n = request.outputs[0].shape.elements()](const Call& call) {
        map(device, call.stream, lanes_of(call), f, n, result(call), operand(call, 0), operand(call, 1));
      });
}

// ---- strided operands

// Division by a number known on the host.
template <typename I>
struct Divider {
  I divisor = 1;
  Divider() = default;
  explicit Divider(int64_t by) : divisor(static_cast<I>(by)) {}
  __device__ I quotient(I n) const { return n / divisor; }
};

// By multiplying and shifting, for numbers below 2^31: Granlund and Montgomery, "Division by invariant
// integers using multiplication" (PLDI 1994), figure 4.1.
template <>
struct Divider<uint32_t> {
  uint32_t divisor = 1, factor = 1, shift = 0;
  Divider() = default;
  explicit Divider(int64_t by) : divisor(static_cast<uint32_t>(by)) {
    while ((uint64_t{1} << shift) < divisor) ++shift;
    factor = static_cast<uint32_t>((uint64_t{1} << 32) * ((uint64_t{1} << shift) - divisor) / divisor + 1);
  }
  __device__ uint32_t quotient(uint32_t n) const { return (__umulhi(n, factor) + n) >> shift; }
};

// Calls f(I{}) with the index type that `numbers` (counts and offsets, each below the largest) fit into.
template <typename F>
auto with_index_type(int64_t largest, F f) {
  return largest < (int64_t{1} << 31) ? f(uint32_t{}) : f(int64_t{});
}

// Returns true if every row of the nest is a whole number of groups of `lanes` neighbors, which start at
// multiples of `lanes` in each operand that is dense along rows.
template <size_t N>
bool rows_have_lanes(const LoopNest<N>& nest, int lanes) {
  if (nest.extent(0) % lanes != 0) return false;
  for (int axis = 1; axis < nest.axis_count(); ++axis) {
    for (size_t n = 0; n < N; ++n) {
      if (nest.row_strides()[n] == 1 && nest.strides(axis)[n] % lanes != 0) return false;
    }
  }
  return true;
}

// Position of the i-th element of a LoopNest, or of the i-th group of neighbors along its rows, in each of
// its N operands.
template <int N, typename I>
struct Offsets {
  I at[N];
};
template <int N, typename I>
class StridedIndex {
 public:
  explicit StridedIndex(const LoopNest<N>& nest, int lanes = 1) : axes_(nest.axis_count()) {
    for (int axis = 0; axis < axes_; ++axis) {
      const int step = axis == 0 ? lanes : 1;
      // An empty nest has no elements, but the divisor must not be 0.
      extents_[axis] = Divider<I>(std::max<int64_t>(1, nest.extent(axis) / step));
      for (int n = 0; n < N; ++n) strides_[axis][n] = static_cast<I>(nest.strides(axis)[n] * step);
    }
  }
  __device__ Offsets<N, I> operator()(I i) const {
    Offsets<N, I> result{};
#pragma unroll
    for (int axis = 0; axis < Shape::kMaxRank; ++axis) {
      if (axis == axes_ - 1) {
        for (int n = 0; n < N; ++n) result.at[n] += i * strides_[axis][n];
        break;
      }
      const I outer = extents_[axis].quotient(i);
      const I inner = i - outer * extents_[axis].divisor;
      for (int n = 0; n < N; ++n) result.at[n] += inner * strides_[axis][n];
      i = outer;
    }
    return result;
  }

 private:
  int axes_;
  Divider<I> extents_[Shape::kMaxRank];  // innermost first
  I strides_[Shape::kMaxRank][N] = {};
};

}  // namespace headroom::cuda
