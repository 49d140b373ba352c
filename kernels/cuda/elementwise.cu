// Scale, cast, fill, dropout and random numbers.
#include <numeric>
#include <type_traits>

#include "base/random.h"
#include "kernels/cuda/multi_tensor.cuh"

namespace headroom::cuda {
namespace {

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
    case DType::kBf16:
    case DType::kF16:
      return map_kernel<From, float>(request, Convert<float, From>());
    case DType::kI32:
      return map_kernel<From, int32_t>(request, Convert<int32_t, From>());
    case DType::kU8:
      return map_kernel<From, uint8_t>(request, Convert<uint8_t, From>());
  }
  return nullptr;
}

// Elements that a thread takes of one tensor among several.
constexpr int kListLanes = 8;

// N operands and a result of each item, all of as many elements.
template <int N>
struct TensorLists {
  BlockRanges ranges;
  int64_t elements[BlockRanges::kMax];
  Reals from[BlockRanges::kMax][N];
  RealsOut to[BlockRanges::kMax];
  bool in_lanes[BlockRanges::kMax];
};

template <int L, int N>
__device__ Lanes<float, L> sum_at(const Reals (&from)[N], int64_t at) {
  Lanes<float, L> sum = load<L>(from[0] + at);
#pragma unroll
  for (int n = 1; n < N; ++n) {
    const Lanes<float, L> other = load<L>(from[n] + at);
#pragma unroll
    for (int lane = 0; lane < L; ++lane) sum.values[lane] += other.values[lane];
  }
  return sum;
}

// The sum of the operands of each item; of one operand, the operand in the result's type.
template <int N>
__global__ void sum_lists(const __grid_constant__ TensorLists<N> lists) {
  const auto block = static_cast<int>(blockIdx.x);
  const int item = lists.ranges.item_of(block);
  const int64_t n = lists.elements[item];
  const int64_t turn = block - lists.ranges.first_block[item];
  const int64_t at = kListLanes * (turn * kThreads + threadIdx.x);
  const RealsOut to = lists.to[item];
  if (lists.in_lanes[item] && at + kListLanes <= n) {
    const Lanes<float, kListLanes> sum = sum_at<kListLanes>(lists.from[item], at);
    wait_for_earlier_work();
    store(to + at, sum);
  } else {
    wait_for_earlier_work();
    for (int64_t i = at; i < min(n, at + kListLanes); ++i) {
      to.set(i, sum_at<1>(lists.from[item], i).values[0]);
    }
  }
}

// Item i has the inputs i, i + outputs, i + 2 outputs.. and the output i.
template <int N>
void queue_lists(const Call& call) {
  TensorLists<N> lists;
  BlockRanges& ranges = lists.ranges;
  const auto flush = [&] {
    if (ranges.blocks() > 0) launch(sum_lists<N>, ranges.blocks(), kThreads, call.stream, lists);
    ranges = {};
  };
  for (size_t i = 0; i < call.outputs.size(); ++i) {
    const int64_t n = call.outputs[i].elements();
    if (n == 0) continue;
    const int item = ranges.count;
    lists.elements[item] = n;
    lists.to[item] = result(call, i);
    lists.in_lanes[item] = aligned<kListLanes>(lists.to[item]);
    for (int operand_index = 0; operand_index < N; ++operand_index) {
      const Reals from = operand(call, i + static_cast<size_t>(operand_index) * call.outputs.size());
      lists.from[item][operand_index] = from;
      lists.in_lanes[item] = lists.in_lanes[item] && aligned<kListLanes>(from);
    }
    ranges.add(ceil_div(n, kListLanes * kThreads));
    if (ranges.count == BlockRanges::kMax) flush();
  }
  flush();
}

template <int N>
std::unique_ptr<Kernel> list_kernel(const Request& request) {
  std::vector<int> inputs(request.inputs.size());
  std::iota(inputs.begin(), inputs.end(), 0);
  return function_kernel(queue_lists<N>, 0, starts_early(request.device, std::move(inputs)));
}

// ---- dropout: the mask is drawn again rather than kept, and the numbers are the CPU's

// One thread for the four elements whose words one counter gives. y may be x.
template <bool kAligned>
__global__ void drop(uint64_t seed, uint32_t threshold, float factor, int64_t n, Reals x, const int32_t* step,
                     RealsOut y) {
  // No counter reaches a negative step, but it is still a stream of its own.
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
        if (first + lane < n) y.set(first + lane, keep(lane, x[first + lane]));
      }
    }
  }
}

// One thread for the four elements whose words one counter gives.
__global__ void draw(uint64_t seed, int64_t n, const int32_t* step, RealsOut y) {
  const auto stream = static_cast<uint32_t>(*step);
  for (int64_t block = grid_thread(); 4 * block < n; block += grid_threads()) {
    const PhiloxCounter words = random_words(seed, stream, static_cast<uint64_t>(block));
#pragma unroll
    for (int lane = 0; lane < 4; ++lane) {
      if (4 * block + lane < n) y.set(4 * block + lane, unit_float(words[lane]));
    }
  }
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Scale& op, const Request& request) {
  return map_kernel(request, [factor = op.factor] __device__(float x) { return factor * x; });
}

std::unique_ptr<Kernel> make_kernel(const Cast& op, const Request& request) {
  if (request.inputs.size() > 1) return list_kernel<1>(request);
  switch (request.inputs[0].dtype) {
    case DType::kF32:
    case DType::kBf16:
    case DType::kF16:
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
  return function_kernel(
      [&device = request.device, fill, n = request.outputs[0].shape.elements()](const Call& call) {
        map(device, call.stream, lanes_of(call), fill, n, result(call));
      });
}

std::unique_ptr<Kernel> make_kernel(const AddPairs&, const Request& request) {
  return list_kernel<2>(request);
}

std::unique_ptr<Kernel> make_kernel(const Dropout& op, const Request& request) {
  const int64_t n = request.inputs[0].shape.elements();
  const float factor = 1 / (1 - op.rate);
  // An element is dropped when its word is below this: rate * 2^32, at most 2^32 - 2^8 for any float below 1.
  const auto threshold = static_cast<uint32_t>(static_cast<double>(op.rate) * 0x1p32);
  return function_kernel([=, &device = request.device](const Call& call) {
    if (n == 0) return;
    const Reals x = operand(call, 0);
    const RealsOut y = result(call);
    const bool fours = aligned<4>(x) && aligned<4>(y);
    launch(fours ? drop<true> : drop<false>, blocks_for(device, ceil_div(n, 4)), kThreads, call.stream,
           op.seed, threshold, factor, n, x, call.in<int32_t>(1), y);
  });
}

std::unique_ptr<Kernel> make_kernel(const RandomUniform& op, const Request& request) {
  return function_kernel([seed = op.seed, n = op.shape.elements(), &device = request.device](const Call& call) {
    if (n == 0) return;
    launch(draw, blocks_for(device, ceil_div(n, 4)), kThreads, call.stream, seed, n, call.in<int32_t>(0),
           result(call));
  });
}

}  // namespace headroom::cuda
