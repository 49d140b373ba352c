#include "tools/workload/torch_advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <string_view>
#include <system_error>
#include <utility>

#include "allocators/strategies/strategy_text.h"
#include "allocators/strategies/torch_settings.h"
#include "answers/predict.h"
#include "base/bytes.h"
#include "base/text.h"
#include "tools/workload/recorded_failure.h"
#include "tools/workload/recorded_setup.h"

namespace headroom {
namespace {

constexpr std::string_view kExpandable = "expandable_segments:True";
constexpr size_t kMaxTries = 24;
constexpr size_t kMaxTraced = 4;  // again with checkpoints, some seconds each

// Whether `module` is `parent` or inside it.
bool is_inside(std::string_view module, std::string_view parent) {
  return module.starts_with(parent) && (module.size() == parent.size() || module[parent.size()] == '.');
}

// The step and phase at each event, from the marks.
class Phases {
 public:
  explicit Phases(const Trace& trace) : marks_(trace.marks) {}
  // For rising positions.
  const TraceMark& at(int64_t position) {
    while (next_ < marks_.size() && marks_[next_].position <= position) ++next_;
    return next_ == 0 ? before_ : marks_[next_ - 1];
  }

 private:
  const std::vector<TraceMark>& marks_;
  const TraceMark before_ = {};
  size_t next_ = 0;
};

}  // namespace

std::vector<KeptBlock> kept_blocks(const Trace& trace) {
  std::vector<KeptBlock> open(static_cast<size_t>(trace.blocks)), kept;
  std::vector<bool> is_forward(open.size());
  Phases phases(trace);
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const TraceEvent& event = trace.events[i];
    const auto block = static_cast<size_t>(event.block);
    const TraceMark& mark = phases.at(static_cast<int64_t>(i));
    if (event.allocates) {
      is_forward[block] = mark.phase == StepPhase::kForward && trace.block_facts[block].module != 0 &&
                          (trace.block_facts[block].category == MemoryCategory::kActivations ||
                           trace.block_facts[block].category == MemoryCategory::kOther);
      open[block] = {event.block, mark.step, static_cast<int64_t>(i), 0};
    } else if (is_forward[block] && mark.phase == StepPhase::kBackward && mark.step == open[block].step) {
      open[block].freed = static_cast<int64_t>(i);
      kept.push_back(open[block]);
    }
  }
  return kept;
}

namespace {

// "layers.3" of "layers.3.attention.q" at depth 2; nothing when it is not as deep.
std::string_view at_depth(std::string_view module, size_t depth) {
  size_t end = 0;
  for (size_t i = 0; i < depth; ++i) {
    if (end == module.size()) return {};
    end = std::min(module.find('.', end == 0 ? 0 : end + 1), module.size());
  }
  return module.substr(0, end);
}

// The number that ends the path of a module of a list; -1 for any other module.
int64_t index_of(std::string_view module) {
  const std::string_view last = module.substr(module.rfind('.') + 1);
  int64_t index = -1;
  const auto [end, error] = std::from_chars(last.data(), last.data() + last.size(), index);
  return error == std::errc() && end == last.data() + last.size() && last.front() != '-' ? index : -1;
}

std::string_view parent_of(std::string_view module) {
  const size_t dot = module.rfind('.');
  return dot == std::string_view::npos ? std::string_view{} : module.substr(0, dot);
}

// Modules to make checkpoints, alone or with all their siblings, and the bytes that they keep at the peak.
struct Candidate {
  std::vector<std::string> modules;
  std::string name;
  int64_t bytes = 0;
};

std::vector<Candidate> candidates(const Trace& trace) {
  std::map<std::string_view, int64_t> bytes;  // kept by a module and what is inside it
  for (const KeptBlock& kept : kept_blocks(trace)) {
    if (kept.allocated > trace.peak_event || kept.freed <= trace.peak_event) continue;
    const std::string_view module =
        trace.names[static_cast<size_t>(trace.block_facts[static_cast<size_t>(kept.block)].module)];
    constexpr size_t kDepth = 5;
    for (size_t depth = 1; depth <= kDepth; ++depth) {
      const std::string_view part = at_depth(module, depth);
      if (part.empty()) break;
      bytes[part] += trace.events[static_cast<size_t>(kept.allocated)].bytes;
    }
  }
  std::vector<Candidate> found;
  std::map<std::string_view, Candidate> siblings;
  for (const auto& [module, kept] : bytes) {
    if (index_of(module) < 0) continue;
    Candidate& group = siblings[parent_of(module)];
    group.modules.emplace_back(module);
    group.bytes += kept;
  }
  for (const auto& [module, kept] : bytes) {
    // A list of modules has no forward pass of its own.
    const auto list = siblings.find(module);
    if (list != siblings.end() && list->second.bytes == kept) continue;
    found.push_back({{std::string(module)}, std::string(module), kept});
  }
  for (auto& [parent, group] : siblings) {
    if (group.modules.size() < 2) continue;
    std::sort(group.modules.begin(), group.modules.end(),
              [](const std::string& a, const std::string& b) { return index_of(a) < index_of(b); });
    const int64_t first = index_of(group.modules.front()), last = index_of(group.modules.back());
    const bool is_range = last - first + 1 == std::ssize(group.modules);
    group.name = is_range ? fmt::format("each of {}..{}", group.modules.front(), last)
                          : fmt::format("each of {}", fmt::join(group.modules, ", "));
    found.push_back(std::move(group));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) { return a.bytes < b.bytes; });
  return found;
}

