#include "tools/workload/checkpoints.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/edge.h"
#include "base/errors.h"
#include "base/text.h"

namespace headroom {
namespace {

// Less of what is kept is not worth a change of the program.
constexpr double kLeastShare = 0.002;
// A module that keeps more than this runs again with everything in it alive.
constexpr double kMostShare = 0.6;
// Modules of one pattern that differ by less are treated as equal.
constexpr double kAlike = 1.15;

// Calls that for "a.b.c", "a.b" and "a".
template <typename Visit>
void visit_parents(std::string_view path, const Visit& visit) {
  while (!path.empty()) {
    visit(path);
    const size_t dot = path.rfind('.');
    path = dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
  }
}

std::string_view last_part(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? path : path.substr(dot + 1);
}

std::string_view parent_part(std::string_view path) {
  const size_t dot = path.rfind('.');
  return dot == std::string_view::npos ? std::string_view() : path.substr(0, dot);
}

bool is_index_part(std::string_view part) {
  return !part.empty() && part.find_first_not_of("0123456789") == std::string_view::npos;
}

// Bytes that a module and those inside it keep at the peak.
struct Kept {
  int64_t bytes = 0;
  int64_t largest_bytes = 0;
  int64_t result_event = -1, result_bytes = 0;  // result of the module, which a checkpoint also keeps
  double us = 0;
  bool holds_blocks = false;  // numbered modules that have modules themselves
};

struct Ranked {
  std::string path;
  double ratio = 0;  // of saved bytes to time
};

// Keeps similar modules together, in their order.
void make_alike(std::vector<Ranked>& ranked) {
  std::map<std::string, std::vector<size_t>> patterns;
  for (size_t i = 0; i < ranked.size(); ++i) {
    patterns[pattern_of(ranked[i].path).first].push_back(i);
  }
  for (const auto& [pattern, members] : patterns) {
    double least = ranked[members.front()].ratio, most = least, sum = 0;
    for (const size_t i : members) {
      least = std::min(least, ranked[i].ratio);
      most = std::max(most, ranked[i].ratio);
      sum += ranked[i].ratio;
    }
    if (most > kAlike * least) continue;
    for (const size_t i : members) ranked[i].ratio = sum / static_cast<double>(members.size());
  }
}

// Returns true if `module` is `parent` or inside it.
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

// A block that the forward pass of a module keeps for the backward pass of the same step.
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

}  // namespace

std::pair<std::string, int64_t> pattern_of(std::string_view path) {
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    if (const auto number = parse_number<int64_t>(part); number && is_index_part(part)) {
      return {std::string(path.substr(0, begin)) + "*" + std::string(path.substr(end)), *number};
    }
    begin = end + 1;
  }
  return {std::string(path), -1};
}

std::vector<std::string> checkpoint_order(const Trace& trace, const std::vector<ProgramModule>& modules) {
  std::unordered_map<std::string_view, Kept> by_path;
  for (const ProgramModule& module : modules) {
    visit_parents(module.path, [&](std::string_view path) { by_path[path].us += module.us; });
    if (!is_index_part(last_part(module.path)) || module.children == 0) continue;
    visit_parents(parent_part(module.path),
                  [&](std::string_view path) { by_path[path].holds_blocks = true; });
  }
  int64_t all = 0;
  for (const KeptBlock& kept : kept_blocks(trace)) {
    if (kept.allocated > trace.peak_event || kept.freed <= trace.peak_event) continue;
    const int64_t bytes = trace.events[static_cast<size_t>(kept.allocated)].bytes;
    const std::string_view module =
        trace.names[static_cast<size_t>(trace.block_facts[static_cast<size_t>(kept.block)].module)];
    all += bytes;
    visit_parents(module, [&](std::string_view path) {
      const auto found = by_path.find(path);
      if (found == by_path.end()) return;
      Kept& of_module = found->second;
      of_module.bytes += bytes;
      of_module.largest_bytes = std::max(of_module.largest_bytes, bytes);
      if (kept.allocated < of_module.result_event || kLeastResult * bytes < of_module.largest_bytes) return;
      of_module.result_event = kept.allocated;
      of_module.result_bytes = bytes;
    });
  }
  std::vector<Ranked> ranked;
  for (const ProgramModule& module : modules) {
    const Kept& kept = by_path[module.path];
    const int64_t saved = kept.bytes - kept.result_bytes;
    const double share = static_cast<double>(saved) / static_cast<double>(std::max<int64_t>(all, 1));
    if (kept.holds_blocks || share < kLeastShare || share > kMostShare) continue;
    ranked.push_back({module.path, static_cast<double>(saved) / std::max(kept.us, 1e-3)});
  }
  make_alike(ranked);
  std::ranges::stable_sort(ranked, [](const Ranked& a, const Ranked& b) { return a.ratio > b.ratio; });
  std::vector<std::string> order;
  for (Ranked& one : ranked) order.push_back(std::move(one.path));
  return order;
}

