// Sums of floats in double: exact enough for any tensor, and vectorized as fast as memory.
#pragma once

#include <cstdint>

namespace headroom::cpu {

// The sum of n numbers.
inline double sum(const float* x, int64_t n) {
  double total = 0;
#pragma omp simd reduction(+ : total)
  for (int64_t i = 0; i < n; ++i) total += static_cast<double>(x[i]);
  return total;
}

// sums[i] += x[i]
inline void add_to(double* sums, const float* x, int64_t n) {
#pragma omp simd
  for (int64_t i = 0; i < n; ++i) sums[i] += static_cast<double>(x[i]);
}

}  // namespace headroom::cpu
