#include "tools/workload/checkpoint_order.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <map>
#include <unordered_map>
#include <utility>

#include "tools/workload/torch_advice.h"

namespace headroom {
namespace {

// Less of what is kept is not worth a change of the program.
constexpr double kLeastShare = 0.002;
// A module that keeps more than this runs again with everything in it alive.
constexpr double kMostShare = 0.6;
// Modules of one pattern that differ by less are alike.
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

// What a module and those inside it keep at the peak.
struct Kept {
  int64_t bytes = 0;
  int64_t largest_bytes = 0;
  int64_t result_event = -1, result_bytes = 0;  // the module's result, which a checkpoint keeps, too
  double us = 0;
  bool holds_blocks = false;  // numbered modules that have modules themselves
};

struct Ranked {
  CheckpointCandidate candidate;
  double ratio = 0;
};

// Modules that are alike stay together, in their order.
void make_alike(std::vector<Ranked>& ranked) {
  std::map<std::string, std::vector<size_t>> patterns;
  for (size_t i = 0; i < ranked.size(); ++i) {
    patterns[pattern_of(ranked[i].candidate.path).text].push_back(i);
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

}  // namespace

ModulePattern pattern_of(std::string_view path) {
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('.', begin), path.size());
    const std::string_view part = path.substr(begin, end - begin);
    ModulePattern pattern;
    if (is_index_part(part) &&
        std::from_chars(part.data(), part.data() + part.size(), pattern.number).ec == std::errc()) {
      pattern.text = std::string(path.substr(0, begin)) + "*" + std::string(path.substr(end));
      return pattern;
    }
    begin = end + 1;
  }
  return {std::string(path), -1};
}

std::vector<CheckpointCandidate> checkpoint_order(const Trace& trace,
                                                  const std::vector<ProgramModule>& modules) {
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
    ranked.push_back({{module.path, saved, kept.us}, static_cast<double>(saved) / std::max(kept.us, 1e-3)});
  }
  make_alike(ranked);
  std::stable_sort(ranked.begin(), ranked.end(),
                   [](const Ranked& a, const Ranked& b) { return a.ratio > b.ratio; });
  std::vector<CheckpointCandidate> order;
  for (Ranked& one : ranked) order.push_back(std::move(one.candidate));
  return order;
}

std::vector<std::string> first_checkpoints(std::span<const CheckpointCandidate> order, size_t count) {
  std::unordered_map<std::string_view, size_t> chosen;
  for (size_t i = 0; i < std::min(count, order.size()); ++i) chosen.emplace(order[i].path, i);
  std::vector<std::string> paths;
  for (size_t i = 0; i < std::min(count, order.size()); ++i) {
    bool is_inside = false;
    visit_parents(parent_part(order[i].path),
                  [&](std::string_view parent) { is_inside = is_inside || chosen.contains(parent); });
    if (!is_inside && chosen[order[i].path] == i) paths.push_back(order[i].path);
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

}  // namespace headroom
