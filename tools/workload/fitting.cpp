#include "tools/workload/fitting.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <map>

#include "base/bytes.h"
#include "base/edge.h"
#include "base/errors.h"

namespace headroom {
namespace {

// The options with `images` images for each replica.
WorkloadOptions with_share(WorkloadOptions options, int64_t images) {
  options.step.batch = images * options.replicas.replicas;
  return options;
}

// Predictions by batch, each made once. Counts batches in images of a replica.
class Batches {
 public:
  Batches(const WorkloadOptions& options, const FitSettings& settings)
      : options_(options), settings_(settings), setting_(setup_to_fit(options.runtime)) {}

  const RunSetup& setup() const { return setting_; }
  size_t planned() const { return known_.size(); }
  bool is_known(int64_t images) const { return known_.contains(images); }
  // Each batch under a budget is a search of its own for its plan, which may take many seconds.
  SearchWork work() const {
    constexpr int64_t kMostPlanned = 24;
    return {.each = options_.runtime.memory_bytes ? kMaxSearchedEvents / kMostPlanned : 1};
  }
  bool fits(int64_t images) {
    if (!known_.contains(images)) note(images, traced(images));
    return known_.at(images);
  }
  // The first of three powers of two in a row that are too large, at most `most`; `most` if there is none.
  int64_t end(int64_t most) {
    constexpr int kInARow = 3;
    int64_t first = most;
    int count = 0;
    for (int64_t images = 1; images < most && count<kInARow; images = images> most / 2 ? most : 2 * images) {
      if (!is_too_large(images)) {
        count = 0;
        first = most;
      } else if (count++ == 0) {
        first = images;
      }
    }
    return first;
  }

 private:
  // Whether variables and live results alone exceed a device. Notes what fits, too: making a large net takes
  // longer than playing it.
  bool is_too_large(int64_t images) {
    try {
      const Traced program = traced(images);
      note(images, program);
      return headroom::is_too_large(program, setting_, settings_.margin_bytes);
    } catch (const InvalidArgument&) {
      return true;  // more elements than can be counted
    }
  }

  Traced traced(int64_t images) const {
    const WorkloadOptions options = with_share(options_, images);
    if (settings_.on_batch) settings_.on_batch(options.step.batch);
    return trace_of(options);
  }

  void note(int64_t images, const Traced& program) {
    known_[images] = headroom::fits(program, setting_, settings_.margin_bytes);
  }

