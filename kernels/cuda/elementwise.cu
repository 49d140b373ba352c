// Scale, cast, fill and dropout.
#include <numeric>
#include <type_traits>

#include "kernels/cuda/multi_tensor.cuh"
#include "runtime/base/random.h"

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

// Elements that a thread converts of one tensor among several.
constexpr int kCastLanes = 8;

struct CastTensors {
  BlockRanges ranges;
  int64_t elements[BlockRanges::kMax];
  Reals from[BlockRanges::kMax];
  RealsOut to[BlockRanges::kMax];
  bool in_lanes[BlockRanges::kMax];
};

__global__ void cast_tensors(const __grid_constant__ CastTensors tensors) {
  const auto block = static_cast<int>(blockIdx.x);
  const int tensor = tensors.ranges.item_of(block);
  const int64_t n = tensors.elements[tensor];
  const int64_t turn = block - tensors.ranges.first_block[tensor];
  const int64_t at = kCastLanes * (turn * kThreads + threadIdx.x);
  const Reals from = tensors.from[tensor];
  const RealsOut to = tensors.to[tensor];
  if (tensors.in_lanes[tensor] && at + kCastLanes <= n) {
    const Lanes<float, kCastLanes> lanes = load<kCastLanes>(from + at);
    wait_for_earlier_work();
    store(to + at, lanes);
  } else {
    wait_for_earlier_work();
    for (int64_t i = at; i < min(n, at + kCastLanes); ++i) to.set(i, from[i]);
  }
}

void queue_casts(const Call& call) {
  CastTensors tensors;
  BlockRanges& ranges = tensors.ranges;
  const auto flush = [&] {
    if (ranges.blocks() > 0) launch(cast_tensors, ranges.blocks(), kThreads, call.stream, tensors);
    ranges = {};
  };
  for (size_t i = 0; i < call.inputs.size(); ++i) {
    const int64_t n = call.inputs[i].elements();
    if (n == 0) continue;
    const int item = ranges.count;
    tensors.elements[item] = n;
    tensors.from[item] = operand(call, i);
    tensors.to[item] = result(call, i);
    tensors.in_lanes[item] = aligned<kCastLanes>(tensors.from[item]) && aligned<kCastLanes>(tensors.to[item]);
    ranges.add(ceil_div(n, kCastLanes * kThreads));
    if (ranges.count == BlockRanges::kMax) flush();
  }
  flush();
}

// ---- dropout: the mask is drawn again rather than kept, and the numbers are the CPU's

// One thread for the four elements whose words one counter gives. y may be x.
template <bool kAligned>
__global__ void drop(uint64_t seed, uint32_t threshold, float factor, int64_t n, Reals x, const int32_t* step,
                     RealsOut y) {
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
        if (first + lane < n) y.set(first + lane, keep(lane, x[first + lane]));
      }
    }
  }
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Scale& op, const Request& request) {
  return map_kernel(request, [factor = op.factor] __device__(float x) { return factor * x; });
}

std::unique_ptr<Kernel> make_kernel(const Cast& op, const Request& request) {
  if (request.inputs.size() > 1) {
    std::vector<int> inputs(request.inputs.size());
    std::iota(inputs.begin(), inputs.end(), 0);
    return function_kernel(queue_casts, 0, starts_early(request.device, std::move(inputs)));
  }
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

}  // namespace headroom::cuda
