// One launch over the elements of many tensors of different sizes, with their addresses in the kernel's
// parameters, which have 4 KiB: PyTorch's multi-tensor apply. Knows no op.
#pragma once

#include <span>

#include "kernels/cuda/device_loops.cuh"
#include "kernels/cuda/early_start.cuh"

namespace headroom::cuda {

// Elements of one block, four per thread: a net of 100,000 parameters fills the GPU once.
inline constexpr int64_t kTensorBlock = 4 * kThreads;

// The item that each block of a launch works on.
struct BlockRanges {
  static constexpr int kMax = 64;
  int count = 0;
  int first_block[kMax + 1] = {};

  unsigned blocks() const { return static_cast<unsigned>(first_block[count]); }
  void add(int64_t item_blocks) {
    first_block[count + 1] = first_block[count] + static_cast<int>(item_blocks);
    ++count;
  }
  // The last item whose first block is not above this one.
  __device__ int item_of(int block) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (first_block[middle] <= block ? low : high) = middle;
    }
    return low;
  }
};

// Groups of N tensors with as many elements each: a shard of a variable, of its gradient, and states of that
// shard.
template <int N>
struct TensorGroups {
  static constexpr int kMax = BlockRanges::kMax;
  BlockRanges ranges;
  int64_t elements[kMax];
  void* data[kMax][N];  // f32, except for the second one, the gradient
  DType gradient[kMax];
  bool in_lanes[kMax];  // every tensor of the group is aligned to four elements

  void add(const TensorView* views, const Shard& shard) {
    const int64_t begin = shard.begin(views[0].elements());
    const int count = ranges.count;
    elements[count] = shard.size(views[0].elements());
    in_lanes[count] = true;
    gradient[count] = views[1].spec.dtype;
    for (int n = 0; n < N; ++n) {
      const RealsOut from = reals_out(views[n]) + (n < 2 ? begin : 0);
      data[count][n] = from.data;
      in_lanes[count] = in_lanes[count] && aligned<4>(from);
    }
    ranges.add(ceil_div(elements[count], kTensorBlock));
  }
};

// The factors of gradients: a constant, and the adaptive loss scale's factor for this step, which is 0 for a
// skipped step.
struct GradientScale {
  float factor;
  const float* of_step;  // null without one
  __device__ float value() const { return of_step == nullptr ? factor : factor * *of_step; }
  __device__ bool is_left_out() const { return of_step != nullptr && *of_step == 0; }
};

// Changes x[0] and x[2..N) of an element by rule(x). x[1], the gradient, is only read, and is the only
// operand that earlier work still writes. make_rule() reads memory too, so it comes after the loads of the
// operands; its `scale` tells if the step is skipped.
template <int L, int N, typename MakeRule>
__device__ void apply_rule(const MakeRule& make_rule, void* const (&data)[N], DType gradient, int64_t at) {
  const auto floats = [&](int n) { return static_cast<float*>(data[n]) + at; };
  Lanes<float, L> lanes[N];
#pragma unroll
  for (int n = 0; n < N; ++n) {
    if (n != 1) lanes[n] = load<L>(floats(n));
  }
  wait_for_earlier_work();
  lanes[1] = load<L>(Reals{data[1], gradient} + at);
  if (make_rule.scale.is_left_out()) return;
  const auto rule = make_rule();
#pragma unroll
  for (int lane = 0; lane < L; ++lane) {
    float x[N];
#pragma unroll
    for (int n = 0; n < N; ++n) x[n] = lanes[n].values[lane];
    rule(x);
#pragma unroll
    for (int n = 0; n < N; ++n) lanes[n].values[lane] = x[n];
  }
#pragma unroll
  for (int n = 0; n < N; ++n) {
    if (n != 1) store(floats(n), lanes[n]);
  }
}

// `make_rule` reads the rule's parameters from device memory.
template <int N, typename MakeRule>
__global__ void update_groups(const __grid_constant__ TensorGroups<N> groups, MakeRule make_rule) {
  const auto block = static_cast<int>(blockIdx.x);
  const int group = groups.ranges.item_of(block);
  const int64_t n = groups.elements[group];
  const int64_t at = (block - groups.ranges.first_block[group]) * kTensorBlock + 4 * threadIdx.x;
  if (groups.in_lanes[group] && at + 4 <= n) {
    apply_rule<4, N>(make_rule, groups.data[group], groups.gradient[group], at);
  } else {
    for (int64_t i = at; i < min(n, at + 4); ++i)
      apply_rule<1, N>(make_rule, groups.data[group], groups.gradient[group], i);
    if (at >= n) wait_for_earlier_work();
  }
}

// Queues rule(x) for every element of the shard of each group of N consecutive `operands`.
template <int N, typename MakeRule>
void update_all(std::span<const TensorView> operands, const Shard& shard, cudaStream_t stream,
                const MakeRule& make_rule) {
  TensorGroups<N> groups;
  const auto flush = [&] {
    if (groups.ranges.blocks() > 0)
      launch(update_groups<N, MakeRule>, groups.ranges.blocks(), kThreads, stream, groups, make_rule);
    groups = {};
  };
  for (size_t first = 0; first < operands.size(); first += N) {
    if (shard.size(operands[first].elements()) > 0) groups.add(&operands[first], shard);
    if (groups.ranges.count == TensorGroups<N>::kMax) flush();
  }
  flush();
}

}  // namespace headroom::cuda