std::vector<std::string> first_checkpoints(std::span<const std::string> order, size_t count) {
  std::unordered_map<std::string_view, size_t> chosen;
  for (size_t i = 0; i < std::min(count, order.size()); ++i) chosen.emplace(order[i], i);
  std::vector<std::string> paths;
  for (size_t i = 0; i < std::min(count, order.size()); ++i) {
    bool is_inside = false;
    visit_parents(parent_part(order[i]),
                  [&](std::string_view parent) { is_inside = is_inside || chosen.contains(parent); });
    if (!is_inside && chosen[order[i]] == i) paths.push_back(order[i]);
  }
  return paths;
}

std::vector<ProgramModule> recorded_modules(const Trace& trace) {
  std::vector<ProgramModule> modules;
  std::unordered_map<std::string_view, size_t> position;
  const auto find = [&](std::string_view path) {
    const auto [found, is_new] = position.emplace(path, modules.size());
    if (is_new) modules.push_back({.path = std::string(path)});
    return found->second;
  };
  auto mark = trace.marks.begin();
  StepPhase phase = StepPhase::kSetup;
  for (size_t i = 0; i < trace.events.size(); ++i) {
    for (; mark != trace.marks.end() && mark->position <= static_cast<int64_t>(i); ++mark)
      phase = mark->phase;
    const TraceEvent& event = trace.events[i];
    if (!event.allocates || phase != StepPhase::kForward) continue;
    const std::string_view path =
        trace.names[static_cast<size_t>(trace.block_facts[static_cast<size_t>(event.block)].module)];
    if (path.empty()) continue;
    visit_parents(path, find);
    modules[find(path)].us += static_cast<double>(event.bytes);
  }
  for (size_t i = 0; i < modules.size(); ++i) {
    const std::string_view parent = parent_part(modules[i].path);
    if (!parent.empty()) ++modules[find(parent)].children;
  }
  return modules;
}

Trace with_checkpoints(const Trace& trace, const std::vector<std::string>& modules) {
  // For each step and module: its kept blocks, the end of its forward pass and the beginning of its backward
  // pass.
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
  // Events to insert after an event of the forward pass, and before one of the backward pass.
  std::map<int64_t, std::vector<TraceEvent>> behind, before;
  Trace changed = trace;
  std::vector<int32_t> renamed(static_cast<size_t>(trace.blocks), -1);
  for (const auto& [key, region] : regions) {
    // The module's result, which the next module needs. Sums for the backward pass may follow it.
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

int64_t edge_between(int64_t fitting, int64_t failing, const std::function<bool(int64_t number)>& fits) {
  SearchWork work;
  return EdgeSearch(work, [&](int64_t number) { return EdgeTrial{fits(number)}; })
      .between(fitting, failing)
      .fitting;
}

TraceCheckpoints trace_checkpoints(std::shared_ptr<ProgramTracer> tracer, std::optional<int64_t> batch,
                                   std::string model) {
  return [tracer = std::move(tracer), batch,
          model = std::move(model)](const std::vector<std::string>& modules) -> std::optional<Trace> {
    ProgramChanges changes;
    changes.checkpoints = modules;
    changes.model = model;
    try {
      return tracer->trace(batch, changes).trace;
    } catch (const InvalidArgument&) {  // such as a list of modules, which has no forward pass
      return std::nullopt;
    }
  };
}

TraceCheckpoints trace_checkpoints(const ProgramRequest& request) {
  const auto loaded = std::make_shared<TraceCheckpoints>();
  return [loaded, request](const std::vector<std::string>& modules) {
    if (!*loaded) {
      auto tracer = std::make_shared<ProgramTracer>(request);
      std::string model = tracer->trace(request.batch).model;
      *loaded = trace_checkpoints(std::move(tracer), request.batch, std::move(model));
    }
    return (*loaded)(modules);
  };
}

}  // namespace headroom
