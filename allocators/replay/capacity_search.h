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

// Capacities at which a trial is known to go like one that fitted: where nothing was refused, everything is
// granted alike on all smaller ones that are enough.
class KnownTrials {
 public:
  // Of a trial that fitted; `least` is the smallest capacity at which it goes alike, 0 if that is unknown.
  void add(int64_t capacity, int64_t least, const CapacityTrial& trial) {
    if (least <= 0) return;
    least_ = least;
    most_ = capacity;
    trial_ = trial;
  }
  // Null where nothing is known.
  const CapacityTrial* find(int64_t capacity) const {
    return least_ <= capacity && capacity <= most_ ? &trial_ : nullptr;
  }

 private:
  int64_t least_ = 1, most_ = 0;
  CapacityTrial trial_;
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
