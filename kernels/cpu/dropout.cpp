// Dropout whose mask is drawn again rather than kept: the gradient runs the same kernel on dy.
#include <algorithm>
#include <cmath>

#include "kernels/cpu/cpu_kernels.h"
#include "kernels/cpu/function_kernel.h"
#include "runtime/core/random.h"

namespace headroom::cpu {

std::unique_ptr<Kernel> make_kernel(const Dropout& op, Specs inputs, Specs) {
  const int64_t n = inputs[0].shape.elements();
  const float factor = 1 / (1 - op.rate);
  // An element is dropped when its word is below this: rate * 2^32, at most 2^32 - 2^8 for any float below 1.
  const auto threshold = static_cast<uint32_t>(static_cast<double>(op.rate) * 0x1p32);
  return function_kernel([=](const Call& call) {
    const float* x = call.in(0);
    float* y = call.out();
    // A negative step is none that a counter reaches, but still a stream of its own.
    const auto stream = static_cast<uint32_t>(*call.in<int32_t>(1));
    // Words go through a small buffer, so that Philox runs in vector registers.
    constexpr int64_t kBlocks = 64;
    uint32_t words[4 * kBlocks];
    for (int64_t begin = 0; begin < n; begin += 4 * kBlocks) {
      const int64_t first = begin / 4;
#pragma omp simd
      for (int64_t i = 0; i < kBlocks; ++i) {
        const PhiloxCounter drawn = random_words(op.seed, stream, static_cast<uint64_t>(first + i));
        words[4 * i] = drawn[0];
        words[4 * i + 1] = drawn[1];
        words[4 * i + 2] = drawn[2];
        words[4 * i + 3] = drawn[3];
      }
      const int64_t count = std::min(4 * kBlocks, n - begin);
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        y[begin + i] = words[i] < threshold ? 0 : x[begin + i] * factor;
      }
    }
  });
}

}  // namespace headroom::cpu
