#include "tools/workload/torch_advice.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string_view>
#include <utility>

#include "allocators/strategies/strategy_text.h"
#include "allocators/strategies/torch_settings.h"
#include "runtime/base/bytes.h"
#include "tools/workload/trace_prediction.h"

namespace headroom {
namespace {

constexpr std::string_view kExpandable = "expandable_segments:True";
constexpr size_t kMaxTries = 24;

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

// A block that the forward pass keeps for the backward pass of the same step.
struct KeptBlock {
  int32_t block = 0, step = 0;
  int64_t allocated = 0, freed = 0;  // events
};

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

// "layers.3" of "layers.3.attention.q" at depth 2; nothing when it is not as deep.
std::string_view at_depth(std::string_view module, size_t depth) {
  size_t end = 0;
  for (size_t i = 0; i < depth; ++i) {
    if (end == module.size()) return {};
    end = std::min(module.find('.', end == 0 ? 0 : end + 1), module.size());
  }
  return module.substr(0, end);
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
    found.push_back({{std::string(module)}, std::string(module), kept});
    const std::string_view last =
        module.substr(parent_of(module).size() + (parent_of(module).empty() ? 0 : 1));
    const bool is_number = !last.empty() && last.find_first_not_of("0123456789") == std::string_view::npos;
    if (!is_number) continue;
    Candidate& group = siblings[parent_of(module)];
    group.modules.emplace_back(module);
    group.bytes += kept;
  }
  for (auto& [parent, group] : siblings) {
    if (group.modules.size() < 2) continue;
    group.name = fmt::format("each of {}.{}..{}", parent, group.modules.front().substr(parent.size() + 1),
                             group.modules.back().substr(parent.size() + 1));
    found.push_back(std::move(group));
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) { return a.bytes < b.bytes; });
  return found;
}

}  // namespace

Trace with_checkpoints(const Trace& trace, const std::vector<std::string>& modules) {
  // Of each step and module: its kept blocks, when its forward pass ends and its backward pass begins.
  struct Region {
    std::vector<KeptBlock> blocks;
    int64_t forward_end = 0, backward_begin = INT64_MAX;
  };
  std::map<std::pair<int32_t, size_t>, Region> regions;
  for (const KeptBlock& kept : kept_blocks(trace)) {
    const std::string& module =
        trace.names[static_cast<size_t>(trace.block_facts[static_cast<size_t>(kept.block)].module)];
    for (size_t i = 0; i < modules.size(); ++i) {
      if (!is_inside(module, modules[i])) continue;
      Region& region = regions[{kept.step, i}];
      region.blocks.push_back(kept);
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
    // The last block is the module's result, which the next module needs: it stays.
    for (const KeptBlock& kept : region.blocks) {
      if (kept.allocated == region.forward_end) continue;
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

std::optional<TorchChange> find_torch_change(const Trace& trace, const RunSetup& setup) {
  RunSetup changed = setup;
  const std::string& strategy = setup.options.strategy;
  const bool is_torch = strategy.starts_with(kTorchStrategy);
  if (parse_strategy(strategy).name == "caching" && strategy.find("expandable") == std::string::npos) {
    const std::string settings = is_torch && strategy.size() > kTorchStrategy.size()
                                     ? strategy.substr(kTorchStrategy.size() + 1) + ","
                                     : "";
    const std::string with = settings.substr(0, settings.find('+')) + std::string(kExpandable);
    changed.options.strategy = fmt::format("{},{}", kTorchStrategy, with);
    if (TracePredictor(trace, changed).fits()) {
      return TorchChange{fmt::format("PYTORCH_CUDA_ALLOC_CONF={}", with),
                         "segments grow instead of adding up"};
    }
  }
  // As few activations as will do; with the strategy as it is, so that one change is enough.
  const int64_t lacking = trace.peak_bytes - TracePredictor(trace, setup).capacity_bytes();
  size_t tries = 0;
  for (const Candidate& candidate : candidates(trace)) {
    if (candidate.bytes < lacking || ++tries > kMaxTries) continue;
    const Trace recomputed = with_checkpoints(trace, candidate.modules);
    if (!TracePredictor(recomputed, setup).fits()) continue;
    return TorchChange{fmt::format("checkpoint module {}", candidate.name),
                       fmt::format("torch.utils.checkpoint computes {} of activations again",
                                   format_bytes(candidate.bytes))};
  }
  return std::nullopt;
}

}  // namespace headroom
