#include "tools/workload/fitting.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "answers/predict.h"
#include "base/bytes.h"
#include "base/errors.h"

namespace headroom {
namespace {

// Under a budget each batch is a search of its own for its plan, which may take many seconds.
constexpr int64_t kMostPlanned = 24;

// Runs the net while others hold the margin. Returns the failure, if it ran and failed.
std::optional<Measurement> find_failure(WorkloadOptions options, const Traced& program, const RunSetup& setup,
                                        int64_t margin_bytes, const RunElsewhere& run) {
  options.runtime = with_more_held(options.runtime, setup.gpus, margin_bytes);
  std::optional<Measurement> measured = run(options, program);
  if (measured && measured->outcome == RunOutcome::kOk) measured.reset();
  return measured;
}

}  // namespace

RuntimeOptions with_device_memory(RuntimeOptions options, int64_t bytes) {
  options = with_named_profile(std::move(options));
  options.device_memory_bytes = bytes;
  return options;
}

Fit fit_batch(const WorkloadOptions& options, int64_t margin, int64_t max_batch, const RunElsewhere& run,
              const std::function<void(int64_t batch)>& on_batch) {
  const RunSetup setup = setup_to_fit(options.runtime);
  const int64_t unit = options.replicas.replicas;
  WorkloadOptions tried = options;
  const auto net = [&](int64_t batch) {
    if (on_batch) on_batch(batch);
    tried.step.batch = batch;
    return trace_of(tried);
  };
  BatchSearch search(net, {.each = options.runtime.memory_bytes ? kMaxSearchedEvents / kMostPlanned : 1},
                     setup, margin, unit);
  Fit result;
  std::optional<Measurement> failure;
  std::string first_failure;
  for (int64_t most = max_batch; most > 0;) {
    result = search.largest(most);
    if (failure) result.stopped_by = first_failure;
    if (!result.fits) break;
    tried.step.batch = result.batch;
    const auto next_failure = find_failure(tried, result.program, setup, margin, run);
    if (!next_failure) return result;
    failure = next_failure;
    if (first_failure.empty()) {
      first_failure =
          fmt::format("batch {} failed when it was run{}: {}", result.batch,
                      margin > 0 ? fmt::format(" beside the {} that stay free", format_bytes(margin)) : "",
                      failure->error);
    }
    most = result.batch - std::max(unit, result.batch / 8 / unit * unit);
  }
  result.batch = 0;
  result.fits = false;
  if (failure) result.stopped_by = failure->error;
  return result;
}

Fit fit_memory(const WorkloadOptions& options, int64_t margin, const RunElsewhere& run) {
  const RunSetup setup = setup_to_fit(options.runtime);
  Fit result;
  result.batch = options.step.batch;
  result.program = trace_of(options);
  if (result.program.refusal) {
    result.stopped_by = result.program.refusal->what();
    return result;
  }
  const Fit found = fit_memory(result.program, setup, margin);
  result.prediction = found.prediction;
  result.stopped_by = found.stopped_by;
  if (found.device_bytes == 0) return result;
  int64_t total = found.device_bytes - margin;
  std::optional<Measurement> failure;
  constexpr int kTries = 8;
  for (int i = 0; i < kTries && (i == 0 || failure); ++i) {
    if (i > 0) total += round_up(total / 64, setup.device.granularity_bytes);
    result.device_bytes = total + margin;
    WorkloadOptions smaller = options;
    smaller.runtime = with_device_memory(smaller.runtime, result.device_bytes);
    lower_memory_to_free(smaller.runtime);
    failure = find_failure(smaller, result.program, setup, margin, run);
  }
  result.prediction = outcome(result.program, with_total(setup, total));
  result.fits = !failure;
  if (failure) {
    result.device_bytes = 0;
    result.stopped_by = failure->error;
  }
  return result;
}

}  // namespace headroom
