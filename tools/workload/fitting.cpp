#include "tools/workload/fitting.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "answers/predict.h"
#include "base/bytes.h"
#include "base/errors.h"

namespace headroom {
namespace {

class NetWorkload final : public Workload {
 public:
  NetWorkload(const WorkloadOptions& options, const FitSettings& settings)
      : options_(options), settings_(settings) {}
  Traced trace(int64_t batch) override {
    if (settings_.on_batch) settings_.on_batch(batch);
    options_.step.batch = batch;
    return trace_of(options_);
  }
  // Under a budget each batch is a search of its own for its plan, which may take many seconds.
  SearchWork work() const override {
    constexpr int64_t kMostPlanned = 24;
    return {.each = options_.runtime.memory_bytes ? kMaxSearchedEvents / kMostPlanned : 1};
  }

 private:
  WorkloadOptions options_;
  const FitSettings& settings_;
};

// Runs the net while others hold the margin; true when it ran, or could not be tried.
bool is_taken(FitResult& result, WorkloadOptions options, const RunSetup& setup, int64_t margin_bytes,
              const RunElsewhere& run) {
  options.runtime = with_more_held(options.runtime, setup.gpus, margin_bytes);
  const std::optional<Measurement> measured = run(options, result.program);
  if (!measured) return true;
  result.runs.push_back({options.step.batch, result.device_bytes, *measured});
  return result.verified = measured->outcome == RunOutcome::kOk;
}

}  // namespace

RuntimeOptions with_device_memory(RuntimeOptions options, int64_t bytes) {
  options = with_named_profile(std::move(options));
  options.device_memory_bytes = bytes;
  return options;
}

FitResult fit_batch(const WorkloadOptions& options, const FitSettings& settings, const RunElsewhere& run) {
  const RunSetup setup = setup_to_fit(options.runtime);
  const int64_t unit = options.replicas.replicas, margin = settings.margin_bytes;
  NetWorkload net(options, settings);
  BatchSearch search(net, setup, margin, unit);
  FitResult result;
  for (int64_t most = settings.max_batch; most > 0;) {
    Fit found = search.largest(most);
    found.device_bytes = setup.device.total_bytes;
    if (!result.runs.empty()) found.stopped_by = result.stopped_by;
    static_cast<Fit&>(result) = found;
    if (found.batch == 0) break;
    WorkloadOptions tried = options;
    tried.step.batch = found.batch;
    if (is_taken(result, tried, setup, margin, run)) break;
    const FitRun& first = result.runs.front();
    result.stopped_by =
        fmt::format("batch {} failed when it was run{}: {}", first.batch,
                    margin > 0 ? fmt::format(" beside the {} that stay free", format_bytes(margin)) : "",
                    first.measurement.error);
    most = found.batch - std::max(unit, found.batch / 8 / unit * unit);
    result.batch = 0;
  }
  result.fits = result.batch > 0;
  if (!result.fits && !result.runs.empty()) result.stopped_by = result.runs.back().measurement.error;
  return result;
}

FitResult fit_memory(const WorkloadOptions& options, const FitSettings& settings, const RunElsewhere& run) {
  const RunSetup setup = setup_to_fit(options.runtime);
  FitResult result;
  result.batch = options.step.batch;
  result.program = trace_of(options);
  if (result.program.refusal) {
    result.stopped_by = result.program.refusal->what();
    return result;
  }
  const Fit found = fit_memory(result.program, setup, settings.margin_bytes);
  result.prediction = found.prediction;
  result.stopped_by = found.stopped_by;
  if (found.device_bytes == 0) return result;
  int64_t total = found.device_bytes - settings.margin_bytes;
  bool runs = false;
  constexpr int kTries = 8;
  for (int i = 0; i < kTries && !runs; ++i) {
    if (i > 0) total += round_up(total / 64, setup.device.granularity_bytes);
    result.device_bytes = total + settings.margin_bytes;
    WorkloadOptions smaller = options;
    smaller.runtime = with_device_memory(smaller.runtime, result.device_bytes);
    lower_memory_to_free(smaller.runtime);
    runs = is_taken(result, smaller, setup, settings.margin_bytes, run);
  }
  result.prediction = outcome(result.program, with_total(setup, total));
  result.fits = runs;
  if (!runs) {
    result.device_bytes = 0;
    result.stopped_by = result.runs.back().measurement.error;
  }
  return result;
}

}  // namespace headroom
