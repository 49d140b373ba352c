// Searches for the edge between numbers that fit and numbers that do not. Does not know what they count.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>

namespace headroom {

using Fits = std::function<bool(int64_t)>;

// Bisects between a number that fits and one that does not, in either order, and returns the number at the
// edge that fits.
inline int64_t find_edge(int64_t fitting, int64_t failing, const Fits& fits) {
  while (std::abs(fitting - failing) > 1) {
    const int64_t middle = fitting + (failing - fitting) / 2;
    (fits(middle) ? fitting : failing) = middle;
  }
  return fitting;
}

// Goes down from `from`, which fits, towards `end`, which need not: returns the least number such that no
// sample between it and `from` fails. Misses a failure between two samples.
int64_t least_below(int64_t from, int64_t end, const Fits& fits);

// Returns a number in (`from`, `end`] that fits and whose lower neighbour does not, found by growing steps;
// nothing when no step fits. `from` itself must not fit.
std::optional<int64_t> first_above(int64_t from, int64_t end, const Fits& fits);

// Returns the largest number found in [1, end] that fits; 0 when none does. Fitting need not be monotonic:
// tries all powers of two below `end`, bisects above the largest that fits, and goes on from samples above
// that. `end` must be a number that certainly does not fit, or the largest to try.
int64_t largest_in(int64_t end, const Fits& fits);

}  // namespace headroom
