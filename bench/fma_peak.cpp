#include "bench/fma_peak.h"

#include <algorithm>
#include <chrono>

#include "kernels/cpu/simd.h"

namespace headroom::bench {

double fma_peak_gflops() {
  using cpu::kLanes, cpu::Vec;
  // Enough chains to hide the latency of a multiply-add (4 to 5 cycles) on two units, and few enough for 16
  // registers.
  constexpr int kChains = 12;
  constexpr int64_t kRounds = 1'000'000;
  double best = 0;
  for (int run = 0; run < 10; ++run) {
    Vec sums[kChains];  // all different, or the compiler would keep one
    for (int c = 0; c < kChains; ++c) sums[c] = Vec{} + static_cast<float>(c);
    Vec factor = Vec{} + 0.999f, term = Vec{} + 0.001f;
    const auto start = std::chrono::steady_clock::now();
    for (int64_t i = 0; i < kRounds; ++i) {
      asm volatile("" : "+v"(factor), "+v"(term));
#pragma GCC unroll 12
      for (int c = 0; c < kChains; ++c) sums[c] = sums[c] * factor + term;
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    for (Vec& sum : sums) asm volatile("" : "+v"(sum));
    best = std::max(best, 2.0 * kLanes * kChains * static_cast<double>(kRounds) / seconds / 1e9);
  }
  return best;
}

}  // namespace headroom::bench
