#include "tools/workload/program_fitting.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "base/edge.h"
#include "base/text.h"
#include "tools/workload/fitting.h"
#include "tools/workload/recorded_setup.h"

namespace headroom {
namespace {

constexpr int64_t kMostTraces = 32;  // each may take a minute

// How far a batch is from the device: what it could have less, or lacks (negative).
int64_t spare_bytes(const TracedBatch& trial) {
  return trial.prediction.margin_bytes.value_or(INT64_MIN / 4);
}

// Where the line through two trials crosses zero.
int64_t crossing(const TracedBatch& a, const TracedBatch& b) {
  const auto step = static_cast<double>(b.batch - a.batch);
  const auto fall = static_cast<double>(spare_bytes(a)) - static_cast<double>(spare_bytes(b));
  if (!(fall > 0)) return INT64_MAX;
  const double at = static_cast<double>(a.batch) + step * static_cast<double>(spare_bytes(a)) / fall;
  return at >= 1e15 ? INT64_MAX : static_cast<int64_t>(at);
}

// The most that is live of what grows with the batch.
int64_t growing_bytes(const Trace& trace) {
  int64_t live = 0, most = 0;
  for (const TraceEvent& event : trace.events) {
    const MemoryCategory category = trace.block_facts[static_cast<size_t>(event.block)].category;
    if (category != MemoryCategory::kActivations && category != MemoryCategory::kInputs) continue;
    live += event.allocates ? event.bytes : -event.bytes;
    most = std::max(most, live);
  }
  return most;
}

// What to try after the first batch: a guess, from what that keeps of each sample.
int64_t second_batch(const TracedBatch& first) {
  constexpr int64_t kMostTimes = 64;
  if (first.growing_bytes <= 0) return 2 * first.batch;
  const int64_t more = std::max<int64_t>(spare_bytes(first), 0) / first.growing_bytes;
  return first.batch * std::clamp<int64_t>(1 + more, 2, kMostTimes);
}

class Search {
 public:
  Search(const TraceBatch& trace, const RunSetup& setup, int64_t margin_bytes)
      : trace_(trace), whole_(setup), setup_(setup), margin_bytes_(margin_bytes) {
    for (PhysicalGpu& gpu : setup_.gpus.physical) gpu.used_bytes += margin_bytes;
  }

  const TracedBatch& attempt(int64_t batch) {
    Trace trace = trace_(batch);
    TracedBatch trial;
    trial.batch = batch;
    trial.prediction = predict(traced_here(trace), setup_);
    trial.growing_bytes = growing_bytes(trace);
    if (!trial.prediction.fits) {
      explain(trial, trace);
      failing_ = std::move(trace);
      failing_lacks_margin_ = trial.lacks_margin;
    }
    return trials_.emplace_back(std::move(trial));
  }
  // With which the last batch that did not fit would.
  std::vector<TorchChange> changes(const TraceCheckpoints& trace_again) const {
    return failing_ && !failing_lacks_margin_ && is_of_torch(*failing_)
               ? find_torch_changes(*failing_, setup_, trace_again)
               : std::vector<TorchChange>();
  }
  std::vector<TracedBatch> take_trials() { return std::move(trials_); }

 private:
  // Nobody holds the margin: what fails is what a run without it would meet.
  void explain(TracedBatch& trial, const Trace& trace) const {
    const Prediction whole =
        margin_bytes_ > 0 ? outcome(traced_here(trace), whole_) : trial.prediction;
    trial.lacks_margin = whole.fits;
    trial.reason = whole.reason;
    if (whole.failed_event.value_or(0) > 0) {
      // The reason names op and line.
      const TraceEvent& failed = trace.events[static_cast<size_t>(*whole.failed_event - 1)];
      const int32_t module = trace.block_facts[static_cast<size_t>(failed.block)].module;
      trial.failed_in = printable(trace.names[static_cast<size_t>(module)]);
    }
  }

  const TraceBatch& trace_;
  const RunSetup whole_;
  RunSetup setup_;  // without the margin
  const int64_t margin_bytes_;
  std::vector<TracedBatch> trials_;
  std::optional<Trace> failing_;  // the last one
  bool failing_lacks_margin_ = false;
};

std::string reason_of(const TracedBatch& trial, int64_t margin_bytes) {
  if (trial.lacks_margin) return lacks_margin_text(fmt::format("batch {}", trial.batch), margin_bytes);
  return fmt::format("batch {}: {}{}", trial.batch, trial.reason,
                     trial.failed_in.empty() ? "" : ", in " + trial.failed_in);
}

}  // namespace

const TracedBatch& ProgramFit::best() const {
  const auto found = std::find_if(trials.begin(), trials.end(),
                                  [&](const TracedBatch& trial) { return trial.batch == batch; });
  return found == trials.end() ? trials.front() : *found;
}

ProgramFit fit_program(const TraceBatch& trace, const RunSetup& setup, int64_t margin_bytes,
                       int64_t max_batch, const CheckpointsOfBatch& trace_again) {
  Search search(trace, setup, margin_bytes);
  ProgramFit result;
  std::optional<TracedBatch> fitting, failing, before;  // `before`: the last one below the edge
  const auto guess = [&] {
    if (!fitting) return int64_t{0};
    if (failing) return std::clamp(crossing(*fitting, *failing), fitting->batch + 1, failing->batch - 1);
    // Small batches tell little of large ones.
    return before ? std::min(crossing(*before, *fitting), 16 * fitting->batch) : second_batch(*fitting);
  };
  SearchWork work{.each = kMaxSearchedEvents / kMostTraces};
  EdgeSearch batches(work, [&](int64_t batch) {
    const TracedBatch trial = search.attempt(batch);
    if (trial.prediction.fits) {
      before = std::exchange(fitting, trial);
    } else {
      failing = trial;
    }
    return EdgeTrial{.fits = trial.prediction.fits, .guess = guess()};
  });
  const bool is_whole = !batches.fits(1) || batches.highest(1, max_batch).is_closed;
  result.batch = fitting ? fitting->batch : 0;
  if (failing) {
    result.next_batch = failing->batch;
    result.changes = search.changes(trace_again ? trace_again(failing->batch) : TraceCheckpoints());
  }
  result.trials = search.take_trials();
  result.stopped_by = failing ? reason_of(*failing, margin_bytes) : "--most is the largest batch to try";
  if (!is_whole)
    result.stopped_by += fmt::format("; the search ended after {} batches", result.trials.size());
  return result;
}

}  // namespace headroom
