#include "tools/workload/search.h"

#include <algorithm>
#include <cmath>

namespace headroom {
namespace {

constexpr int64_t kSamples = 16;

int64_t sample(int64_t from, int64_t to, int64_t i) {
  return from + (to - from) / kSamples * i + (to - from) % kSamples * i / kSamples;
}

// The i-th of kFineSamples numbers from `from` (excluded) to `to`, at equal ratios.
constexpr int64_t kFineSamples = 32;
int64_t fine_sample(int64_t from, int64_t to, int64_t i) {
  const double first = static_cast<double>(std::max<int64_t>(from, 1));
  const double share = static_cast<double>(i) / static_cast<double>(kFineSamples);
  if (i == kFineSamples) return to;
  return static_cast<int64_t>(first * std::pow(static_cast<double>(to) / first, share));
}

}  // namespace

int64_t least_below(int64_t from, int64_t end, const Fits& fits) {
  int64_t fitting = from;
  for (int64_t i = 1; i <= kSamples; ++i) {
    const int64_t at = sample(from, end, i);
    if (at == fitting) continue;
    if (!fits(at)) return find_edge(fitting, at, fits);
    fitting = at;
  }
  return fitting;
}

std::optional<int64_t> first_above(int64_t from, int64_t end, const Fits& fits) {
  int64_t failing = from;
  for (int64_t step = 1; failing < end; step *= 2) {
    const int64_t at = from + std::min(step, end - from);
    if (fits(at)) return find_edge(at, failing, fits);
    failing = at;
  }
  return {};
}

int64_t largest_in(int64_t end, const Fits& fits) {
  int64_t found = 0;
  for (int64_t power = 1; power<end; power = power> end / 2 ? end : power * 2) {
    if (fits(power)) found = power;
  }
  for (int64_t before = -1; found != before;) {
    before = found;
    for (int64_t i = kFineSamples; i > 0; --i) {
      const int64_t at = fine_sample(found, end, i);
      if (at <= found || !fits(at)) continue;
      found = at;
      break;
    }
    // Up to the nearest that does not fit; the next round samples behind it.
    const std::optional<int64_t> failing =
        first_above(found, end, [&](int64_t number) { return !fits(number); });
    if (!failing) return end;
    found = *failing - 1;
  }
  return found;
}

}  // namespace headroom
