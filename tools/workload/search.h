// Searches for the edge between numbers that fit and numbers that do not. Knows nothing of what they count.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <functional>
#include <optional>

namespace headroom {

using Fits = std::function<bool(int64_t)>;

// From a number that fits and one that does not, in either order, to neighbours of which the returned one
// fits.
inline int64_t find_edge(int64_t fitting, int64_t failing, const Fits& fits) {
  while (std::abs(fitting - failing) > 1) {
    const int64_t middle = fitting + (failing - fitting) / 2;
    (fits(middle) ? fitting : failing) = middle;
  }
  return fitting;
}

// How far one can go down from `from`, which fits, towards `end`, which need not: the least number found such
// that no sample between it and `from` fails. A failure between two samples is missed.
int64_t least_below(int64_t from, int64_t end, const Fits& fits);

// The first number found above `from` that fits, at most `end`, of which its lower neighbour does not; `from`
// itself must not fit. Nothing when none of growing steps fits.
std::optional<int64_t> first_above(int64_t from, int64_t end, const Fits& fits);

// The largest number found in [1, end] that fits; 0 when none was found. Fitting need not be monotonic: all
// powers of two below `end` are tried, then what lies between the largest that fits and the next that does
// not, and then samples above, from which it goes on. `end` must be one that certainly fits no more, or the
// last that is wanted.
int64_t largest_in(int64_t end, const Fits& fits);

}  // namespace headroom
