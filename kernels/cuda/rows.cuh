// Work on rows along the last axis: a warp or a block processes a row, in registers if it fits. Knows no op.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/reductions.cuh"

namespace headroom::cuda {

// Threads that work on one row: a power of two of a warp's lanes, or a whole block. All threads of a warp or
// block must call its functions together.
class WarpTeam {
 public:
  explicit __device__ WarpTeam(int size) : size_(size) {}
  __device__ int lane() const { return static_cast<int>(threadIdx.x) % size_; }
  __device__ int size() const { return size_; }
  __device__ int64_t first_row() const { return grid_thread() / size_; }
  __device__ int64_t teams() const { return grid_threads() / size_; }
  template <typename F>
  __device__ float combine(float value, const F& f) const {
    for (int offset = size_ / 2; offset > 0; offset /= 2) {
      value = f(value, __shfl_xor_sync(~0u, value, offset));
    }
    return value;
  }

 private:
  int size_;
};
class BlockTeam {
 public:
  explicit __device__ BlockTeam(int) {}
  __device__ int lane() const { return static_cast<int>(threadIdx.x); }
  __device__ int size() const { return kThreads; }
  __device__ int64_t first_row() const { return blockIdx.x; }
  __device__ int64_t teams() const { return gridDim.x; }
  template <typename F>
  __device__ float combine(float value, const F& f) const {
    return combine_block(value, 1, f);
  }
};

// Calls use(i, load(i)) for a thread's elements i of a row of n, several loads at once.
template <typename Team, typename Load, typename Use>
__device__ void for_each_element(const Team& team, int64_t n, const Load& load, const Use& use) {
  constexpr int kAtOnce = 4;
  for_each_term<kAtOnce>(
      Share{0, team.lane(), n, team.size()}, [](int64_t i) { return i; }, load, use);
}

// A thread's part of a row: K groups of L neighbors, as they are stored.
template <int L, int K>
struct RowPart {
  Packed<L> groups[K];
};
// The first element of a thread's k-th group in a row.
template <int L, typename Team>
__device__ int64_t place_of(const Team& team, int k) {
  return L * (static_cast<int64_t>(k) * team.size() + team.lane());
}
template <int L, int K, typename Team>
__device__ RowPart<L, K> fetch_row(const Team& team, const Reals& row, int64_t n) {
  RowPart<L, K> part{};
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int64_t at = place_of<L>(team, k);
    if (at < n) part.groups[k] = fetch_packed<L>(row, at);
  }
  return part;
}
// Calls f(place, k) for each group of this thread that lies in a row of n.
template <int L, int K, typename Team, typename F>
__device__ void for_each_group(const Team& team, int64_t n, const F& f) {
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const int64_t at = place_of<L>(team, k);
    if (at < n) f(at, k);
  }
}

// Calls f(team, row, n) for each row. A team without a row left, in a warp whose other teams have one, gets
// n = 0.
template <typename Team, typename F>
__global__ void compute_rows(F f, int team_size, int64_t rows, int64_t n) {
  const Team team(team_size);
  for (int64_t first = 0; first < rows; first += team.teams()) {
    const int64_t row = first + team.first_row();
    f(team, row < rows ? row : 0, row < rows ? n : 0);
  }
}

// Queues f for every row of a tensor of this shape, whose rows do not fit into registers; a thread takes
// `lanes` neighbors at once.
template <typename F>
void launch_long_rows(const CudaGpu& device, cudaStream_t stream, const F& f, const Shape& shape,
                      int lanes = 1) {
  // Beyond this a warp would take more turns over a row than a block takes to meet.
  constexpr int64_t kLongestRowOfAWarp = 1024;
  const int64_t n = shape.last(), rows = shape.elements() / std::max<int64_t>(1, n);
  if (rows == 0 || n == 0) return;
  if (n > kLongestRowOfAWarp) {
    launch(compute_rows<BlockTeam, F>, blocks_for(device, rows * kThreads), kThreads, stream, f, kThreads,
           rows, n);
    return;
  }
  // With fewer elements to a thread a team would spend its time on combining them.
  constexpr int kElementsOfThread = 8;
  int team_size = 1;
  while (team_size < 32 && team_size * std::max(lanes, kElementsOfThread) < n) team_size *= 2;
  launch(compute_rows<WarpTeam, F>, blocks_for(device, rows * team_size), kThreads, stream, f, team_size,
         rows, n);
}

// Registers of a thread for one operand's row: elements.
inline constexpr int kRowElements = 32;

// Queues, for every row of a tensor of this shape, Held<L, K>(f) if a team can hold rows in registers with
// vector accesses to all of `operands`, otherwise Streamed(f).
template <template <int, int> typename Held, typename Streamed, typename Operands>
void launch_rows(const CudaGpu& device, const Call& call, const Operands& operands, const Shape& shape) {
  const int64_t n = shape.last(), rows = shape.elements() / std::max<int64_t>(1, n);
  if (rows == 0 || n == 0) return;
  const int lanes = packed_lanes(call.inputs, call.outputs, shape.elements());
  const bool is_held = n % lanes == 0 && n <= int64_t{kRowElements} * kThreads && are_aligned(call.inputs) &&
                       are_aligned(call.outputs);
  if (!is_held) return launch_long_rows(device, call.stream, Streamed{operands}, shape);
  const auto queue = [&](const auto& f) {
    using F = std::decay_t<decltype(f)>;
    if (n <= int64_t{kRowElements} * 32) {
      int team_size = 1;
      while (team_size < 32 && team_size * lanes < n) team_size *= 2;
      launch(compute_rows<WarpTeam, F>, blocks_for(device, rows * team_size), kThreads, call.stream, f,
             team_size, rows, n);
    } else {
      launch(compute_rows<BlockTeam, F>, blocks_for(device, rows * kThreads), kThreads, call.stream, f,
             kThreads, rows, n);
    }
  };
  // Short rows leave registers, and so room for more of them at once.
  const bool is_short = n <= int64_t{kRowElements} / 2 * 32;
  if (lanes == 8 && is_short) {
    queue(Held<8, kRowElements / 16>{operands});
  } else if (lanes == 8) {
    queue(Held<8, kRowElements / 8>{operands});
  } else if (is_short) {
    queue(Held<4, kRowElements / 8>{operands});
  } else {
    queue(Held<4, kRowElements / 4>{operands});
  }
}

}  // namespace headroom::cuda
