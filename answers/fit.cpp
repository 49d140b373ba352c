#include "answers/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/bytes.h"
#include "base/edge.h"
#include "base/errors.h"
#include "base/text.h"

namespace headroom {
namespace {

constexpr int64_t kMostBatches = 32;  // each may take a minute

RunSetup with_held(RunSetup setup, int64_t bytes) {
  for (PhysicalGpu& gpu : setup.gpus.physical) {
    gpu.used_bytes = std::min(setup.device.total_bytes, gpu.used_bytes + bytes);
  }
  return setup;
}

// How far a batch is from the device: what it could have less, or lacks (negative).
int64_t spare_bytes(const TriedBatch& trial) {
  return trial.prediction.margin_bytes.value_or(INT64_MIN / 4);
}

// Where the line through two trials crosses zero.
int64_t crossing(const TriedBatch& a, const TriedBatch& b) {
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

// The module of the allocation without room; the reason names op and line.
std::string module_text(const Traced& program, const Prediction& prediction) {
  if (program.starts_libraries || prediction.failed_event.value_or(0) <= 0) return {};
  const Trace& trace = program.front();
  const TraceEvent& failed = trace.events[static_cast<size_t>(*prediction.failed_event - 1)];
  const int32_t module = trace.block_facts[static_cast<size_t>(failed.block)].module;
  return module == 0 ? "" : ", in " + printable(trace.names[static_cast<size_t>(module)]);
}

// The batch to try after the first: a guess, from what the first keeps of each sample.
int64_t second_batch(const TriedBatch& first) {
  constexpr int64_t kMostTimes = 64;
  if (first.growing_bytes <= 0) return 2 * first.batch;
  const int64_t more = std::max<int64_t>(spare_bytes(first), 0) / first.growing_bytes;
  return first.batch * std::clamp<int64_t>(1 + more, 2, kMostTimes);
}

}  // namespace

std::string lacks_margin_text(std::string_view what, int64_t margin_bytes) {
  return fmt::format("{} would leave less than {} free", what, format_bytes(margin_bytes));
}

BatchSearch::BatchSearch(Workload& workload, const RunSetup& setup, int64_t margin_bytes, int64_t unit)
    : workload_(workload),
      whole_(setup),
      setup_(with_held(setup, margin_bytes)),
      margin_bytes_(margin_bytes),
      unit_(unit) {}

TriedBatch BatchSearch::judge(int64_t batch, Traced program) {
  TriedBatch trial{.batch = batch};
  trial.prediction = predict(program, setup_);
  for (const TracedDevice& device : program.devices) {
    trial.growing_bytes = std::max(trial.growing_bytes, growing_bytes(*device.trace));
  }
  if (trial.prediction.fits) return trial;
  // Nobody holds the margin: the reason is what a run without it would meet.
  const Prediction whole = margin_bytes_ > 0 ? outcome(program, whole_) : trial.prediction;
  trial.lacks_margin = whole.fits;
  const std::string name = fmt::format("batch {}", batch);
  trial.reason = whole.fits ? lacks_margin_text(name, margin_bytes_)
                            : fmt::format("{}: {}{}", name, whole.reason, module_text(program, whole));
  failing_ = std::move(program);
  failing_batch_ = batch;
  return trial;
}

const TriedBatch& BatchSearch::attempt(int64_t batch) {
  if (const TriedBatch* known = find(batch)) return *known;
  try {
    trials_.push_back(judge(batch, workload_.trace(batch)));
  } catch (const InvalidArgument& error) {
    if (trials_.empty()) throw;
    trials_.push_back({.batch = batch, .reason = fmt::format("batch {}: {}", batch, error.what())});
  }
  return trials_.back();
}

BatchFit BatchSearch::largest(int64_t max_batch) {
  std::optional<TriedBatch> fitting, failing, before;  // `before`: the last one below the edge
  const auto guess = [&] {
    if (!fitting) return int64_t{0};
    if (failing) return std::clamp(crossing(*fitting, *failing), fitting->batch + unit_, failing->batch - unit_);
    // Small batches tell little of large ones.
    return before ? std::min(crossing(*before, *fitting), 16 * fitting->batch) : second_batch(*fitting);
  };
  SearchWork work{.each = kMaxSearchedEvents / kMostBatches};
  const auto attempt_batch = [&](int64_t batch) {
    const bool is_known = find(batch) != nullptr;
    const TriedBatch& trial = attempt(batch);
    if (trial.prediction.fits) {
      before = std::exchange(fitting, trial);
    } else {
      failing = trial;
    }
    return EdgeTrial{.fits = trial.prediction.fits, .guess = guess(), .work = is_known ? 1 : 0};
  };
  EdgeSearch batches(work, attempt_batch, unit_);
  const int64_t most = std::max<int64_t>(1, max_batch / unit_) * unit_;
  const bool is_whole = !batches.fits(unit_) || batches.highest(unit_, most).is_closed;
  BatchFit result;
  result.batch = fitting ? fitting->batch : 0;
  if (failing) {
    result.next_batch = failing->batch;
    if (!failing->lacks_margin && failing->batch == failing_batch_) result.next = failing_;
  }
  result.stopped_by = failing ? failing->reason : "--most is the largest batch to try";
  if (!is_whole) result.stopped_by += fmt::format("; the search ended after {} batches", trials_.size());
  return result;
}

const TriedBatch* BatchSearch::find(int64_t batch) const {
  const auto found = std::find_if(trials_.begin(), trials_.end(),
                                  [&](const TriedBatch& trial) { return trial.batch == batch; });
  return found == trials_.end() ? nullptr : &*found;
}

const TriedBatch& BatchSearch::trial(int64_t batch) const {
  const TriedBatch* const found = find(batch);
  return found == nullptr ? trials_.front() : *found;
}

MemoryFit fit_memory(const Traced& program, RunSetup setup, int64_t margin_bytes) {
  MemoryFit result;
  const std::optional<int64_t> least = least_total_bytes(program, setup);
  if (least) setup.device.total_bytes = *least;
  result.prediction = outcome(program, setup);
  if (!least) {
    result.stopped_by = result.prediction.reason;
    return result;
  }
  result.total_bytes = *least + margin_bytes;
  const std::string page = format_bytes(setup.device.granularity_bytes);
  if (margin_bytes > 0) {
    result.stopped_by = lacks_margin_text(page + " less", margin_bytes);
    return result;
  }
  setup.device.total_bytes -= setup.device.granularity_bytes;
  std::string reason;
  try {
    reason = outcome(program, setup).reason;
  } catch (const InvalidArgument& error) {  // virtual devices' limits are together above that
    reason = error.what();
  }
  result.stopped_by = fmt::format("with {} less: {}", page, reason);
  return result;
}

}  // namespace headroom
