#include "base/edge.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>

namespace headroom {
namespace {

constexpr int64_t kSamples = 16, kFineSamples = 32;

int64_t sample(int64_t count, int64_t i) {
  return count / kSamples * i + count % kSamples * i / kSamples;
}

// The i-th of kFineSamples numbers from `from` (excluded) to `to`, at equal ratios.
int64_t fine_sample(int64_t from, int64_t to, int64_t i) {
  const double first = static_cast<double>(std::max<int64_t>(from, 1));
  const double share = static_cast<double>(i) / static_cast<double>(kFineSamples);
  if (i == kFineSamples) return to;
  return static_cast<int64_t>(first * std::pow(static_cast<double>(to) / first, share));
}

}  // namespace

bool EdgeSearch::fits(int64_t number) {
  if (known_.same_from && *known_.same_from <= number && number <= known_to_) {
    guess_ = known_.guess;
    return known_.fits;
  }
  const EdgeTrial trial = attempt_(number);
  work_.left -= trial.work > 0 ? trial.work : work_.each;
  add(number, trial);
  return trial.fits;
}

void EdgeSearch::add(int64_t number, const EdgeTrial& trial) {
  if (trial.guess) guess_ = trial.guess;
  if (!trial.same_from) return;
  known_ = trial;
  known_to_ = number;
}

bool EdgeSearch::is_closed(int64_t fitting, int64_t failing) const {
  return std::abs(failing - fitting) / unit_ <= 1;
}

Edge EdgeSearch::narrow(int64_t fitting, int64_t failing, int tries) {
  int64_t width = INT64_MAX;  // width of the gap two tries ago
  for (int made = 0; !is_closed(fitting, failing) && (made < 1 || !work_.is_spent()); ++made, ++tries) {
    const int64_t gap = std::abs(failing - fitting), units = (failing - fitting) / unit_;
    int64_t middle = fitting + units / 2 * unit_;
    if (work_.is_long && guess_ && (tries % 2 == 0 || gap <= width / 2)) {
      const int64_t step = (*guess_ - fitting) / unit_ * unit_;  // towards what fits
      const bool is_inside =
          units > 0 ? step > 0 && step < failing - fitting : step < 0 && step > failing - fitting;
      if (is_inside) middle = fitting + step;
    }
    if (tries % 2 == 1) width = gap;
    (fits(middle) ? fitting : failing) = middle;
  }
  return {fitting, failing, is_closed(fitting, failing)};
}

std::optional<Edge> EdgeSearch::above(int64_t failing, int64_t most, int64_t step) {
  const int64_t from = failing, room = (most - from) / unit_ * unit_;
  const int64_t growth = work_.is_long ? 4 : 2;
  for (step = std::max(step / unit_ * unit_, unit_); failing - from < room;) {
    const int64_t at = from + (work_.is_spent() ? room : std::min(step, room));
    if (fits(at)) return narrow(at, failing, 0);
    failing = at;
    step = step > room / growth ? room : step * growth;
  }
  return std::nullopt;
}

Edge EdgeSearch::below(int64_t fitting, int64_t lowest) {
  const int64_t from = fitting, units = (from - lowest) / unit_, failing = from - (units + 1) * unit_;
  if (work_.is_long) return narrow(fitting, failing, 0);
  for (int64_t i = 1; i <= kSamples && !work_.is_spent(); ++i) {
    const int64_t at = from - sample(units, i) * unit_;
    if (at == fitting) continue;
    if (!fits(at)) return narrow(fitting, at, 0);
    fitting = at;
  }
  return {fitting, failing, is_closed(fitting, failing)};
}

std::optional<Edge> EdgeSearch::next_to(int64_t from, int64_t lowest, int64_t most) {
  if (fits(from)) return below(from, lowest);
  from += std::max<int64_t>(0, (lowest - from) / unit_ - 1) * unit_;  // still below what can fit
  return above(from, most, work_.is_long ? 2 * std::max(from, lowest) - from : 0);
}

Edge EdgeSearch::highest(int64_t fitting, int64_t most) {
  int64_t step = unit_;
  const int64_t from = fitting;
  for (int tries = 0; fitting < most && !work_.is_spent(); ++tries) {
    const bool has_guess = work_.is_long && guess_;
    const int64_t next =
        std::clamp(has_guess ? *guess_ : from + std::min(step, most - from), fitting + unit_, most);
    if (!fits(next)) return narrow(fitting, next, tries + 1);
    fitting = next;
    step = std::min(2 * step, most - from);
  }
  return {fitting, most + unit_, fitting >= most};
}

Edge EdgeSearch::largest(int64_t end) {
  Edge found{0, 1, false};
  for (int64_t power = 1; power < end && !work_.is_spent(); power = power > end / 2 ? end : power * 2) {
    if (fits(power)) {
      found.fitting = power;
    } else if (work_.is_long) {
      return narrow(found.fitting, power, 0);
    }
  }
  if (work_.is_long) return fits(end) ? Edge{end, end + 1, true} : narrow(found.fitting, end, 0);
  for (int64_t before = -1; found.fitting != before && !work_.is_spent();) {
    before = found.fitting;
    for (int64_t i = kFineSamples; i > 0 && found.fitting == before && !work_.is_spent(); --i) {
      const int64_t at = fine_sample(before, end, i);
      if (at > before && fits(at)) found.fitting = at;
    }
    // Up to the nearest that does not fit; the next round samples above it.
    found = highest(found.fitting, end);
  }
  return found;
}

}  // namespace headroom
