#include "tools/workload/trace_prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "allocators/strategies/strategy_text.h"
#include "runtime/base/bytes.h"
#include "runtime/base/errors.h"
#include "runtime/base/text.h"
#include "tools/workload/prediction.h"
#include "tools/workload/search.h"

namespace headroom {
namespace {

std::vector<MemoryShare> largest_first(const std::map<int32_t, int64_t>& bytes, const Trace& trace) {
  std::vector<MemoryShare> shares;
  for (const auto& [name, live] : bytes) {
    if (name != 0 && live > 0) shares.push_back({trace.names[static_cast<size_t>(name)], live});
  }
  std::stable_sort(shares.begin(), shares.end(),
                   [](const MemoryShare& a, const MemoryShare& b) { return a.bytes > b.bytes; });
  return shares;
}

// The strategy as it acts on a device where the context and the libraries have their memory already.
StrategySettings without_process(StrategySettings settings, int64_t total_bytes, int64_t capacity_bytes,
                                 int64_t process_bytes) {
  if (settings.memory_fraction) {
    settings.limit_bytes = static_cast<int64_t>(*settings.memory_fraction * static_cast<double>(total_bytes));
    settings.memory_fraction.reset();
  }
  if (settings.limit_bytes && settings.limit_scope == LimitScope::kProcess) {
    settings.limit_bytes = std::max<int64_t>(*settings.limit_bytes - process_bytes, Allocator::kAlignment);
    settings.limit_scope = LimitScope::kPool;
  }
  // A limit of more than there is does not bind.
  if (settings.limit_bytes) settings.limit_bytes = std::min(*settings.limit_bytes, capacity_bytes);
  settings.record_path.clear();
  return settings;
}

StrategySettings without_limit(StrategySettings settings) {
  settings.limit_bytes.reset();
  settings.memory_fraction.reset();
  settings.limit_scope = LimitScope::kPool;
  return settings;
}

}  // namespace

std::string event_text(const Trace& trace, const TraceEvent& event) {
  const TraceBlock& block = trace.block_facts[static_cast<size_t>(event.block)];
  const auto name = [&](int32_t position) { return printable(trace.names[static_cast<size_t>(position)]); };
  std::string text = name(event.op != 0 ? event.op : event.tag);
  if (block.module != 0) text += fmt::format("{}{}", text.empty() ? "" : " in ", name(block.module));
  if (block.source != 0) text += fmt::format("{}{}", text.empty() ? "" : " at ", name(block.source));
  return text;
}

LiveSet largest_live_set(const Trace& trace) {
  LiveSet result;
  std::map<int32_t, int64_t> by_module, by_line;
  const auto end = std::min<size_t>(static_cast<size_t>(trace.peak_event) + 1, trace.events.size());
  for (size_t i = 0; i < end; ++i) {
    const TraceEvent& event = trace.events[i];
    const TraceBlock& block = trace.block_facts[static_cast<size_t>(event.block)];
    const int64_t change = event.allocates ? event.bytes : -event.bytes;
    result.by_category[static_cast<size_t>(block.category)] += change;
    by_module[block.module] += change;
    by_line[block.source] += change;
  }
  result.by_module = largest_first(by_module, trace);
  result.by_line = largest_first(by_line, trace);
  if (end > 0) result.where = event_text(trace, trace.events[end - 1]);
  return result;
}

TracePredictor::TracePredictor(const Trace& trace, RunSetup setup)
    : trace_(trace),
      setup_(std::move(setup)),
      settings_(prepared_for(trace, setup_.options.strategy_settings())),
      total_bytes_(setup_.device.total_bytes),
      others_bytes_(others_bytes(setup_)) {}

TracePredictor::TracePredictor(const TracePredictor& limited, int64_t withheld_bytes)
    : trace_(limited.trace_),
      setup_(limited.setup_),
      settings_(without_limit(limited.settings_)),
      total_bytes_(limited.total_bytes_),
      others_bytes_(limited.others_bytes_ + withheld_bytes) {}

int64_t TracePredictor::withheld_bytes() const {
  const int64_t capacity = capacity_bytes();
  const StrategySettings settings =
      without_process(settings_, total_bytes_, capacity, setup_.device.overhead_bytes());
  return capacity - settings.limit_bytes.value_or(capacity);
}

int64_t TracePredictor::capacity_of_total(int64_t total_bytes) const {
  const int64_t page = setup_.device.granularity_bytes;
  const int64_t left = total_bytes - others_bytes_ - setup_.device.overhead_bytes();
  return left <= 0 ? 0 : left / page * page;
}

ReplayResult TracePredictor::play(const StrategySettings& settings, int64_t total_bytes) const {
  const int64_t capacity = capacity_of_total(total_bytes);
  return replay_at(trace_, without_process(settings, total_bytes, capacity, setup_.device.overhead_bytes()),
                   setup_.device, capacity, 1, ReplayEnd::kLastAllocation);
}

// What is enough is a total of the device.
CapacityTrial TracePredictor::attempt_with_total(int64_t total_bytes, KnownTrials& known) const {
  const int64_t capacity = capacity_of_total(total_bytes);
  if (capacity < trace_.peak_bytes || capacity == 0) return {};
  if (const CapacityTrial* trial = known.find(capacity)) return *trial;
  try {
    const ReplayResult played = play(settings_, total_bytes);
    note(played, total_bytes, known);
    return trial_of(played);
  } catch (const InvalidArgument&) {
    return {};
  }
}

CapacityTrial TracePredictor::trial_of(const ReplayResult& played) const {
  return {played.fits(), others_bytes_ + setup_.device.overhead_bytes() + played.used_bytes};
}

void TracePredictor::note(const ReplayResult& played, int64_t total_bytes, KnownTrials& known) const {
  if (!played.fits() || depends_on_total(settings_)) return;
  known.add(capacity_of_total(total_bytes), played.enough_total, trial_of(played));
}

bool TracePredictor::fits(int64_t margin_bytes) const {
  KnownTrials none;
  return attempt_with_total(total_bytes_ - margin_bytes, none).fits;
}

int64_t TracePredictor::releasable_bytes_before(int64_t event) const {
  const int64_t capacity = capacity_bytes();
  const StrategySettings settings =
      without_process(settings_, total_bytes_, capacity, setup_.device.overhead_bytes());
  int64_t bytes = 0;
  for (const SnapshotSegment& segment :
       snapshot_at(trace_, settings, setup_.device, capacity, event).snapshot.segments) {
    const bool is_idle = std::all_of(segment.blocks.begin(), segment.blocks.end(), [](const auto& block) {
      return block.state == SnapshotBlock::State::kFree;
    });
    if (is_idle) bytes += segment.bytes;
  }
  return bytes;
}

std::optional<int64_t> TracePredictor::least_total_bytes(const ReplayResult* now) const {
  KnownTrials known;
  if (now != nullptr) note(*now, total_bytes_, known);
  const int64_t page = setup_.device.granularity_bytes;
  const int64_t trials = trials_for(static_cast<int64_t>(trace_.events.size()));
  if (trials < kUnlimitedTrials) return least_total_in(trials, known);
  const Fits fits_with = [&](int64_t pages) {
    return attempt_with_total(total_bytes_ + pages * page, known).fits;
  };
  // No strategy fits below this.
  const int64_t least = others_bytes_ + setup_.device.overhead_bytes() + trace_.peak_bytes;
  if (fits_with(0)) {
    const int64_t pages = least_below(0, std::min<int64_t>(0, (least - total_bytes_) / page), fits_with);
    return total_bytes_ + pages * page;
  }
  const int64_t from = std::max<int64_t>(0, (least - total_bytes_) / page - 1);
  const int64_t end = (64 * std::max(total_bytes_, least) - total_bytes_) / page;
  const std::optional<int64_t> pages =
      fits_with(from) ? std::optional(from) : first_above(from, end, fits_with);
  return pages ? std::optional(total_bytes_ + *pages * page) : std::nullopt;
}

// With few trials: in whole pages between the lower bound and a device that is large enough.
std::optional<int64_t> TracePredictor::least_total_in(int64_t trials, KnownTrials& known) const {
  const int64_t page = setup_.device.granularity_bytes;
  const auto pages_of = [&](int64_t total_bytes) { return (total_bytes - total_bytes_) / page; };
  const int64_t least = others_bytes_ + setup_.device.overhead_bytes() + trace_.peak_bytes;
  const auto attempt = [&](int64_t pages) {
    const CapacityTrial trial = attempt_with_total(total_bytes_ + pages * page, known);
    return CapacityTrial{trial.fits, pages_of(trial.enough + page - 1)};
  };
  constexpr int64_t kMostTimes = 64;
  CapacityGap gap{pages_of(least) - 1, 0};
  CapacityTrial widest = attempt(gap.fitting);
  for (int64_t times = 2; times <= kMostTimes && !widest.fits; times *= 2, --trials) {
    gap.failing = std::max(gap.failing, gap.fitting);
    gap.fitting = pages_of(times * std::max(total_bytes_, least));
    widest = attempt(gap.fitting);
  }
  if (!widest.fits) return std::nullopt;
  gap = narrow(gap, widest.enough, std::max<int64_t>(1, trials), attempt);
  return total_bytes_ + gap.fitting * page;
}

void TracePredictor::note_peaks(const ReplayResult& played, TracePrediction& prediction) const {
  const DeviceProfile& device = setup_.device;
  prediction.reserved_bytes = played.statistics.reserved.peak;
  prediction.allocated_bytes = played.statistics.allocated.peak;
  prediction.requested_bytes = played.statistics.requested.peak;
  prediction.context_bytes = device.context_bytes + device.own_module_bytes;
  prediction.library_bytes = device.overhead_bytes() - prediction.context_bytes;
  prediction.total_bytes = device.overhead_bytes() + prediction.reserved_bytes;
}

TracePrediction TracePredictor::outcome(std::optional<ReplayResult>& played) const {
  TracePrediction prediction;
  if (capacity_bytes() == 0) {
    prediction.reason = "context, libraries and other processes leave no memory";
    return prediction;
  }
  played = play(settings_, total_bytes_);
  prediction.fits = played->fits();
  prediction.failed_event = played->failed_event;
  prediction.facts = played->failure;
  if (prediction.fits) note_peaks(*played, prediction);
  if (prediction.facts) {
    prediction.facts->device_total = total_bytes_;
    prediction.facts->others = others_bytes_;
    prediction.reason = out_of_memory_message(*prediction.facts);
  }
  return prediction;
}

TracePrediction TracePredictor::outcome() const {
  std::optional<ReplayResult> played;
  return outcome(played);
}

TracePrediction TracePredictor::predict() const {
  std::optional<ReplayResult> played;
  TracePrediction prediction = outcome(played);
  const auto search = [&](const TracePredictor& predictor, const ReplayResult* now) {
    const std::optional<int64_t> least = predictor.least_total_bytes(now);
    if (!least) return;
    prediction.margin_bytes = total_bytes_ - *least;
    if (!prediction.fits) note_peaks(predictor.play(predictor.settings_, *least), prediction);
  };
  const int64_t withheld = withheld_bytes();
  withheld == 0 ? search(*this, played ? &*played : nullptr)
                : search(TracePredictor(*this, withheld), nullptr);
  return prediction;
}

std::optional<TracePrediction> TracePredictor::predict_with(const std::string& strategy) const {
  TracePrediction prediction;
  try {
    StrategySettings settings = parse_strategy(strategy);
    settings.limit_bytes = settings_.limit_bytes;
    settings.limit_scope = settings_.limit_scope;
    settings.memory_fraction = settings_.memory_fraction;
    settings = prepared_for(trace_, std::move(settings));
    if (capacity_bytes() == 0) return prediction;
    const ReplayResult played = play(settings, total_bytes_);
    prediction.fits = played.fits();
    prediction.failed_event = played.failed_event;
    note_peaks(played, prediction);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
  return prediction;
}

}  // namespace headroom