// Whether idle segments stay with the strategy until it runs out.
bool is_cached(const std::string& strategy) {
  return parse_strategy(strategy).name == "caching" && strategy.find("expandable") == std::string::npos;
}

// Where a program would call torch.cuda.empty_cache(), see with_empty_cache.
std::vector<TraceMark> empty_marks(const Trace& trace, StepPhase phase) {
  std::vector<TraceMark> marks;
  int32_t step = 0;
  for (const TraceMark& mark : trace.marks) {
    if (phase == StepPhase::kSetup) {
      if (mark.step != 1) continue;
      return {mark};
    }
    if (mark.phase != phase || mark.step == 0) continue;
    // A step has one beginning, however often it calls backward.
    if (phase == StepPhase::kForward && mark.step == step) continue;
    step = mark.step;
    marks.push_back(mark);
  }
  return marks;
}

// The user's line that the program comes to first where the phase begins: "train.py:14".
std::string first_line_after(const Trace& trace, StepPhase phase) {
  const std::vector<TraceMark> marks = empty_marks(trace, phase);
  if (marks.empty()) return {};
  for (auto at = static_cast<size_t>(marks.front().position); at < trace.events.size(); ++at) {
    if (!trace.events[at].allocates) continue;
    const int32_t source = trace.block_facts[static_cast<size_t>(trace.events[at].block)].source;
    if (source != 0) return printable(trace.names[static_cast<size_t>(source)]);
  }
  return {};
}

}  // namespace

std::optional<std::string> with_expandable_segments(const std::string& strategy) {
  if (!is_cached(strategy)) return std::nullopt;
  const bool is_torch = strategy.starts_with(kTorchStrategy);
  const std::string settings = is_torch && strategy.size() > kTorchStrategy.size()
                                   ? strategy.substr(kTorchStrategy.size() + 1) + ","
                                   : "";
  return fmt::format("{},{}{}", kTorchStrategy, settings.substr(0, settings.find('+')), kExpandable);
}

