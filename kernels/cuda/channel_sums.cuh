// Two sums over the rows of each channel of a tensor (.., C), in double: a block for up to 32 neighbouring
// channels and a share of the rows; a second launch adds the shares up. Normalisations need them.
#pragma once

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

// A tensor (.., C) as a matrix (rows, C): results are channels, terms are rows.
inline ReductionLayout channel_layout(const Request& request, const Shape& shape) {
  const int64_t channels = shape.last();
  return reduction_layout(request.device, channels, shape.elements() / channels, Neighbours::kResults);
}
// Of the sums of all shares.
inline int64_t partial_bytes(const ReductionLayout& layout) {
  return layout.splits * layout.results * static_cast<int64_t>(sizeof(ChannelSums));
}

// partial (splits, C): the sums of f.of_channel(channel)(row) over a share of the rows.
template <typename F>
__global__ void sum_channels(F f, ReductionLayout layout, ChannelSums* partial) {
  const Share share = share_of(layout);
  ChannelSums sums{};
  if (share.result < layout.results) {
    const auto term = f.of_channel(share.result);
    for_each_term(
        share, [](int64_t row) { return row; }, term,
        [&](int64_t, const ChannelSums& sum) { sums = AddSums()(sums, sum); });
  }
  sums = combine_block(sums, layout.wide, AddSums());
  if (threadIdx.x < layout.wide && share.result < layout.results) {
    partial[blockIdx.y * layout.results + share.result] = sums;
  }
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

// The gradients of a normalisation's offset and factor: the first sum and the second.
static __global__ void finish_gradients(ReductionLayout last, const ChannelSums* partial, RealsOut dgamma,
                                        RealsOut dbeta) {
  const Share share = share_of(last);
  const ChannelSums sums = add_shares(last, share, partial);
  if (threadIdx.x >= last.wide || share.result >= last.results) return;
  dbeta.set(share.result, static_cast<float>(sums.first));
  dgamma.set(share.result, static_cast<float>(sums.second));
}

}  // namespace headroom::cuda
