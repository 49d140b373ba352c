#include "answers/fit.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/bytes.h"
#include "base/errors.h"
#include "base/text.h"

namespace headroom {
namespace {

RunSetup with_held(RunSetup setup, int64_t bytes) {
  for (PhysicalGpu& gpu : setup.gpus.physical) {
    gpu.used_bytes = std::min(setup.device.total_bytes, gpu.used_bytes + bytes);
  }
  return setup;
}

// Returns the distance of a batch from the device: the memory to spare, or missing (negative).
int64_t spare_bytes(const TriedBatch& trial) {
  return trial.prediction.margin_bytes.value_or(INT64_MIN / 4);
}

// Returns the batch at which the line through two trials crosses zero.
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

BatchSearch::BatchSearch(Workload workload, SearchWork work, const RunSetup& setup, int64_t margin_bytes,
                         int64_t unit)
    : workload_(std::move(workload)),
      work_(work),
      whole_(setup),
      setup_(with_held(setup, margin_bytes)),
      margin_bytes_(margin_bytes),
      unit_(unit) {}

TriedBatch BatchSearch::judge(int64_t batch, const Traced& program) const {
  TriedBatch trial{.batch = batch};
  trial.prediction = predict(program, setup_);
  for (const TracedDevice& device : program.devices) {
    trial.growing_bytes = std::max(trial.growing_bytes, growing_bytes(*device.trace));
  }
  if (trial.prediction.fits) return trial;
  // No process holds the margin: the reason is what a run without it would meet.
  const Prediction whole = margin_bytes_ > 0 ? outcome(program, whole_) : trial.prediction;
  trial.lacks_margin = whole.fits;
  const std::string name = fmt::format("batch {}", batch);
  trial.reason = whole.fits ? lacks_margin_text(name, margin_bytes_)
                            : fmt::format("{}: {}{}", name, whole.reason, module_text(program, whole));
  return trial;
}

const TriedBatch* BatchSearch::find(int64_t batch) const {
  const auto found =
      std::ranges::find_if(trials_, [&](const TriedBatch& trial) { return trial.batch == batch; });
  return found == trials_.end() ? nullptr : &*found;
}

const TriedBatch& BatchSearch::attempt(int64_t batch, bool is_long) {
  if (const TriedBatch* known = find(batch)) return *known;
  try {
    Traced program = workload_(batch);
    TriedBatch trial{.batch = batch};
    if (is_long) {
      trial = judge(batch, program);
    } else {
      trial.is_too_large = is_too_large(program, setup_);
      trial.prediction.fits = !trial.is_too_large && fits(program, setup_);
    }
    if (batch > fitting_.first) {
      const bool is_nearer = batch < failing_.first || failing_.first <= fitting_.first;
      if (trial.prediction.fits || is_nearer) {
        auto& [known_batch, known_program] = trial.prediction.fits ? fitting_ : failing_;
        known_batch = batch;
        known_program = std::move(program);
      }
    }
    return trials_.emplace_back(std::move(trial));
  } catch (const InvalidArgument& error) {
    if (trials_.empty()) throw;
    return trials_.emplace_back(TriedBatch{
        .batch = batch, .is_too_large = true, .reason = fmt::format("batch {}: {}", batch, error.what())});
  }
}

Traced BatchSearch::trace(int64_t batch) {
  for (const auto* kept : {&fitting_, &failing_}) {
    if (kept->first == batch) return kept->second;
  }
  return workload_(batch);
}

// The first of three powers of two in a row that are too large, at most `most`.
int64_t BatchSearch::end(int64_t most) {
  constexpr int kInARow = 3;
  int64_t first = most;
  int count = 0;
  for (int64_t power = 1; power < most && count<kInARow; power = power> most / 2 ? most : 2 * power) {
    if (!attempt(power * unit_, false).is_too_large) {
      count = 0;
      first = most;
    } else if (count++ == 0) {
      first = power;
    }
  }
  return first;
}

Fit BatchSearch::largest(int64_t max_batch) {
  SearchWork work = work_;
  const bool is_long = work.is_long;
  std::optional<TriedBatch> fitting, failing, before;  // `before`: the last one below the edge
  // In units.
  const auto guess = [&] {
    if (!fitting) return int64_t{0};
    if (failing) return crossing(*fitting, *failing) / unit_;
    // Small batches tell little of large ones.
    return before ? std::min(crossing(*before, *fitting) / unit_, 16 * fitting->batch / unit_)
                  : second_batch(*fitting) / unit_;
  };
  EdgeSearch units(work, [&](int64_t count) {
    const bool is_known = find(count * unit_) != nullptr;
    const TriedBatch& trial = attempt(count * unit_, is_long);
    EdgeTrial result{.fits = trial.prediction.fits, .work = is_known ? 1 : 0};
    if (!is_long) return result;
    if (trial.prediction.fits) {
      before = std::exchange(fitting, trial);
    } else {
      failing = trial;
    }
    result.guess = guess();
    return result;
  });
  const int64_t most = std::max<int64_t>(1, max_batch / unit_);
  Edge edge{0, 1, true};
  if (!is_long) {
    edge = units.largest(end(most));
  } else if (units.fits(1)) {
    edge = units.highest(1, most);
  }
  Fit result{.batch = edge.fitting * unit_, .device_bytes = setup_.device.total_bytes};
  result.fits = result.batch > 0;
  const int64_t shown = std::max(result.batch, unit_);
  result.program = trace(shown);
  // The trials of a cheap search have a verdict alone.
  result.prediction = is_long ? find(shown)->prediction : predict(result.program, setup_);
  if (edge.fitting >= most) {
    result.stopped_by = "--most is the largest batch to try";
    return result;
  }
  if (!edge.is_closed) {
    result.stopped_by = fmt::format("the search ended after {} batches; larger ones may fit", trials_.size());
    return result;
  }
  result.next_batch = result.batch + unit_;
  if (is_long) {
    result.stopped_by = failing->reason;
    if (!failing->lacks_margin && failing_.first == result.next_batch)
      result.next = std::move(failing_.second);
    return result;
  }
  try {
    result.stopped_by = judge(result.next_batch, trace(result.next_batch)).reason;
  } catch (const InvalidArgument& error) {
    result.stopped_by = fmt::format("batch {}: {}", result.next_batch, error.what());
  }
  return result;
}

Fit fit_memory(const Traced& program, RunSetup setup, int64_t margin_bytes) {
  Fit result;
  const std::optional<int64_t> least = least_total_bytes(program, setup);
  if (least) setup = with_total(std::move(setup), *least);
  result.prediction = outcome(program, setup);
  if (!least) {
    result.stopped_by = result.prediction.reason;
    return result;
  }
  result.fits = true;
  result.device_bytes = *least + margin_bytes;
  const std::string page = format_bytes(setup.device.granularity_bytes);
  if (margin_bytes > 0) {
    result.stopped_by = lacks_margin_text(page + " less", margin_bytes);
    return result;
  }
  std::string reason;
  try {
    reason = outcome(program, with_total(setup, *least - setup.device.granularity_bytes)).reason;
  } catch (const InvalidArgument& error) {  // virtual devices' limits are together above that
    reason = error.what();
  }
  result.stopped_by = fmt::format("with {} less: {}", page, reason);
  return result;
}

}  // namespace headroom