Trace with_checkpoints(const Trace& trace, const std::vector<std::string>& modules) {
  // Of each step and module: its kept blocks, when its forward pass ends and its backward pass begins.
  struct Region {
    std::vector<KeptBlock> blocks;
    int64_t forward_end = 0, backward_begin = INT64_MAX;
    int64_t largest_bytes = 0;
  };
  std::map<std::pair<int32_t, size_t>, Region> regions;
  for (const KeptBlock& kept : kept_blocks(trace)) {
    const std::string& module =
        trace.names[static_cast<size_t>(trace.block_facts[static_cast<size_t>(kept.block)].module)];
    for (size_t i = 0; i < modules.size(); ++i) {
      if (!is_inside(module, modules[i])) continue;
      Region& region = regions[{kept.step, i}];
      region.blocks.push_back(kept);
      region.largest_bytes =
          std::max(region.largest_bytes, trace.events[static_cast<size_t>(kept.allocated)].bytes);
      region.forward_end = std::max(region.forward_end, kept.allocated);
      region.backward_begin = std::min(region.backward_begin, kept.freed);
      break;
    }
  }
  // What to insert behind an event of the forward pass, and before one of the backward pass.
  std::map<int64_t, std::vector<TraceEvent>> behind, before;
  Trace changed = trace;
  std::vector<int32_t> renamed(static_cast<size_t>(trace.blocks), -1);
  for (const auto& [key, region] : regions) {
    // The module's result, which the next module needs. Behind it may be sums that the backward pass wants.
    int64_t result = -1;
    for (const KeptBlock& kept : region.blocks) {
      const bool is_large =
          trace.events[static_cast<size_t>(kept.allocated)].bytes >= region.largest_bytes / kLeastResult;
      if (is_large) result = std::max(result, kept.allocated);
    }
    for (const KeptBlock& kept : region.blocks) {
      if (kept.allocated == result) continue;
      TraceEvent event = trace.events[static_cast<size_t>(kept.allocated)];
      event.allocates = false;
      behind[region.forward_end].push_back(event);
      event.allocates = true;
      event.block = renamed[static_cast<size_t>(kept.block)] = static_cast<int32_t>(changed.blocks++);
      changed.block_facts.push_back(trace.block_facts[static_cast<size_t>(kept.block)]);
      before[region.backward_begin].push_back(event);
    }
  }
  changed.events.clear();
  changed.marks.clear();
  changed.device_events.clear();
  auto emptied = trace.device_events.begin();
  changed.peak_bytes = changed.peak_event = 0;
  int64_t live = 0;
  const auto add = [&](TraceEvent event) {
    changed.events.push_back(event);
    live += event.allocates ? event.bytes : -event.bytes;
    if (live <= changed.peak_bytes) return;
    changed.peak_bytes = live;
    changed.peak_event = static_cast<int64_t>(changed.events.size()) - 1;
  };
  for (size_t i = 0; i < trace.events.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    for (; emptied != trace.device_events.end() && emptied->position <= at; ++emptied) {
      if (emptied->kind != DeviceEvent::Kind::kEmptyCache) continue;
      changed.device_events.push_back(*emptied);
      changed.device_events.back().position = static_cast<int64_t>(changed.events.size());
    }
    if (const auto found = before.find(at); found != before.end()) {
      for (const TraceEvent& event : found->second) add(event);
    }
    TraceEvent event = trace.events[i];
    const int32_t other = renamed[static_cast<size_t>(event.block)];
    if (!event.allocates && other >= 0) event.block = other;
    add(event);
    if (const auto found = behind.find(at); found != behind.end()) {
      for (const TraceEvent& inserted : found->second) add(inserted);
    }
  }
  return changed;
}

Trace with_empty_cache(const Trace& trace, StepPhase phase) {
  Trace changed = trace;
  for (const TraceMark& mark : empty_marks(trace, phase)) {
    DeviceEvent event{.kind = DeviceEvent::Kind::kEmptyCache};
    event.position = mark.position;
    event.time_ns = mark.time_ns;
    changed.device_events.push_back(event);
  }
  std::stable_sort(changed.device_events.begin(), changed.device_events.end(),
                   [](const DeviceEvent& a, const DeviceEvent& b) { return a.position < b.position; });
  return changed;
}

