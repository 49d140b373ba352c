// Softmax over the last axis and the cross-entropy of logits, with their gradients. Each row's maximum is
// taken off first, so that no exp overflows.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/index_report.cuh"
#include "kernels/cuda/reductions.cuh"

namespace headroom::cuda {
namespace {

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

// The maximum of a row and the sum of its exp(x - maximum). A row of n = 0 is one that there is not.
struct RowSums {
  float largest, sum;
};
template <typename Team>
__device__ RowSums sums_of_row(const Team& team, Reals x, int64_t n) {
  float largest = -HUGE_VALF;
  const auto load = [&](int64_t i) { return x[i]; };
  for_each_element(team, n, load, [&](int64_t, float value) { largest = Larger()(largest, value); });
  largest = team.combine(largest, Larger());
  float sum = 0;
  for_each_element(team, n, load, [&](int64_t, float value) { sum += expf(value - largest); });
  return {largest, team.combine(sum, Add())};
}

// Calls f(team, row, n) for each row. A team without a row left, in a warp whose other teams have one, gets
// n = 0.
template <typename Team, typename F>
__global__ void for_each_row(F f, int team_size, int64_t rows, int64_t n) {
  const Team team(team_size);
  for (int64_t first = 0; first < rows; first += team.teams()) {
    const int64_t row = first + team.first_row();
    f(team, row < rows ? row : 0, row < rows ? n : 0);
  }
}

// Queues f for every row of a tensor of this shape.
template <typename F>
void launch_rows(const CudaGpu& device, cudaStream_t stream, const F& f, const Shape& shape) {
  // Beyond this a warp would take more turns over a row than a block takes to meet.
  constexpr int64_t kLongestRowOfAWarp = 1024;
  const int64_t n = shape.last(), rows = shape.elements() / std::max<int64_t>(1, n);
  if (rows == 0 || n == 0) return;
  if (n > kLongestRowOfAWarp) {
    launch(for_each_row<BlockTeam, F>, blocks_for(device, rows * kThreads), kThreads, stream, f, kThreads,
           rows, n);
    return;
  }
  int team_size = 1;
  while (team_size < 32 && team_size < n) team_size *= 2;
  launch(for_each_row<WarpTeam, F>, blocks_for(device, rows * team_size), kThreads, stream, f, team_size,
         rows, n);
}

// y may be x, for a thread writes what it alone reads, and reads it first.
struct SoftmaxRow {
  bool zero_nan_rows;
  Reals x;
  RealsOut y;
  template <typename Team>
  __device__ void operator()(const Team& team, int64_t row, int64_t n) const {
    const Reals from = x + row * n;
    const RealsOut to = y + row * n;
    const RowSums sums = sums_of_row(team, from, n);
    const float share = 1 / sums.sum;
    const bool is_zero = zero_nan_rows && isnan(sums.sum);
    for_each_element(
        team, n, [&](int64_t i) { return from[i]; },
        [&](int64_t i, float value) { to.set(i, is_zero ? 0 : expf(value - sums.largest) * share); });
  }
};

// dx may be dy.
struct SoftmaxGradRow {
  Reals dy, y;
  RealsOut dx;
  template <typename Team>
  __device__ void operator()(const Team& team, int64_t row, int64_t n) const {
    const int64_t at = row * n;
    float product = 0;
    const auto load = [&](int64_t i) { return float2{dy[at + i], y[at + i]}; };
    for_each_element(team, n, load, [&](int64_t, float2 pair) { product += pair.x * pair.y; });
    product = team.combine(product, Add());
    for_each_element(team, n, load,
                     [&](int64_t i, float2 pair) { dx.set(at + i, (pair.x - product) * pair.y); });
  }
};

// A row whose label is no class has no loss; nobody reads it, for the fault ends the run.
struct CrossEntropyRow {
  Reals logits;
  const int32_t* labels;
  RealsOut loss;
  FaultSlot fault;
  template <typename Team>
  __device__ void operator()(const Team& team, int64_t row, int64_t n) const {
    const Reals x = logits + row * n;
    const RowSums sums = sums_of_row(team, x, n);
    if (n == 0 || team.lane() != 0) return;
    const int32_t label = labels[row];
    if (in_range(label, n)) {
      loss.set(row, logf(sums.sum) - (x[label] - sums.largest));
    } else {
      loss.set(row, 0);
      report(fault, row, label);
    }
  }
};

// dlogits may be logits.
struct CrossEntropyGradRow {
  Reals logits;
  const int32_t* labels;
  Reals dloss;
  RealsOut dlogits;
  FaultSlot fault;
  template <typename Team>
  __device__ void operator()(const Team& team, int64_t row, int64_t n) const {
    const Reals x = logits + row * n;
    const RealsOut dx = dlogits + row * n;
    const RowSums sums = sums_of_row(team, x, n);
    if (n == 0) return;
    const int32_t label = labels[row];
    if (team.lane() == 0 && !in_range(label, n)) report(fault, row, label);
    const float share = 1 / sums.sum, gradient = dloss[row];
    for_each_element(
        team, n, [&](int64_t i) { return x[i]; },
        [&](int64_t i, float value) {
          dx.set(i, (expf(value - sums.largest) * share - (i == label ? 1 : 0)) * gradient);
        });
  }
};

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Softmax& op, const Request& request) {
  return function_kernel([op, &device = request.device, shape = request.inputs[0].shape](const Call& call) {
    launch_rows(device, call.stream, SoftmaxRow{op.zero_nan_rows, operand(call, 0), result(call)}, shape);
  });
}

std::unique_ptr<Kernel> make_kernel(const SoftmaxGrad&, const Request& request) {
  return function_kernel([&device = request.device, shape = request.inputs[0].shape](const Call& call) {
    launch_rows(device, call.stream, SoftmaxGradRow{operand(call, 0), operand(call, 1), result(call)}, shape);
  });
}

std::unique_ptr<Kernel> make_kernel(const CrossEntropy& op, const Request& request) {
  return function_kernel([&device = request.device, shape = request.inputs[0].shape,
                          faults = index_faults(request, op.kTraits.name, "label",
                                                request.inputs[0].shape.last())](const Call& call) {
    launch_rows(device, call.stream,
                CrossEntropyRow{operand(call, 0), call.in<int32_t>(1), result(call), faults->slot()}, shape);
  });
}

std::unique_ptr<Kernel> make_kernel(const CrossEntropyGrad& op, const Request& request) {
  return function_kernel([&device = request.device, shape = request.inputs[0].shape,
                          faults = index_faults(request, op.kTraits.name, "label",
                                                request.inputs[0].shape.last())](const Call& call) {
    launch_rows(device, call.stream,
                CrossEntropyGradRow{operand(call, 0), call.in<int32_t>(1), operand(call, 2), result(call),
                                    faults->slot()},
                shape);
  });
}

}  // namespace headroom::cuda