  const WorkloadOptions& options_;
  const FitSettings& settings_;
  const RunSetup setting_;
  std::map<int64_t, bool> known_;
};

// The options with the margin held by other processes, so that real runs do without it.
WorkloadOptions without_margin(WorkloadOptions options, const RunSetup& setup, int64_t margin_bytes) {
  options.runtime = with_more_held(options.runtime, setup.gpus, margin_bytes);
  return options;
}

// Runs the size; true when it ran, or could not be tried.
bool is_taken(FitResult& result, const WorkloadOptions& options, const RunElsewhere& run) {
  const std::optional<Measurement> measured = run(options);
  if (!measured) return true;
  result.trials.push_back({result.batch, result.device_bytes, *measured});
  return result.verified = measured->outcome == RunOutcome::kOk;
}

// Nobody holds the margin: what fails is what a run without it would meet.
std::string reason_of(int64_t batch, const Prediction& with_margin, int64_t margin_bytes,
                      const std::function<Prediction()>& predict_without) {
  if (margin_bytes == 0) return fmt::format("batch {}: {}", batch, with_margin.reason);
  const Prediction without = predict_without();
  return without.fits ? lacks_margin_text(fmt::format("batch {}", batch), margin_bytes)
                      : fmt::format("batch {}: {}", batch, without.reason);
}

}  // namespace

std::string lacks_margin_text(std::string_view what, int64_t margin_bytes) {
  return fmt::format("{} would leave less than {} free", what, format_bytes(margin_bytes));
}

std::string why_not_text(int64_t margin_bytes, std::string_view more_or_less, std::string_view reason) {
  return fmt::format("{}why not {}: {}", margin_bytes > 0 ? format_bytes(margin_bytes) + " kept free; " : "",
                     more_or_less, reason);
}

RuntimeOptions with_device_memory(RuntimeOptions options, int64_t bytes) {
  options = with_named_profile(std::move(options));
  options.device_memory_bytes = bytes;
  return options;
}

FitResult fit_batch(const WorkloadOptions& options, const FitSettings& settings, const RunElsewhere& run) {
  Batches batches(options, settings);
  const RunSetup& setup = batches.setup();
  FitResult result;
  result.device_bytes = setup.device.total_bytes;
  RunSetup smaller = setup;
  for (PhysicalGpu& gpu : smaller.gpus.physical) {
    gpu.used_bytes = std::min(result.device_bytes, gpu.used_bytes + settings.margin_bytes);
  }
  const auto predict = [&](int64_t images, const RunSetup& there) {
    return headroom::predict(trace_of(with_share(options, images)), there);
  };
  const int64_t replicas = options.replicas.replicas;
  const int64_t most = std::max<int64_t>(settings.max_batch / replicas, 1);
  SearchWork work = batches.work();
  EdgeSearch search(work, [&](int64_t images) {
    const bool is_known = batches.is_known(images);
    return EdgeTrial{.fits = batches.fits(images), .work = is_known ? 1 : 0};
  });
  int64_t end = work.is_long ? most : batches.end(most), images = 0;
  Edge edge = search.largest(end);
  for (images = edge.fitting; images > 0; images = search.largest(end).fitting) {
    result.batch = images * replicas;
    if (is_taken(result, without_margin(with_share(options, images), setup, settings.margin_bytes), run)) {
      break;
    }
    end = images - std::max<int64_t>(images / 8, 1);
    if (end > 0) continue;
    images = 0;
    break;
  }
  result.batch = images * replicas;
  result.traced = trace_of(with_share(options, std::max<int64_t>(images, 1)));
  result.prediction = headroom::predict(result.traced, smaller);
  const auto reason = [&](int64_t failing) {
    return reason_of(failing * replicas, failing == 1 ? result.prediction : predict(failing, smaller),
                     settings.margin_bytes, [&] { return predict(failing, setup); });
  };
  if (images == edge.fitting && !edge.is_closed) {
    result.stopped_by =
        fmt::format("the search ended after {} batches; larger ones may fit", batches.planned());
  } else if (images == 0) {
    result.stopped_by = result.trials.empty() ? reason(1) : result.trials.back().measurement.error;
  } else if (images == most) {
    result.stopped_by = "--most is the largest batch to try";
  } else if (!result.trials.empty() && result.trials.front().batch != result.batch) {
    result.stopped_by =
        fmt::format("batch {} failed when it was run{}: {}", result.trials.front().batch,
                    settings.margin_bytes > 0
                        ? fmt::format(" beside the {} that stay free", format_bytes(settings.margin_bytes))
                        : "",
                    result.trials.front().measurement.error);
  } else {
    result.stopped_by = reason(images + 1);
  }
  return result;
}

FitResult fit_memory(const WorkloadOptions& options, const FitSettings& settings, const RunElsewhere& run) {
  RunSetup setup = setup_to_fit(options.runtime);
  FitResult result;
  result.batch = options.step.batch;
  result.traced = trace_of(options);
  const Traced& program = result.traced;
  if (program.refusal) {
    result.stopped_by = program.refusal->what();
    return result;
  }
  // The step is planned for its budget. A device with less than that is none that refuses it.
  setup.options.memory_bytes.reset();
  const std::optional<int64_t> least = least_total_bytes(program, setup);
  if (!least) {
    result.prediction = predict(program, setup);
    result.stopped_by = result.prediction.reason;
    return result;
  }
  const int64_t page = setup.device.granularity_bytes;
  int64_t total = *least;
  constexpr int kTries = 8;
  for (int i = 0; i < kTries; ++i, total += round_up(total / 64, page)) {
    result.device_bytes = total + settings.margin_bytes;
    WorkloadOptions smaller = without_margin(options, setup, settings.margin_bytes);
    smaller.runtime = with_device_memory(smaller.runtime, result.device_bytes);
    lower_memory_to_free(smaller.runtime);
    if (is_taken(result, smaller, run)) break;
  }
  setup.device.total_bytes = total;
  RunSetup there = setup;  // with the budget, as it is run
  if (options.runtime.memory_bytes)
    there.options.memory_bytes = std::min(*options.runtime.memory_bytes, free_bytes(there));
  result.prediction = predict(program, there);
  if (!result.trials.empty() && !result.verified) {
    result.device_bytes = 0;
    result.stopped_by = result.trials.back().measurement.error;
    return result;
  }
  if (settings.margin_bytes > 0) {
    result.stopped_by = lacks_margin_text(format_bytes(page) + " less", settings.margin_bytes);
    return result;
  }
  setup.device.total_bytes = total - page;
  try {
    result.stopped_by = fmt::format("with {} less: {}", format_bytes(page), predict(program, setup).reason);
  } catch (const InvalidArgument& error) {  // virtual devices' limits are together above that
    result.stopped_by = fmt::format("with {} less: {}", format_bytes(page), error.what());
  }
  return result;
}

}  // namespace headroom
