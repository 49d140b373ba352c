// Scale, cast, dropout and random numbers.
//
// Loops are marked `omp simd` (a promise about the loop, not OpenMP threads): in place, input and output are
// the same memory, which the compiler's own overlap check would send to the scalar loop.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "base/random.h"
#include "kernels/cpu/cpu_kernels.h"

namespace headroom::cpu {
namespace {

template <typename To, typename From>
To convert(From value) {
  if constexpr (std::is_same_v<To, float> || std::is_same_v<To, From> || std::is_same_v<From, uint8_t>) {
    return static_cast<To>(value);
  } else {
    // Both limits are powers of two or zero, so exact in every type; the upper one is the first value beyond.
    constexpr int64_t kLowest = std::numeric_limits<To>::lowest();
    constexpr int64_t kBeyond = int64_t{std::numeric_limits<To>::max()} + 1;
    using Limit = std::conditional_t<std::is_same_v<From, float>, float, int64_t>;
    const Limit wide = value;
    if (wide != wide) return 0;
    if (wide >= static_cast<Limit>(kBeyond)) return std::numeric_limits<To>::max();
    if (wide <= static_cast<Limit>(kLowest)) return std::numeric_limits<To>::lowest();
    return static_cast<To>(wide);
  }
}

template <typename From, typename To>
std::unique_ptr<Kernel> make_cast() {
  return function_kernel([](const Call& call) {
    for (size_t tensor = 0; tensor < call.inputs.size(); ++tensor) {
      const From* x = call.in<From>(tensor);
      To* y = call.out<To>(tensor);
      const int64_t n = call.inputs[tensor].elements();
#pragma omp simd
      for (int64_t i = 0; i < n; ++i) y[i] = convert<To>(x[i]);
    }
  });
}

template <typename From>
std::unique_ptr<Kernel> make_cast_from(DType to) {
  switch (to) {
    case DType::kF32:
      return make_cast<From, float>();
    case DType::kI32:
      return make_cast<From, int32_t>();
    case DType::kU8:
      return make_cast<From, uint8_t>();
    case DType::kBf16:
    case DType::kF16:
      break;  // see half_kernel.h
  }
  return nullptr;
}

// ---- dropout: the mask is drawn again rather than kept, so that the gradient runs the same kernel on dy

// Elements whose words are drawn together: four from each of 64 counters.
constexpr int64_t kCounters = 64;
constexpr int64_t kBlockElements = 4 * kCounters;

// random_words of the blocks [first, first + kCounters), round by round over all of them: in this order the
// compiler keeps the counters in vector registers.
void draw(uint64_t seed, uint32_t stream, uint64_t first, uint32_t* words) {
  uint32_t word0[kCounters], word1[kCounters], word2[kCounters], word3[kCounters];
  for (size_t i = 0; i < kCounters; ++i) {
    word0[i] = static_cast<uint32_t>(first + i);
    word1[i] = static_cast<uint32_t>((first + i) >> 32);
    word2[i] = stream;
    word3[i] = 0;
  }
  PhiloxKey key = {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)};
  for (int round = 0; round < kPhiloxRounds; ++round) {
#pragma omp simd
    for (size_t i = 0; i < kCounters; ++i) philox_round(word0[i], word1[i], word2[i], word3[i], key);
    key = next_key(key);
  }
  for (size_t i = 0; i < kCounters; ++i) {
    words[4 * i] = word0[i];
    words[4 * i + 1] = word1[i];
    words[4 * i + 2] = word2[i];
    words[4 * i + 3] = word3[i];
  }
}

}  // namespace

std::unique_ptr<Kernel> make_kernel(const Scale& op, const Request& request) {
  return function_kernel([factor = op.factor, n = request.inputs[0].shape.elements()](const Call& call) {
    const float* x = call.in(0);
    float* y = call.out();
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = factor * x[i];
  });
}

std::unique_ptr<Kernel> make_kernel(const Cast& op, const Request& request) {
  switch (request.inputs[0].dtype) {
    case DType::kF32:
      return make_cast_from<float>(op.to);
    case DType::kI32:
      return make_cast_from<int32_t>(op.to);
    case DType::kU8:
      return make_cast_from<uint8_t>(op.to);
    case DType::kBf16:
    case DType::kF16:
      break;  // see half_kernel.h
  }
  return nullptr;
}

std::unique_ptr<Kernel> make_kernel(const AddPairs&, const Request&) {
  return function_kernel([](const Call& call) {
    const size_t pairs = call.outputs.size();
    for (size_t pair = 0; pair < pairs; ++pair) {
      const float *x = call.in(pair), *y = call.in(pairs + pair);
      float* sum = call.out(pair);
#pragma omp simd
      for (int64_t i = 0; i < call.outputs[pair].elements(); ++i) sum[i] = x[i] + y[i];
    }
  });
}

std::unique_ptr<Kernel> make_kernel(const Dropout& op, const Request& request) {
  const int64_t n = request.inputs[0].shape.elements();
  const float factor = 1 / (1 - op.rate);
  // An element is dropped when its word is below this: rate * 2^32, at most 2^32 - 2^8 for any float below 1.
  const auto threshold = static_cast<uint32_t>(static_cast<double>(op.rate) * 0x1p32);
  return function_kernel([=](const Call& call) {
    const float* x = call.in(0);
    float* y = call.out();
    // No counter reaches a negative step, but it is still a stream of its own.
    const auto stream = static_cast<uint32_t>(*call.in<int32_t>(1));
    uint32_t words[kBlockElements];
    for (int64_t begin = 0; begin < n; begin += kBlockElements) {
      draw(op.seed, stream, static_cast<uint64_t>(begin / 4), words);
      const int64_t count = std::min(kBlockElements, n - begin);
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        const float kept = x[begin + i] * factor;
        y[begin + i] = words[i] < threshold ? 0 : kept;
      }
    }
  });
}

std::unique_ptr<Kernel> make_kernel(const RandomUniform& op, const Request&) {
  return function_kernel([seed = op.seed, n = op.shape.elements()](const Call& call) {
    float* y = call.out();
    const auto stream = static_cast<uint32_t>(*call.in<int32_t>(0));
    uint32_t words[kBlockElements];
    for (int64_t begin = 0; begin < n; begin += kBlockElements) {
      draw(seed, stream, static_cast<uint64_t>(begin / 4), words);
      const int64_t count = std::min(kBlockElements, n - begin);
      for (int64_t i = 0; i < count; ++i) y[begin + i] = unit_float(words[i]);
    }
  });
}

}  // namespace headroom::cpu
