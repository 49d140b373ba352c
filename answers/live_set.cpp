#include "answers/live_set.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/text.h"
#include "trace/stack.h"
#include "trace/unfold.h"

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
  MemoryShares largest_first(std::string_view nothing) const {
    MemoryShares shares;
    int64_t unnamed = 0;
    for (size_t i = 0; i < names_.size(); ++i) {
      if (names_[i].empty()) unnamed = bytes_[i];
      if (!names_[i].empty() && bytes_[i] > 0) shares.push_back({std::string(names_[i]), bytes_[i]});
    }
    std::ranges::stable_sort(shares, [](const auto& a, const auto& b) { return a.second > b.second; });
    if (unnamed > 0 && !shares.empty()) shares.push_back({std::string(nothing), unnamed});
    return shares;
  }

 private:
  std::unordered_map<std::string_view, size_t> numbers_;
  std::vector<std::string_view> names_;
  std::vector<int64_t> bytes_;
};

// The lines that blocks count for. Of a model that comes from a package it is the package's line: the user's
// own calls all of the model.
class Lines {
 public:
  explicit Lines(const Trace& trace) : trace_(trace) {}

  std::string_view line_of(const TraceBlock& block) {
    const auto [found, is_new] = in_packages_.try_emplace(block.stack);
    if (is_new) found->second = in_package(trace_.names[static_cast<size_t>(block.stack)]);
    return found->second.empty() ? trace_.names[static_cast<size_t>(block.source)] : found->second;
  }

 private:
  static bool is_packages(const StackFrame& frame) {
    return path_in_package(frame.file).size() < frame.file.size();
  }

  // "gpt2/modeling_gpt2.py:212": the innermost line of a package in a module's call; empty if there is none.
  static std::string in_package(std::string_view stack) {
    const StackFrame* line = nullptr;
    const std::vector<StackFrame> frames = frames_of(stack);
    for (const StackFrame& frame : frames) {
      if (frame.is_users()) break;
      const bool is_call = frame.is_torch() && frame.function.ends_with("_call_impl");
      if (is_call && line != nullptr) {
        const std::string_view path = path_in_package(line->file);
        const size_t folder = path.rfind('/', path.rfind('/') - 1);
        return fmt::format("{}:{}", path.substr(folder == std::string_view::npos ? 0 : folder + 1),
                           line->line);
      }
      if (line == nullptr && !frame.is_torch() && is_packages(frame)) line = &frame;
    }
    return {};
  }

  const Trace& trace_;
  std::unordered_map<int32_t, std::string> in_packages_;  // by stack
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
  const auto next =
      std::ranges::find_if(trace.marks, [&](const TraceMark& mark) { return mark.position > position; });
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
  if (!trace.parts.empty()) return largest_live_set(unfold(trace));
  LiveSet result;
  const Owners owners(trace);
  Lines lines(trace);
  Shares by_module, by_line;
  std::vector<std::pair<size_t, size_t>> shares(trace.block_facts.size());  // shares of each block
  const auto end = std::min<size_t>(static_cast<size_t>(trace.peak_event) + 1, trace.events.size());
  for (size_t i = 0; i < end; ++i) {
    const TraceEvent& event = trace.events[i];
    const TraceBlock& block = trace.block_facts[static_cast<size_t>(event.block)];
    const int64_t change = event.allocates ? event.bytes : -event.bytes;
    result.by_category[static_cast<size_t>(block.category)] += change;
    auto& [module, line] = shares[static_cast<size_t>(event.block)];
    if (event.allocates) {
      module = by_module.number(owners.module_of(event));
      line = by_line.number(lines.line_of(block));
    }
    by_module.add(module, change);
    by_line.add(line, change);
  }
  result.by_module = by_module.largest_first(kNoModule);
  result.by_line = by_line.largest_first(kNoLine);
  if (end > 0) result.where = event_text(trace, trace.events[end - 1]);
  return result;
}

}  // namespace headroom
