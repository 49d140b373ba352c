// Searches for the edge between numbers that fit and numbers that do not, within a bound of work. Does not
// know the meaning of the numbers or of a trial.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

namespace headroom {

// Events that all trials of one search may play: a few seconds.
inline constexpr int64_t kMaxSearchedEvents = 4'000'000;

// The work that searches may still do; several searches may share it.
struct SearchWork {
  static constexpr int64_t kTrials = 64;  // a search that is not bounded needs about as many

  int64_t each = 1;  // work of a trial that states none
  int64_t left = kMaxSearchedEvents;
  // Too much for as many trials: then guesses come first, steps are larger, and nothing is sampled.
  bool is_long = left / kTrials < each;

  bool is_spent() const { return left < each; }
};

struct EdgeTrial {
  bool fits = false;
  std::optional<int64_t> guess = {};      // at the edge, by what this trial took
  std::optional<int64_t> same_from = {};  // from there to this number all trials go the same way
  int64_t work = 0;                       // 0: as SearchWork says
};

// A number that fits, and one beyond it that does not. Neighbors, unless the work was spent before.
struct Edge {
  int64_t fitting = 0, failing = 0;
  bool is_closed = false;
};

// Each search makes at least one trial besides those that bracket the edge, and ends when the work is spent.
class EdgeSearch {
 public:
  using Attempt = std::function<EdgeTrial(int64_t number)>;

  // Tries numbers that are `unit` apart. `work` must outlive this.
  EdgeSearch(SearchWork& work, Attempt attempt, int64_t unit = 1)
      : work_(work), attempt_(std::move(attempt)), unit_(unit) {}

  // Tries the number, unless earlier trials decide it.
  bool fits(int64_t number);
  // Adds a trial that was made elsewhere.
  void add(int64_t number, const EdgeTrial& trial);

  // Between a number that fits and one that does not, in either order.
  Edge between(int64_t fitting, int64_t failing) { return narrow(fitting, failing, 0); }
  // Returns the edge above `failing`, found by growing steps; nullopt if no step up to `most` fits. Tries
  // `most` at once if the work is spent. `step`: the first one; 0: a unit.
  std::optional<Edge> above(int64_t failing, int64_t most, int64_t step = 0);
  // Returns the edge next to `from`: below it if `from` fits, with no failing sample between them, and not
  // below `lowest`; otherwise above it.
  std::optional<Edge> next_to(int64_t from, int64_t lowest, int64_t most);
  // Returns the edge above `fitting`, by guesses; doubles if there are none. Failing is above `most` if that
  // fits.
  Edge highest(int64_t fitting, int64_t most);
  // Returns the edge above the largest number in [1, end] found to fit, or above 0. Fitting need not be
  // monotonic: tries all powers of two, and continues from samples above the largest that fits. Long work
  // stops at the first power that fails.
  Edge largest(int64_t end);

 private:
  Edge narrow(int64_t fitting, int64_t failing, int tries);
  Edge below(int64_t fitting, int64_t lowest);
  bool is_closed(int64_t fitting, int64_t failing) const;

  SearchWork& work_;
  const Attempt attempt_;
  const int64_t unit_;
  EdgeTrial known_;
  int64_t known_to_ = 0;
  std::optional<int64_t> guess_;
};

}  // namespace headroom
