// Narrows the gap between a capacity that is too small and one that suffices, with a limited number of
// trials: each replays a trace or walks a plan, so a search of a long one would take minutes. Does not know
// what the numbers count.
#pragma once

#include <algorithm>
#include <cstdint>

namespace headroom {

// How many events all trials of one search play: a few seconds. Traces of up to 60,000 events have as many
// trials as a search needs.
inline constexpr int64_t kMaxSearchedEvents = 4'000'000;
inline constexpr int64_t kUnlimitedTrials = 64;

// The number of trials of a search with this many events: at least two, one that fits and one below.
inline int64_t trials_for(int64_t events) {
  return std::max<int64_t>(2, kMaxSearchedEvents / std::max<int64_t>(1, events));
}

struct CapacityTrial {
  bool fits = false;
  int64_t enough = 0;  // a capacity that is enough by what was taken; 0: unknown
};

struct CapacityGap {
  int64_t failing = 0, fitting = 0;
  bool is_closed() const { return fitting - failing <= 1; }
};

// Bisects until the gap is closed or `trials` are used up. With few trials, tries first what the trials
// before have taken, `enough` if it is not 0: most strategies fit there. `attempt(capacity)` returns a
// CapacityTrial.
template <typename Attempt>
CapacityGap narrow(CapacityGap gap, int64_t enough, int64_t trials, const Attempt& attempt) {
  const bool is_limited = trials < kUnlimitedTrials;
  for (; !gap.is_closed() && (trials > 0 || !is_limited); --trials) {
    int64_t middle = gap.failing + (gap.fitting - gap.failing) / 2;
    if (is_limited && gap.failing < enough && enough < gap.fitting) middle = enough;
    const CapacityTrial trial = attempt(middle);
    (trial.fits ? gap.fitting : gap.failing) = middle;
    if (trial.fits) enough = trial.enough;
  }
  return gap;
}

}  // namespace headroom
