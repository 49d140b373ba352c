#include "tools/workload/trace_prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <limits>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "allocators/strategies/strategy_text.h"
#include "base/bytes.h"
#include "base/errors.h"
#include "base/text.h"
#include "tools/workload/prediction.h"

namespace headroom {
namespace {

// Live bytes by name.
class Shares {
 public:
  size_t number(std::string_view name) {
    const auto [found, is_new] = numbers_.try_emplace(name, names_.size());
    if (is_new) {
      names_.push_back(name);
      bytes_.push_back(0);
    }
    return found->second;
  }
  void add(size_t number, int64_t bytes) { bytes_[number] += bytes; }
  // The largest first; what has no name last, under `nothing`.
  std::vector<MemoryShare> largest_first(std::string_view nothing) const {
    std::vector<MemoryShare> shares;
    int64_t unnamed = 0;
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i].empty()) unnamed = bytes_[i];
      if (!names_[i].empty() && bytes_[i] > 0) shares.push_back({std::string(names_[i]), bytes_[i]});
    }
    std::stable_sort(shares.begin(), shares.end(),
                     [](const MemoryShare& a, const MemoryShare& b) { return a.bytes > b.bytes; });
    if (unnamed > 0 && !shares.empty()) shares.push_back({std::string(nothing), unnamed});
    return shares;
  }

 private:
  std::unordered_map<std::string_view, size_t> numbers_;
  std::vector<std::string_view> names_;
  std::vector<int64_t> bytes_;
};

// The module that a block counts for.
class Owners {
 public:
  explicit Owners(const Trace& trace) : trace_(trace) {
    for (const TraceEvent& event : trace.events) {
      if (event.allocates && category_of(event) == MemoryCategory::kWeights)
        parameters_.insert(tag_of(event));
    }
  }

  std::string_view module_of(const TraceEvent& allocation) const {
    const MemoryCategory category = category_of(allocation);
    // A library's memory is of all modules, whichever came first.
    if (category == MemoryCategory::kLibrary) return {};
    if (category == MemoryCategory::kWeights || category == MemoryCategory::kGradients ||
        category == MemoryCategory::kOptimizerState) {
      // "e.weight exp_avg".
      const std::string_view tag = tag_of(allocation), parameter = tag.substr(0, tag.find(' '));
      const size_t dot = parameter.rfind('.');
      if (dot != std::string_view::npos && parameters_.contains(parameter)) return parameter.substr(0, dot);
    }
    return name(trace_.block_facts[static_cast<size_t>(allocation.block)].module);
  }

 private:
  std::string_view name(int32_t position) const { return trace_.names[static_cast<size_t>(position)]; }
  std::string_view tag_of(const TraceEvent& event) const { return name(event.tag); }
  MemoryCategory category_of(const TraceEvent& event) const {
    return trace_.block_facts[static_cast<size_t>(event.block)].category;
  }

  const Trace& trace_;
  std::unordered_set<std::string_view> parameters_;
};

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

std::string place_text(const Trace& trace, int64_t position) {
  const TraceEvent& event = trace.events[static_cast<size_t>(position)];
  std::string text = event_text(trace, event);
  const auto source_of = [&](const TraceEvent& of) {
    return trace.block_facts[static_cast<size_t>(of.block)].source;
  };
  if (source_of(event) != 0) return text;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : ", ") + more; };
  const auto next = std::find_if(trace.marks.begin(), trace.marks.end(),
                                 [&](const TraceMark& mark) { return mark.position > position; });
  if (next != trace.marks.begin() && std::prev(next)->step > 0) {
    const TraceMark& mark = *std::prev(next);
    add(fmt::format("step {}, {}", mark.step, kStepPhaseNames[static_cast<size_t>(mark.phase)]));
  }
  for (int64_t before = position - 1; before >= trace.live_before; --before) {
    const TraceEvent& other = trace.events[static_cast<size_t>(before)];
    if (!other.allocates || source_of(other) == 0) continue;
    add(fmt::format("after {}", printable(trace.names[static_cast<size_t>(source_of(other))])));
    break;
  }
  return text;
}

LiveSet largest_live_set(const Trace& trace) {
  LiveSet result;
  const Owners owners(trace);
  Shares by_module, by_line;
  std::vector<std::pair<size_t, size_t>> shares(trace.block_facts.size());  // of each block
  const auto end = std::min<size_t>(static_cast<size_t>(trace.peak_event) + 1, trace.events.size());
  for (size_t i = 0; i < end; ++i) {
    const TraceEvent& event = trace.events[i];
    const TraceBlock& block = trace.block_facts[static_cast<size_t>(event.block)];
    const int64_t change = event.allocates ? event.bytes : -event.bytes;
    result.by_category[static_cast<size_t>(block.category)] += change;
    auto& [module, line] = shares[static_cast<size_t>(event.block)];
    if (event.allocates) {
      module = by_module.number(owners.module_of(event));
      line = by_line.number(trace.names[static_cast<size_t>(block.source)]);
    }
    by_module.add(module, change);
    by_line.add(line, change);
  }
  result.by_module = by_module.largest_first(kNoModule);
  result.by_line = by_line.largest_first(kNoLine);
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

EdgeTrial TracePredictor::attempt_with_total(int64_t total_bytes) const {
  const int64_t capacity = capacity_of_total(total_bytes);
  if (capacity < trace_.peak_bytes || capacity == 0) return {.work = 1};
  try {
    return trial_of(play(settings_, total_bytes));
  } catch (const InvalidArgument&) {
    return {};
  }
}

EdgeTrial TracePredictor::trial_of(const ReplayResult& played) const {
  if (!played.fits()) return {};
  const int64_t process = others_bytes_ + setup_.device.overhead_bytes();
  EdgeTrial trial{.fits = true, .guess = process + played.used_bytes};
  if (played.enough_total > 0 && !depends_on_total(settings_)) {
    trial.same_from = process + round_up(played.enough_total, setup_.device.granularity_bytes);
  }
  return trial;
}

bool TracePredictor::fits(int64_t margin_bytes) const {
  return attempt_with_total(total_bytes_ - margin_bytes).fits;
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
  SearchWork work{.each = std::max<int64_t>(1, std::ssize(trace_.events))};
  EdgeSearch search(
      work, [&](int64_t total_bytes) { return attempt_with_total(total_bytes); },
      setup_.device.granularity_bytes);
  if (now != nullptr) search.add(total_bytes_, trial_of(*now));
  // No strategy fits below this.
  const int64_t least = others_bytes_ + setup_.device.overhead_bytes() + trace_.peak_bytes;
  const std::optional<Edge> edge = search.next_to(total_bytes_, least, 64 * std::max(total_bytes_, least));
  return edge ? std::optional(edge->fitting) : std::nullopt;
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
    if (prediction.fits) note_peaks(played, prediction);
  } catch (const InvalidArgument&) {
    return std::nullopt;
  }
  return prediction;
}

}  // namespace headroom
