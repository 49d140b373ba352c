#include "trace/infer_marks.h"

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <memory_resource>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/offset_table.h"
#include "trace/stack.h"
#include "trace/text_table.h"

namespace headroom {
namespace {

bool has_part(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Some recorders put the class before: "Module._call_impl".
bool is_named(const StackFrame& frame, std::string_view name) {
  const std::string_view function = frame.function;
  return function.ends_with(name) &&
         (function.size() == name.size() || function[function.size() - name.size() - 1] == '.');
}

bool is_optimizer_step(const StackFrame& frame) {
  if (!has_part(frame.file, "torch/optim/") || has_part(frame.file, "lr_scheduler")) return false;
  // torch.optim.Optimizer wraps the `step` of every optimizer, also of other packages.
  return is_named(frame, "step") || (is_named(frame, "wrapper") && frame.file.ends_with("/optimizer.py"));
}

bool is_backward_call(const StackFrame& frame) {
  return (is_named(frame, "backward") || is_named(frame, "grad") ||
          is_named(frame, "_engine_run_backward")) &&
         (frame.file.ends_with("torch/_tensor.py") || has_part(frame.file, "torch/autograd/"));
}

// Autograd's threads call Python from here.
bool begins_in_autograd(const StackFrame& frame) {
  return frame.file.ends_with("torch/autograd/function.py") ||
         frame.file.ends_with("torch/utils/checkpoint.py");
}

bool is_module_call(const StackFrame& frame) {
  return is_named(frame, "_call_impl") && frame.file.ends_with("torch/nn/modules/module.py");
}

// A subclass may be another package's, so the file decides.
bool is_forward_code(const StackFrame& frame) {
  return has_part(frame.file, "torch/nn/functional.py") ||
         (has_part(frame.file, "torch/nn/modules/") && frame.function.ends_with("forward"));
}

bool builds_module(const StackFrame& frame) {
  return has_part(frame.file, "torch/nn/") && (is_named(frame, "__init__") || is_named(frame, "_apply"));
}

// The Python frames of each stack as numbers, the outermost first.
class StackPaths {
 public:
  struct Path {
    StackTraits traits;
    std::span<const int32_t> frames;
  };
  struct Frame {
    int32_t function = 0;  // equal for all lines of a function
    bool is_module_call = false, is_parallel = false, is_optimizer = false;
  };

  explicit StackPaths(const Trace& trace) : trace_(trace), path_of_stack_(trace.names.size(), -1) {}

  const StackTraits& traits(int32_t stack) { return path(stack).traits; }
  // Finds the frames as well, which takes longer: the parts of many stacks have to be compared.
  const Path& of(int32_t stack) {
    Path& found = path(stack);
    if (found.frames.data() == nullptr) found.frames = frames_in(trace_.names[static_cast<size_t>(stack)]);
    return found;
  }
  const Frame& frame(int32_t number) const { return frames_[static_cast<size_t>(number)]; }

 private:
  // Numbers of texts that the names of the trace keep.
  class Views {
   public:
    int32_t number_of(std::string_view view) {
      const uint32_t hash = TextTable::hash(view);
      const int32_t known =
          table_.find(hash, view, [&](int32_t number) { return views_[static_cast<size_t>(number)]; });
      if (known != TextTable::kNone) return known;
      views_.push_back(view);
      return table_.add(hash);
    }

   private:
    TextTable table_;
    std::vector<std::string_view> views_;
  };

  Path& path(int32_t stack) {
    int32_t& number = path_of_stack_[static_cast<size_t>(stack)];
    if (number < 0) {
      number = static_cast<int32_t>(paths_.size());
      paths_.push_back({traits_of(trace_.names[static_cast<size_t>(stack)]), {}});
    }
    return paths_[static_cast<size_t>(number)];
  }

  std::span<const int32_t> frames_in(std::string_view text) {
    const std::vector<StackFrame> frames = frames_of(text);
    std::vector<std::string_view> lines;
    for (size_t i = 0; i < frames.size(); ++i) {
      lines.push_back(text.substr(0, text.find('\n')));
      text.remove_prefix(std::min(text.size(), lines.back().size() + 1));
    }
    std::vector<int32_t> numbers;
    for (size_t i = frames.size(); i-- > 0;) {
      if (frames[i].is_python()) numbers.push_back(number_of(lines[i], frames[i]));
    }
    auto* const kept =
        static_cast<int32_t*>(numbers_.allocate(numbers.size() * sizeof(int32_t), alignof(int32_t)));
    std::copy(numbers.begin(), numbers.end(), kept);
    return {kept, numbers.size()};
  }

  int32_t number_of(std::string_view line, const StackFrame& frame) {
    const int32_t number = lines_.number_of(line);
    if (static_cast<size_t>(number) < frames_.size()) return number;
    const int64_t function =
        int64_t{files_.number_of(frame.file)} << 32 | functions_.number_of(frame.function);
    if (function_numbers_.find(function) == OffsetTable::kNone) {
      function_numbers_.prepare();
      function_numbers_.insert(function, function_count_++);
    }
    frames_.push_back({.function = function_numbers_.find(function),
                       .is_module_call = is_module_call(frame),
                       .is_parallel = has_part(frame.file, "torch/nn/parallel/"),
                       .is_optimizer = has_part(frame.file, "torch/optim/")});
    return number;
  }

  const Trace& trace_;
  std::vector<int32_t> path_of_stack_;
  std::deque<Path> paths_;
  std::pmr::monotonic_buffer_resource numbers_;  // numbers of all paths
  Views lines_, files_, functions_;
  OffsetTable function_numbers_{1};  // by the numbers of its file and its name
  int32_t function_count_ = 0;
  std::vector<Frame> frames_;  // by line
};

class MarkFinder {
 public:
  MarkFinder(const Trace& trace, std::span<const int32_t> stacks)
      : trace_(trace), stacks_(stacks.begin(), stacks.end()), paths_(trace) {}

  std::vector<TraceMark> find() {
    classify();
    if (!has_python_ || work_.back() == 0) return {};
    find_loop();
    if (starts_.empty()) start_after_phases();
    if (starts_.empty()) return {};
    return marks();
  }

 private:
  static constexpr size_t kMaxLevels = 500;

  enum class Kind : uint8_t { kUnknown, kPython, kModule, kBackward, kOptimizer };
  struct Site {
    size_t event;
    const StackPaths::Path* path;
  };

  void classify() {
    const size_t count = trace_.events.size();
    kinds_.resize(count);
    bool has_native = false, frees_have_stacks = false;
    std::vector<int32_t> made_at(count);  // block -> the stack of its allocation
    for (size_t i = 0; i < count; ++i) {
      if (trace_.events[i].allocates) made_at[static_cast<size_t>(trace_.events[i].block)] = stacks_[i];
      if (stacks_[i] == 0) continue;
      const StackTraits& traits = paths_.traits(stacks_[i]);
      has_python_ |= traits.has_python;
      has_native |= traits.has_native;
      // If PyTorch records stacks of allocations alone, it gives a free that of the allocation.
      const int32_t made = made_at[static_cast<size_t>(trace_.events[i].block)];
      frees_have_stacks |= made != 0 && stacks_[i] != made;
    }
    if (!frees_have_stacks) {
      for (size_t i = 0; i < count; ++i) {
        if (!trace_.events[i].allocates) stacks_[i] = 0;
      }
    }
    work_.resize(count + 1);
    backward_.resize(count + 1);
    for (size_t i = 0; i < count; ++i) {
      kinds_[i] = kind_of(i, has_native, frees_have_stacks);
      work_[i + 1] = work_[i] + (kinds_[i] >= Kind::kModule ? 1 : 0);
      backward_[i + 1] = backward_[i] + (kinds_[i] == Kind::kBackward ? 1 : 0);
    }
  }

  Kind kind_of(size_t event, bool has_native, bool frees_have_stacks) {
    if (static_cast<int64_t>(event) < trace_.live_before) return Kind::kUnknown;
    if (stacks_[event] == 0) {
      // Autograd's threads run no Python, so their stacks are empty where only Python's frames are recorded.
      const bool told = trace_.events[event].allocates || frees_have_stacks;
      return !has_native && told ? Kind::kBackward : Kind::kUnknown;
    }
    const StackTraits& traits = paths_.traits(stacks_[event]);
    if (traits.is_backward) return Kind::kBackward;
    if (traits.is_optimizer) return Kind::kOptimizer;
    if (traits.calls_module) return Kind::kModule;
    return traits.has_python ? Kind::kPython : Kind::kUnknown;
  }

  bool has_work(size_t begin, size_t end) const { return work_[end] > work_[begin]; }

  // The turns of a loop: the events that begin them.
  struct Loop {
    std::vector<size_t> starts;
    bool in_module = false;  // found by the calls of a module, not by lines around them
  };

  void find_loop() {
    for (const int32_t stack : stacks_) {
      if (stack != 0) paths_.of(stack);  // in this order, which decides between equals
    }
    std::vector<Site> sites;
    std::unordered_map<int32_t, size_t> roots;
    for (size_t i = 0; i < kinds_.size(); ++i) {
      if (kinds_[i] == Kind::kUnknown || kinds_[i] == Kind::kBackward) continue;
      const StackPaths::Path& path = paths_.of(stacks_[i]);
      sites.push_back({i, &path});
      ++roots[paths_.frame(path.frames[0]).function];
    }
    if (sites.empty()) return;
    // Other threads begin in other functions.
    const auto main = std::ranges::max_element(roots, [](const auto& a, const auto& b) {
      return std::pair(a.second, -a.first) < std::pair(b.second, -b.first);
    });
    std::erase_if(
        sites, [&](const Site& site) { return paths_.frame(site.path->frames[0]).function != main->first; });
    starts_ = loop_in(sites, 0, 0).starts;
  }

  // The innermost loops whose turns work, below a level of the stacks that all sites share. `modules`: how
  // many calls of modules are above.
  // Changes the order of the sites.
  Loop loop_in(std::span<Site> sites, size_t level, int modules) {
    if (sites.size() < 2) return {};
    // Inside a module lines also repeat for its layers; only its first line distinguishes calls.
    Loop loop = {repetitions(sites, level, modules > 0), modules > 0};
    size_t turns = working_turns(loop.starts);
    if (turns < 2 || (modules > 0 && !repeats_all(sites, level, loop.starts))) {
      loop.starts.clear();
      turns = 0;
    }
    if (level == kMaxLevels) return loop;
    const auto line_of = [&](const Site& site) {
      return site.path->frames.size() > level ? site.path->frames[level] : -1;
    };
    const auto is_before = [&](const Site& a, const Site& b) { return line_of(a) < line_of(b); };
    if (!std::ranges::is_sorted(sites, is_before)) std::ranges::stable_sort(sites, is_before);
    std::vector<Loop> inner;
    for (size_t begin = 0, end = 0; begin < sites.size(); begin = end) {
      const int32_t line = line_of(sites[begin]);
      while (end < sites.size() && line_of(sites[end]) == line) ++end;
      if (line < 0) continue;
      if (paths_.frame(line).is_optimizer) continue;  // it repeats its lines for each parameter
      const int calls =
          paths_.frame(line).is_parallel ? 0 : modules + (paths_.frame(line).is_module_call ? 1 : 0);
      if (calls == 2) continue;
      Loop found = loop_in(sites.subspan(begin, end - begin), level + 1, calls);
      if (!found.starts.empty() && (turns == 0 || refines(found, loop, turns)))
        inner.push_back(std::move(found));
    }
    if (inner.empty()) return loop;
    const bool only_modules = std::ranges::all_of(inner, [](const Loop& found) { return found.in_module; });
    Loop all = {{}, only_modules};
    for (const Loop& found : inner) {
      if (found.in_module != only_modules) continue;
      all.starts.insert(all.starts.end(), found.starts.begin(), found.starts.end());
    }
    std::ranges::sort(all.starts);
    return all;
  }

  size_t working_turns(const std::vector<size_t>& starts) const {
    size_t turns = 0;
    for (size_t i = 0; i < starts.size(); ++i) turns += has_work(starts[i], end_of(starts, i)) ? 1 : 0;
    return turns;
  }
  size_t end_of(const std::vector<size_t>& starts, size_t turn) const {
    return turn + 1 < starts.size() ? starts[turn + 1] : kinds_.size();
  }

  // Returns true if the iterations of an inner loop are steps rather than parts of one: a loop over batches
  // inside one over epochs, not two calls of a module in one step.
  bool refines(const Loop& inner, const Loop& outer, size_t turns) const {
    if (inner.in_module || working_turns(inner.starts) < 2 * turns) return false;
    const bool trains = backward_[kinds_.size()] > backward_[outer.starts.front()];
    if (!trains) return true;
    size_t training = 0, all = 0;
    for (size_t i = 0; i + 1 < inner.starts.size(); ++i) {
      ++all;
      training += backward_[inner.starts[i + 1]] > backward_[inner.starts[i]] ? 1 : 0;
    }
    // A loop that never trains is one over an evaluation's batches.
    return training == 0 || training * 2 > all;
  }

  // Returns true if the iterations have the same lines, as calls of a module have; other lines follow a loop
  // over its layers.
  static bool repeats_all(std::span<const Site> sites, size_t level, const std::vector<size_t>& starts) {
    std::map<int32_t, std::pair<size_t, size_t>>
        turns_of;  // line -> how many turns have it, the last of them
    size_t turn = 0;
    for (const Site& site : sites) {
      while (turn < starts.size() && starts[turn] <= site.event) ++turn;
      if (site.path->frames.size() <= level) continue;
      auto& [count, last] = turns_of[site.path->frames[level]];
      if (count == 0 || last != turn) ++count;
      last = turn;
    }
    const size_t turns = starts.size();
    return std::ranges::all_of(turns_of, [&](const auto& line) {
      const auto& [count, latest] = line.second;
      if (count + 1 >= turns) return count > 1 || latest < turns;
      return count == 1 && latest <= 1;  // only in the first call, as what is made once
    });
  }

  // Returns the events that begin a new iteration: those at which lines at this level of the stacks repeat.
  static std::vector<size_t> repetitions(std::span<const Site> sites, size_t level, bool first_only) {
    std::vector<size_t> starts;
    std::unordered_set<int32_t> begins;             // lines that begin a turn
    std::unordered_map<int32_t, size_t> this_turn;  // line -> its first event in this turn
    int32_t before = -2;
    int32_t first = -2;
    for (const Site& site : sites) {
      if (site.path->frames.size() <= level) continue;  // the caller's own line, which stays the same
      const int32_t line = site.path->frames[level];
      if (first == -2) first = line;
      if (std::exchange(before, line) == line) continue;
      const auto seen = this_turn.find(line);
      if (!first_only || line == first) {
        if (seen != this_turn.end() && begins.insert(line).second) starts.push_back(seen->second);
        if (seen != this_turn.end() || begins.contains(line)) {
          starts.push_back(site.event);
          this_turn.clear();
        }
      }
      this_turn.try_emplace(line, site.event);
    }
    std::ranges::sort(starts);
    starts.erase(std::unique(starts.begin(), starts.end()), starts.end());
    return starts;
  }

  // If there is no loop, a step ends with the optimizer, or with backward if there is no optimizer.
  void start_after_phases() {
    const bool has_optimizer = std::ranges::find(kinds_, Kind::kOptimizer) != kinds_.end();
    const Kind last = has_optimizer ? Kind::kOptimizer : Kind::kBackward;
    bool ended = true;
    for (size_t i = 0; i < kinds_.size(); ++i) {
      if (kinds_[i] == last) {
        ended = true;
      } else if (ended && kinds_[i] == Kind::kModule) {
        starts_.push_back(i);
        ended = false;
      }
    }
  }

  std::vector<TraceMark> marks() {
    // If the history begins inside a step, the rest of that step counts as a step.
    const auto trains = [](Kind kind) { return kind == Kind::kBackward || kind == Kind::kOptimizer; };
    const auto first = kinds_.begin() + static_cast<ptrdiff_t>(starts_.front());
    if (std::any_of(kinds_.begin(), first, trains)) {
      starts_.insert(starts_.begin(), static_cast<size_t>(trace_.live_before));
    }
    std::vector<TraceMark> marks;
    int32_t step = 0;
    auto phase = StepPhase::kSetup;
    auto next = starts_.begin();
    const auto put = [&](size_t event) {
      if (!marks.empty() && marks.back().step == step && marks.back().phase == phase) return;
      marks.push_back({.position = static_cast<int64_t>(event),
                       .step = step,
                       .phase = phase,
                       .time_ns = trace_.events[event].time_ns});
    };
    for (size_t i = 0; i < kinds_.size(); ++i) {
      if (next != starts_.end() && *next == i) {
        ++next;
        const bool works = has_work(i, next == starts_.end() ? kinds_.size() : *next);
        if (works) ++step;
        phase = works ? StepPhase::kForward : step == 0 ? StepPhase::kSetup : StepPhase::kOther;
      }
      if (step > 0) phase = phase_after(phase, kinds_[i]);
      put(i);
    }
    return marks;
  }

  static StepPhase phase_after(StepPhase phase, Kind kind) {
    switch (kind) {
      case Kind::kUnknown:
        return phase;
      case Kind::kPython:  // the batch before the net, or what comes after backward
        return phase == StepPhase::kForward ? phase : StepPhase::kOther;
      case Kind::kModule:
        return StepPhase::kForward;
      case Kind::kBackward:
        return StepPhase::kBackward;
      case Kind::kOptimizer:
        return StepPhase::kOptimizer;
    }
    return phase;
  }

  const Trace& trace_;
  std::vector<int32_t> stacks_;  // by event
  StackPaths paths_;
  bool has_python_ = false;
  std::vector<Kind> kinds_;  // by event
  // By event: how many events before it belong to a net or an optimizer, how many to a backward pass.
  std::vector<int64_t> work_, backward_;
  std::vector<size_t> starts_;
};

}  // namespace

StackTraits traits_of(std::string_view stack) {
  StackTraits traits;
  const std::vector<StackFrame> frames = frames_of(stack);
  const StackFrame* outermost = nullptr;
  for (const StackFrame& frame : frames) {
    if (!frame.is_python()) {
      traits.has_native = true;
      traits.is_backward |= has_part(frame.function, "torch::autograd::Engine::");
      traits.is_workspace |= has_part(frame.function, "Workspace");
      continue;
    }
    const bool is_innermost = !traits.has_python;
    traits.has_python = true;
    outermost = &frame;
    if (!frame.is_torch()) continue;
    traits.is_forward |= is_innermost && is_forward_code(frame);
    traits.builds_module |= builds_module(frame);
    // Frames come from the innermost on, so what a closure of the optimizer's step computes is a forward.
    traits.is_optimizer |=
        is_optimizer_step(frame) && !traits.calls_module && !traits.is_backward && !traits.is_forward;
    traits.is_backward |= is_backward_call(frame);
    traits.calls_module |= is_module_call(frame);
    traits.is_module_code |= has_part(frame.file, "torch/nn/");
  }
  if (outermost != nullptr) traits.is_backward |= begins_in_autograd(*outermost);
  return traits;
}

std::vector<TraceMark> infer_marks(const Trace& trace, std::span<const int32_t> stacks) {
  return MarkFinder(trace, stacks).find();
}

}  // namespace headroom
