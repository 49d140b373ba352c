#include "tools/workload/fitting.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "runtime/core/bytes.h"
#include "runtime/core/errors.h"
#include "tools/workload/search.h"

namespace headroom {
namespace {

WorkloadOptions with_batch(WorkloadOptions options, int64_t batch) {
  options.step.batch = batch;
  return options;
}

Predictor predictor_of(const WorkloadOptions& options) {
  return {make_program(options), options.runtime.plan_mode()};
}

// One program after the other, as predictions of each batch are asked for in any order and again.
class Batches {
 public:
  Batches(const WorkloadOptions& options, int64_t margin_bytes)
      : options_(options), margin_bytes_(margin_bytes), place_(place_of(options.runtime)) {}

  const Place& place() const { return place_; }
  bool fits(int64_t batch) {
    const auto found = known_.find(batch);
    if (found != known_.end()) return found->second;
    return known_[batch] = predictor_of(with_batch(options_, batch)).fits(place_, margin_bytes_);
  }
  // Whether variables and live results alone are more than the device can give.
  bool is_too_large(int64_t batch) const {
    const DeviceProfile& device = place_.profile;
    const int64_t capacity = device.total_bytes - device.others_bytes - device.context_bytes - margin_bytes_;
    try {
      return predictor_of(with_batch(options_, batch)).lower_bound_bytes() > capacity;
    } catch (const InvalidArgument&) {
      return true;  // more elements than can be counted
    }
  }
  // The first power of two, at most `most`, from which on three in a row are too large; `most` if none is.
  int64_t end(int64_t most) const {
    constexpr int kInARow = 3;
    int64_t first = most;
    int count = 0;
    for (int64_t batch = 1; batch < most && count<kInARow; batch = batch> most / 2 ? most : 2 * batch) {
      if (!is_too_large(batch)) {
        count = 0;
        first = most;
      } else if (count++ == 0) {
        first = batch;
      }
    }
    return first;
  }

 private:
  const WorkloadOptions& options_;
  const int64_t margin_bytes_;
  const Place place_;
  std::map<int64_t, bool> known_;
};

// The options with the margin held by others, as real runs have to do without it.
WorkloadOptions without_margin(WorkloadOptions options, const Place& place, int64_t margin_bytes) {
  if (margin_bytes > 0) options.runtime.others_bytes = place.profile.others_bytes + margin_bytes;
  return options;
}

// Runs the size; true when it is to be taken: because it ran, or because it could not be tried.
bool is_taken(FitResult& result, const WorkloadOptions& options, const RunElsewhere& run) {
  const std::optional<Measurement> measured = run(options);
  if (!measured) return true;
  result.trials.push_back({result.batch, result.device_bytes, *measured});
  return result.verified = measured->outcome == "ok";
}

}  // namespace

FitResult fit_batch(const WorkloadOptions& options, const FitSettings& settings, const RunElsewhere& run) {
  Batches batches(options, settings.margin_bytes);
  const Place& place = batches.place();
  const Fits fits = [&](int64_t batch) { return batches.fits(batch); };
  FitResult result;
  result.device_bytes = place.profile.total_bytes;
  Place smaller = place;
  smaller.profile.others_bytes =
      std::min(place.profile.total_bytes, place.profile.others_bytes + settings.margin_bytes);
  const auto predict = [&](int64_t batch) {
    return predictor_of(with_batch(options, batch)).predict(smaller);
  };
  int64_t end = batches.end(settings.most_batch);
  for (result.batch = largest_in(end, fits); result.batch > 0; result.batch = largest_in(end, fits)) {
    if (is_taken(result, without_margin(with_batch(options, result.batch), place, settings.margin_bytes),
                 run)) {
      break;
    }
    end = result.batch - std::max<int64_t>(result.batch / 8, 1);
    if (end > 0) continue;
    result.batch = 0;
    break;
  }
  result.prediction = predict(std::max<int64_t>(result.batch, 1));
  if (result.batch == 0) {
    result.stopped_by =
        result.trials.empty() ? result.prediction.reason : result.trials.back().measurement.error;
  } else if (result.batch == settings.most_batch) {
    result.stopped_by = "no larger batch was asked for";
  } else if (!result.trials.empty() && result.trials.front().batch != result.batch) {
    result.stopped_by = fmt::format("batch {} failed when it was run: {}", result.trials.front().batch,
                                    result.trials.front().measurement.error);
  } else {
    result.stopped_by = fmt::format("batch {}: {}", result.batch + 1, predict(result.batch + 1).reason);
  }
  return result;
}

FitResult fit_memory(const WorkloadOptions& options, const FitSettings& settings, const RunElsewhere& run) {
  const Place place = place_of(options.runtime);
  const Predictor predictor = predictor_of(options);
  FitResult result;
  result.batch = options.step.batch;
  const std::optional<int64_t> least = predictor.least_total_bytes(place);
  if (!least) {
    result.prediction = predictor.predict(place);
    result.stopped_by = result.prediction.reason;
    return result;
  }
  const int64_t page = place.profile.granularity_bytes;
  int64_t total = *least;
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i, total += round_up(total / 64, page)) {
    result.device_bytes = total + settings.margin_bytes;
    WorkloadOptions smaller = without_margin(options, place, settings.margin_bytes);
    smaller.runtime.device_memory_bytes = result.device_bytes;
    if (is_taken(result, smaller, run)) break;
  }
  Place at_least = place;
  at_least.profile.total_bytes = total;
  result.prediction = predictor.predict(at_least);
  if (!result.trials.empty() && !result.verified) {
    result.device_bytes = 0;
    result.stopped_by = result.trials.back().measurement.error;
    return result;
  }
  at_least.profile.total_bytes = total - page;
  result.stopped_by = fmt::format("with {} less: {}", format_bytes(page), predictor.predict(at_least).reason);
  return result;
}

}  // namespace headroom
