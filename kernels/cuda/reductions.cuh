// Reductions of many terms to one result by blocks, in the same order on every run. Knows no op.
#pragma once

#include <algorithm>

#include "kernels/cuda/device_loops.cuh"

namespace headroom::cuda {

// A block computes `wide` neighboring results, a power of two up to 32, thread t a share of result t % wide.
// If that leaves much of the GPU idle, `splits` blocks share the terms of a result; their partial results
// must be reduced once more.
struct ReductionLayout {
  int64_t results = 0, terms = 0;
  int wide = 1;
  int splits = 1;
  int64_t terms_per_split = 0;

  dim3 grid() const {
    return dim3(static_cast<unsigned>(ceil_div(results, wide)), static_cast<unsigned>(splits));
  }
};

// `neighbors` names the values that are adjacent in memory: the terms of a result, or the results.
// `terms_per_thread` is the smallest share worth a thread: below it, combining threads takes longer.
// `blocks_at_once` fill a multiprocessor.
enum class Neighbors { kTerms, kResults };
inline ReductionLayout reduction_layout(const CudaGpu& device, int64_t results, int64_t terms,
                                        Neighbors neighbors, int64_t terms_per_thread = 16,
                                        int64_t blocks_at_once = 8) {
  ReductionLayout layout{results, terms};
  const bool one_wide = neighbors == Neighbors::kTerms && terms >= kThreads;
  while (!one_wide && layout.wide < 32 && layout.wide < results) layout.wide *= 2;
  const int64_t blocks = std::max<int64_t>(1, ceil_div(results, layout.wide));
  const int64_t useful = ceil_div(terms, terms_per_thread * kThreads / layout.wide);
  const int64_t idle = ceil_div(blocks_at_once * device.multiprocessors(), blocks);
  layout.splits = static_cast<int>(std::max<int64_t>(1, std::min(useful, idle)));
  layout.terms_per_split = ceil_div(terms, layout.splits);
  return layout;
}

// Returns the layout that reduces the partial results (splits, results) of a layout.
inline ReductionLayout layout_of_partials(const ReductionLayout& layout) {
  // Few results with many terms each: four neighbors fill a sector of memory.
  return {layout.results, layout.splits, std::min(layout.wide, 4), 1, layout.splits};
}

// A thread's share of a layout: its result, and every step-th of the terms [begin, end).
struct Share {
  int64_t result, begin, end, step;
};
__device__ inline Share share_of(const ReductionLayout& layout) {
  const int64_t first = blockIdx.y * layout.terms_per_split;
  return {int64_t{blockIdx.x} * layout.wide + threadIdx.x % layout.wide, first + threadIdx.x / layout.wide,
          min(first + layout.terms_per_split, layout.terms), kThreads / layout.wide};
}

// Returns a share in which splits interleave over the terms: all blocks then read one region of memory at a
// time.
__device__ inline Share turns_of(const ReductionLayout& layout) {
  const int at_once = kThreads / layout.wide;
  return {int64_t{blockIdx.x} * layout.wide + threadIdx.x % layout.wide,
          int64_t{blockIdx.y} * at_once + threadIdx.x / layout.wide, layout.terms,
          int64_t{at_once} * layout.splits};
}

// Calls use(place, load(place)) for place = place_of(k) of each term k of the share, in order. Loads are
// issued several at a time, with no branch between them: single loads would each wait for memory.
template <int kAtOnce = 8, typename PlaceOf, typename Load, typename Use>
__device__ void for_each_term(const Share& share, const PlaceOf& place_of, const Load& load, const Use& use) {
  for (int64_t first = share.begin; first < share.end; first += kAtOnce * share.step) {
    decltype(place_of(first)) places[kAtOnce];
    decltype(load(places[0])) values[kAtOnce];
    // Beyond the end the last term is loaded again, and not used.
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) places[i] = place_of(min(first + i * share.step, share.end - 1));
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) values[i] = load(places[i]);
#pragma unroll
    for (int i = 0; i < kAtOnce; ++i) {
      if (first + i * share.step < share.end) use(places[i], values[i]);
    }
  }
}

// Combines the values of all threads t of a block with equal t % wide, and returns the result to each of
// them.
template <typename T, typename F>
__device__ T combine_block(T value, int wide, const F& combine) {
  __shared__ T values[kThreads];
  const int t = static_cast<int>(threadIdx.x);
  values[t] = value;
  for (int stride = kThreads / 2; stride >= wide; stride /= 2) {
    __syncthreads();
    if (t < stride) values[t] = combine(values[t], values[t + stride]);
  }
  __syncthreads();
  value = values[t % wide];
  __syncthreads();  // before the next call writes here again
  return value;
}

struct Add {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a + b;
  }
};
// The larger of two; NaN if either is.
struct Larger {
  __device__ float operator()(float a, float b) const { return a >= b || a != a ? a : b; }
};

// A number and its position. The larger number wins, NaN wins over any number, the first of equals wins.
struct Placed {
  float value;
  int64_t position;
};
struct Better {
  __device__ Placed operator()(const Placed& a, const Placed& b) const {
    const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
    if (a_nan == b_nan && (a_nan || a.value == b.value)) return a.position < b.position ? a : b;
    return a_nan || a.value > b.value ? a : b;
  }
};

}  // namespace headroom::cuda