namespace {

std::optional<TorchChange> with_growing_segments(const Trace& trace, const RunSetup& setup) {
  const std::optional<std::string> strategy = with_expandable_segments(setup.options.strategy);
  if (!strategy) return std::nullopt;
  RunSetup changed = setup;
  changed.options.strategy = *strategy;
  if (!fits(traced_here(trace), changed)) return std::nullopt;
  return TorchChange{fmt::format("PYTORCH_CUDA_ALLOC_CONF={}", strategy->substr(kTorchStrategy.size() + 1)),
                     "segments grow instead of adding up"};
}

// Where expandable segments do not help: they give pages of 20 MiB back, and only whole ones.
std::optional<TorchChange> with_mapped(const Trace& trace, const RunSetup& setup) {
  if (!is_cached(setup.options.strategy) || with_growing_segments(trace, setup)) return std::nullopt;
  RunSetup changed = setup;
  changed.options.strategy = "mapped";
  if (!fits(traced_here(trace), changed)) return std::nullopt;
  return TorchChange{"import headroom.torch; headroom.torch.use(\"mapped\")",
                     "in place of PyTorch's allocator: idle memory moves to where it is needed"};
}

// What the strategy could give back to the driver after so many events: segments without a live block.
int64_t releasable_bytes(const Trace& trace, const RunSetup& setup, int64_t events) {
  int64_t bytes = 0;
  const RunSetup ready = prepared(traced_here(trace), setup);
  for (const SnapshotSegment& segment : snapshot_after(trace, ready, events).snapshot.segments) {
    const bool is_idle = std::all_of(segment.blocks.begin(), segment.blocks.end(), [](const auto& block) {
      return block.state == SnapshotBlock::State::kFree;
    });
    if (is_idle) bytes += segment.bytes;
  }
  return bytes;
}

// Once is tried before once a step, and the beginning of a step before its middle.
std::optional<TorchChange> with_emptied_cache(const Trace& trace, const RunSetup& setup) {
  if (!is_cached(setup.options.strategy)) return std::nullopt;
  constexpr StepPhase kPhases[] = {StepPhase::kSetup, StepPhase::kForward, StepPhase::kOptimizer,
                                   StepPhase::kBackward};
  for (const StepPhase phase : kPhases) {
    const Trace emptied = with_empty_cache(trace, phase);
    if (emptied.device_events.size() == trace.device_events.size()) continue;
    if (!fits(traced_here(emptied), setup)) continue;
    // The last ones before the failure: a long training has thousands.
    constexpr size_t kLooks = 3;
    std::vector<TraceMark> marks = empty_marks(trace, phase);
    if (const std::optional<int64_t> failed = outcome(traced_here(trace), setup).failed_event) {
      std::erase_if(marks, [&](const TraceMark& mark) { return mark.position >= *failed; });
    }
    int64_t freed = 0;
    for (size_t i = marks.size() - std::min(marks.size(), kLooks); i < marks.size(); ++i) {
      freed = std::max(freed, releasable_bytes(emptied, setup, marks[i].position));
    }
    const std::string line = first_line_after(trace, phase);
    return TorchChange{
        fmt::format("torch.cuda.empty_cache() {}{}", line.empty() ? "" : fmt::format("before {}, ", line),
                    phase == StepPhase::kSetup
                        ? "once, before the first step"
                        : fmt::format("at the beginning of each {}", phase == StepPhase::kForward ? "step"
                                                                     : phase == StepPhase::kBackward
                                                                         ? "backward pass"
                                                                         : "optimizer step")),
        fmt::format("gives {} of idle segments back there", format_bytes(freed))};
  }
  return std::nullopt;
}

// As few activations as will do. Of alike modules one is tried, and at last what keeps most of all.
std::optional<TorchChange> with_checkpoint(const Trace& trace, const RunSetup& setup,
                                           const TraceCheckpoints& trace_again) {
  const int64_t lacking = trace.peak_bytes - capacity_bytes(setup);
  std::vector<Candidate> tried = candidates(trace);
  std::erase_if(tried, [&](const Candidate& candidate) { return candidate.bytes < lacking; });
  const auto alike = [](const Candidate& a, const Candidate& b) {
    return a.bytes == b.bytes && a.modules.size() == b.modules.size();
  };
  tried.erase(std::unique(tried.begin(), tried.end(), alike), tried.end());
  if (tried.size() > kMaxTries) tried.erase(tried.begin() + kMaxTries - 1, tried.end() - 1);
  size_t traced = 0;
  for (const Candidate& candidate : tried) {
    std::optional<Trace> recomputed = with_checkpoints(trace, candidate.modules);
    if (!fits(traced_here(*recomputed), setup)) continue;
    if (trace_again) {
      if (++traced > kMaxTraced) break;
      recomputed = trace_again(candidate.modules);
      if (!recomputed || !fits(traced_here(*recomputed), setup)) continue;
    }
    return TorchChange{
        fmt::format("checkpoint module {}", candidate.name),
        fmt::format("torch.utils.checkpoint runs {} again in the backward pass: the peak is {} "
                    "lower{}",
                    candidate.modules.size() == 1 ? "it" : "them",
                    format_bytes(trace.peak_bytes - recomputed->peak_bytes),
                    trace_again ? "" : ", as estimated")};
  }
  return std::nullopt;
}

}  // namespace

// Each with the strategy as it is, so that one change is enough.
std::vector<TorchChange> find_torch_changes(const Trace& trace, const RunSetup& setup,
                                            const TraceCheckpoints& trace_again) {
  std::vector<TorchChange> changes;
  const auto add = [&](std::optional<TorchChange> change) {
    if (change) changes.push_back(std::move(*change));
  };
  for (const auto& find : {with_growing_segments, with_mapped, with_emptied_cache}) add(find(trace, setup));
  add(with_checkpoint(trace, setup, trace_again));
  return changes;
}

std::vector<TorchChange> find_torch_changes(const Trace& trace, const RecordedFailure& failure) {
  if (!is_of_torch(trace) || failure.event > std::ssize(trace.events) || failure.requested_bytes <= 0 ||
      failure.requested_bytes > Trace::kLargestBlockBytes || failure.capacity_bytes <= 0) {
    return {};
  }
  RuntimeOptions options;
  options.device = "sim:h200";
  options.strategy = recorded_strategy(trace);
  options.others_bytes = 0;
  RunSetup setup = setup_of(options);
  setup.device.total_bytes = failure.capacity_bytes + setup.device.overhead_bytes();
  const Trace played = until_request(trace, failure.event, failure.requested_bytes);
  if (fits(traced_here(played), setup)) return {};
  return find_torch_changes(played, setup);
}

}  // namespace headroom
