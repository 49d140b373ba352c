// A tensor (.., C) as rows of channels: two sums over the rows of each channel, in double, and values
// computed from every element by its channel. Normalizations need both. A thread processes some neighboring
// channels of a share of the rows; a second launch adds up the shares.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernels/cuda/reductions.cuh"

namespace headroom::cuda {

struct ChannelSums {
  double first, second;
};
struct AddSums {
  __device__ ChannelSums operator()(const ChannelSums& a, const ChannelSums& b) const {
    return {a.first + b.first, a.second + b.second};
  }
};

// The division of a tensor's channels and rows among threads; `lanes` channels each.
struct ChannelLayout {
  // Blocks of a multiprocessor, limited by registers: further blocks would read a channel's inputs again.
  static constexpr int kBlocksAtOnce = 2;

  int lanes;
  ReductionLayout groups;  // results are groups of channels, terms are rows
  ReductionLayout last;    // layout of the sums of all shares: results are channels

  ChannelLayout(const CudaGpu& device, const Shape& shape, int lanes_of_thread)
      : lanes(lanes_of_thread),
        groups(reduction_layout(device, shape.last() / lanes, shape.elements() / shape.last(),
                                Neighbors::kResults, 8, kBlocksAtOnce)),
        last(layout_of_partials({shape.last(), groups.terms, groups.wide, groups.splits})) {}

  int64_t channels() const { return last.results; }
  int64_t rows() const { return groups.terms; }
  // Bytes of the sums of all shares.
  int64_t partial_bytes() const {
    return groups.splits * channels() * static_cast<int64_t>(sizeof(ChannelSums));
  }
};

// The layouts of a request: with vector accesses where channels allow it, and for any address.
class ChannelLayouts {
 public:
  ChannelLayouts(const Request& request, const Shape& shape)
      : elements_(shape.elements()),
        eights_(request.device, shape, shape.last() % 8 == 0 ? 8 : 1),
        fours_(request.device, shape, shape.last() % 4 == 0 ? 4 : 1),
        any_(request.device, shape, 1) {}

  int64_t partial_bytes() const {
    return std::max({eights_.partial_bytes(), fours_.partial_bytes(), any_.partial_bytes()});
  }

  // Calls f(layout, lanes) with the number of lanes as a type, for operands at these addresses.
  template <typename F>
  void with(const KernelCall& call, F f) const {
    if (are_aligned(call.inputs) && are_aligned(call.outputs)) {
      const bool eight = packed_lanes(call.inputs, call.outputs, elements_) == 8;
      if (eight && eights_.lanes == 8) return f(eights_, std::integral_constant<int, 8>());
      if (fours_.lanes == 4) return f(fours_, std::integral_constant<int, 4>());
    }
    f(any_, std::integral_constant<int, 1>());
  }

 private:
  int64_t elements_;
  ChannelLayout eights_, fours_, any_;
};

// The numbers of L neighboring channels.
template <int L>
struct OfChannels {
  float values[L];
  __device__ float operator[](int lane) const { return values[lane]; }
  __device__ float& operator[](int lane) { return values[lane]; }
};
template <int L>
__device__ OfChannels<L> of_channels(const Reals& x, int64_t first) {
  OfChannels<L> result;
#pragma unroll
  for (int lane = 0; lane < L; ++lane) result[lane] = x[first + lane];
  return result;
}

// Calls use(row, fetched) for fetched = fetch(row) of each row of the share, some at once, from row `last`
// back to the first: after a launch that has read them in order, the last ones are still in the cache.
template <int kAtOnce = 4, typename Fetch, typename Use>
__device__ void for_each_row_back(const Share& share, int64_t last, const Fetch& fetch, const Use& use) {
  for_each_term<kAtOnce>(
      share, [last](int64_t row) { return last - row; }, fetch, use);
}

// partial (splits, C): the two sums of each channel over a share of the rows. The functor f has
//   static constexpr int kRowsAtOnce
//   auto of_group<L>(int64_t first_channel) const
// whose result fetches a row, and adds what it has fetched: fetch(row), add(row, fetched, first, second).
template <int L, typename F>
__global__ void __launch_bounds__(kThreads, ChannelLayout::kBlocksAtOnce)
    sum_channels(F f, ReductionLayout layout, ChannelSums* partial) {
  // Rows that are loaded at once, and how often before they are added up.
  constexpr int kAtOnce = F::kRowsAtOnce, kTurns = 4;
  const Share share = turns_of(layout);
  // Sums of sums, so that f32 is exact enough for the rows of one thread.
  OfChannels<L> first{}, second{};
  if (share.result < layout.results) {
    const auto group = f.template of_group<L>(share.result * L);
    for (int64_t row = share.begin; row < share.end;) {
      OfChannels<L> few_first{}, few_second{};
      for (int turn = 0; turn < kTurns && row < share.end; ++turn, row += kAtOnce * share.step) {
        const Share some{0, row, min(share.end, row + kAtOnce * share.step), share.step};
        for_each_term<kAtOnce>(
            some, [](int64_t at) { return at; }, [&](int64_t at) { return group.fetch(at); },
            [&](int64_t at, const auto& fetched) { group.add(at, fetched, few_first, few_second); });
      }
#pragma unroll
      for (int lane = 0; lane < L; ++lane) {
        first[lane] += few_first[lane];
        second[lane] += few_second[lane];
      }
    }
  }
  // Like combine_block for all lanes at once; neighboring threads use different banks.
  __shared__ ChannelSums values[L][kThreads];
  const int t = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int lane = 0; lane < L; ++lane)
    values[lane][t] = {static_cast<double>(first[lane]), static_cast<double>(second[lane])};
  for (int stride = kThreads / 2; stride >= layout.wide; stride /= 2) {
    __syncthreads();
    if (t >= stride) continue;
#pragma unroll
    for (int lane = 0; lane < L; ++lane)
      values[lane][t] = AddSums()(values[lane][t], values[lane][t + stride]);
  }
  if (t >= layout.wide || share.result >= layout.results) return;
#pragma unroll
  for (int lane = 0; lane < L; ++lane)
    partial[(blockIdx.y * layout.results + share.result) * L + lane] = values[lane][t];
}

// The sums of this thread's channel over all shares; every thread of the block must call it.
__device__ inline ChannelSums add_shares(const ReductionLayout& last, const Share& share,
                                         const ChannelSums* partial) {
  ChannelSums sums{};
  if (share.result < last.results) {
    for_each_term(
        share, [&](int64_t split) { return split * last.results + share.result; },
        [&](int64_t i) { return partial[i]; },
        [&](int64_t, const ChannelSums& part) { sums = AddSums()(sums, part); });
  }
  return combine_block(sums, last.wide, AddSums());
}

// Computes only the first sum.
[[maybe_unused]] static __global__ void finish_sums(ReductionLayout last, const ChannelSums* partial,
                                                    RealsOut sums) {
  const Share share = share_of(last);
  const ChannelSums total = add_shares(last, share, partial);
  if (threadIdx.x >= last.wide || share.result >= last.results) return;
  sums.set(share.result, static_cast<float>(total.first));
}

// The gradients of a normalization's offset and factor: the first sum and the second.
static __global__ void finish_gradients(ReductionLayout last, const ChannelSums* partial, RealsOut dgamma,
                                        RealsOut dbeta) {
  const Share share = share_of(last);
  const ChannelSums sums = add_shares(last, share, partial);
  if (threadIdx.x >= last.wide || share.result >= last.results) return;
  dbeta.set(share.result, static_cast<float>(sums.first));
  dgamma.set(share.result, static_cast<float>(sums.second));
}

}  // namespace headroom::cuda
