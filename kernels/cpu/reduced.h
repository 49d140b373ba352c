// Results of a reduction while its terms arrive row by row. Knows no op but Reduce.
#pragma once

#include <algorithm>
#include <array>
#include <limits>
#include <span>

#include "kernels/cpu/sums.h"
#include "kernels/loop_nest.h"
#include "ops/statistics.h"

namespace headroom::cpu {

// Returns the strides of the result of reducing x over `axes`, as a shape of equal rank.
inline Strides reduced_strides(const Shape& x, std::span<const int> axes) {
  Shape kept = x;
  for (int axis : axes) kept = kept.with(axis, 1);
  Strides strides = strides_of(kept);
  for (int axis : axes) strides[static_cast<size_t>(axis)] = 0;
  return strides;
}

// Sums are kept in double, in the workspace.
class Reduction {
 public:
  Reduction(ReduceKind kind, int64_t terms, int64_t results)
      : is_max_(kind == ReduceKind::kMax),
        results_(results),
        factor_(kind == ReduceKind::kMean ? static_cast<double>(results) / static_cast<double>(terms) : 1) {}

  int64_t workspace_bytes() const { return is_max_ ? 0 : results_ * static_cast<int64_t>(sizeof(double)); }
  void begin(void* workspace, float* y) {
    y_ = y;
    sums_ = static_cast<double*>(workspace);
    is_max_ ? (void)std::fill_n(y_, results_, -std::numeric_limits<float>::infinity())
            : (void)std::fill_n(sums_, results_, 0.0);
  }
  // Adds n terms: all to the result at `at`, or each to one of the results from there on.
  void add(int64_t at, const float* terms, int64_t n, bool into_one) {
    if (!is_max_) return into_one ? (void)(sums_[at] += sum(terms, n)) : add_to(sums_ + at, terms, n);
    float* const y = y_ + at;
    if (into_one) {
      *y = larger(*y, largest(terms, n));
      return;
    }
#pragma omp simd
    for (int64_t i = 0; i < n; ++i) y[i] = larger(y[i], terms[i]);
  }
  void finish() const {
    if (is_max_) return;
    for (int64_t i = 0; i < results_; ++i) y_[i] = static_cast<float>(sums_[i] * factor_);
  }

 private:
  // Lanes of their own, which a compiler keeps in one vector.
  static float largest(const float* terms, int64_t n) {
    constexpr int64_t kLanes = 16;
    std::array<float, kLanes> lanes;
    lanes.fill(-std::numeric_limits<float>::infinity());
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) {
      for (int64_t lane = 0; lane < kLanes; ++lane) {
        auto& best = lanes[static_cast<size_t>(lane)];
        best = larger(best, terms[i + lane]);
      }
    }
    for (; i < n; ++i) lanes[0] = larger(lanes[0], terms[i]);
    float result = lanes[0];
    for (const float lane : lanes) result = larger(result, lane);
    return result;
  }
  // The larger of two; NaN if either is.
  static float larger(float a, float b) {
    const bool first = (a >= b) | (a != a);
    return first ? a : b;
  }

  const bool is_max_;
  const int64_t results_;
  const double factor_;
  double* sums_ = nullptr;
  float* y_ = nullptr;
};

}  // namespace headroom::cpu
