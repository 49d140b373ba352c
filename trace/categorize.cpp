#include "trace/categorize.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "trace/infer_marks.h"

namespace headroom {
namespace {

using enum MemoryCategory;
using Rule = CategoryRule;

class Categories {
 public:
  explicit Categories(Trace& trace) : trace_(trace) {}

  void run() {
    follow_marks();
    find_lives();
    find_gradient_sizes();
    for (size_t block = 0; block < lives_.size(); ++block) {
      TraceBlock& facts = trace_.block_facts[block];
      if (facts.is_part || (facts.category != kOther && !is_kept_workspace(block))) continue;
      const Decision decision =
          facts.category == kOther ? decide(block) : Decision{kActivations, Rule::kOutlivesStep};
      facts.category = decision.category;
      facts.rule = decision.rule;
    }
    for (DeviceEvent& event : trace_.device_events) {
      if (event.kind != DeviceEvent::Kind::kOutOfMemory || event.category != kOther) continue;
      event.category = category_of_refused(event);
      if (event.category != kOther) event.rule = Rule::kRefused;
    }
  }

  // If there is no history, the lifetimes of blocks are unknown.
  void run_on_stacks() {
    for (size_t block = 0; block < trace_.block_facts.size(); ++block) {
      TraceBlock& facts = trace_.block_facts[block];
      if (facts.category != kOther || facts.stack == 0) continue;
      facts.category = category_of_stack(traits(block));
      if (facts.category != kOther) facts.rule = Rule::kStackAlone;
    }
  }

 private:
  struct Decision {
    MemoryCategory category = kOther;
    Rule rule = Rule::kNone;
  };
  struct Moment {
    int32_t step = 0;
    StepPhase phase = StepPhase::kSetup;
  };
  struct Life {
    size_t begin = 0, end = 0;  // events; `end` is the number of events if it stays
  };

  void follow_marks() {
    moments_.resize(trace_.events.size() + 1);
    Moment now;
    auto mark = trace_.marks.begin();
    for (size_t i = 0; i < moments_.size(); ++i) {
      for (; mark != trace_.marks.end() && mark->position <= static_cast<int64_t>(i); ++mark) {
        now = {mark->step, mark->phase};
        if (now.phase == StepPhase::kOptimizer && first_optimizer_step_ < 0) first_optimizer_step_ = now.step;
      }
      moments_[i] = now;
    }
  }

  // After the last allocation, or after memory finally ran out, all blocks are freed: that says nothing about
  // their purpose.
  size_t end_of_work() const {
    if (const DeviceEvent* failure = fatal_failure(trace_)) return static_cast<size_t>(failure->position);
    size_t end = trace_.events.size();
    while (end > 0 && !trace_.events[end - 1].allocates) --end;
    return end;
  }

  void find_lives() {
    stop_ = end_of_work();
    const size_t all = trace_.events.size();
    lives_.resize(static_cast<size_t>(trace_.blocks));
    freed_before_next_.resize(lives_.size());
    is_freed_.resize(lives_.size());
    size_t allocated_last = lives_.size();
    for (size_t i = 0; i < all; ++i) {
      const TraceEvent& event = trace_.events[i];
      const auto block = static_cast<size_t>(event.block);
      if (event.allocates) {
        lives_[block] = {i, all};
        allocated_last = block;
      } else {
        if (i < stop_) lives_[block].end = i;
        is_freed_[block] = true;
        freed_before_next_[block] = block == allocated_last;
      }
    }
  }

  bool stays(const Life& life) const { return life.end == trace_.events.size(); }
  // Freed later than in the step that made it, or never.
  bool outlives_step(const Life& life) const {
    return stays(life) || moments_[life.end].step > moments_[life.begin].step;
  }

  void find_gradient_sizes() {
    for (const Life& life : lives_) {
      const Moment& from = moments_[life.begin];
      if (from.phase != StepPhase::kBackward) continue;
      const bool freed_in_it = !stays(life) && moments_[life.end].step == from.step &&
                               moments_[life.end].phase == StepPhase::kBackward;
      if (!freed_in_it) gradient_sizes_.insert(trace_.events[life.begin].bytes);
    }
  }

  const StackTraits& traits(size_t block) { return traits_of_stack(trace_.block_facts[block].stack); }
  const StackTraits& traits_of_stack(int32_t stack) {
    const auto [at, added] = traits_.try_emplace(stack);
    if (added) at->second = traits_of(trace_.names[static_cast<size_t>(stack)]);
    return at->second;
  }

  Decision decide(size_t block) {
    const Life& life = lives_[block];
    const Moment from = moments_[life.begin];
    if (trace_.block_facts[block].stack != 0 && traits(block).is_workspace)
      return {kWorkspace, Rule::kWorkspaceFunction};
    if (static_cast<int64_t>(life.begin) < trace_.live_before) return decide_before(block);
    switch (from.phase) {
      case StepPhase::kSetup:
        return decide_setup(block);
      case StepPhase::kOptimizer:
        if (from.step == first_optimizer_step_ && outlives_step(life))
          return {kOptimizerState, Rule::kFirstOptimizerStep};
        return outlives_step(life) && !stays(life) ? Decision{kOptimizerState, Rule::kOptimizerKeeps}
                                                   : Decision{kWorkspace, Rule::kOptimizerTemporary};
      case StepPhase::kBackward:
        if (freed_before_next_[block] && !outlives_step(life)) return {kWorkspace, Rule::kOneOp};
        if (is_freed_in(life, StepPhase::kBackward) && !outlives_step(life))
          return {kGradients, Rule::kBackwardTemporary};
        return is_no_gradient(life) ? Decision{kWorkspace, Rule::kBackwardKeepsOther}
                                    : Decision{kGradients, Rule::kBackwardKeeps};
      case StepPhase::kForward:
      case StepPhase::kOther:
      case StepPhase::kEvaluation:
        break;
    }
    return decide_forward(block);
  }

  // A tracer marks blocks as workspace if no backward pass reads them, but a block that outlives its step is
  // kept by its graph.
  bool is_kept_workspace(size_t block) const {
    const Life& life = lives_[block];
    const Moment from = moments_[life.begin];
    return trace_.block_facts[block].category == kWorkspace && from.phase == StepPhase::kForward &&
           from.step > 0 && outlives_step(life) && !(is_freed_[block] && from.step == last_step());
  }

  // A request that failed has no lifetime: only its stack and names are known.
  MemoryCategory category_of_refused(const DeviceEvent& request) {
    if (request.stack != 0) {
      const MemoryCategory by_stack = category_of_stack(traits_of_stack(request.stack));
      if (by_stack != kOther) return by_stack;
    }
    const auto position = static_cast<size_t>(request.position);
    switch (moments_[position].phase) {
      case StepPhase::kForward:
      case StepPhase::kEvaluation:
        return follows_module({position, trace_.events.size()}) ? kActivations : kOther;
      case StepPhase::kBackward:
        return kGradients;
      case StepPhase::kOptimizer:
        return kOptimizerState;
      case StepPhase::kSetup:
      case StepPhase::kOther:
        break;
    }
    return kOther;
  }

  int32_t last_step() const { return moments_[stop_ > 0 ? stop_ - 1 : 0].step; }

  // The weights have another size, so a library keeps it. They are known if the history begins with them.
  bool is_no_gradient(const Life& life) {
    if (setup_sizes_.empty() && trace_.live_before == 0) {
      for (const Life& other : lives_) {
        if (moments_[other.begin].phase == StepPhase::kSetup && stays(other))
          setup_sizes_.insert(trace_.events[other.begin].bytes);
      }
    }
    return !setup_sizes_.empty() && !setup_sizes_.contains(trace_.events[life.begin].bytes);
  }

  bool is_freed_in(const Life& life, StepPhase phase) const {
    return !stays(life) && moments_[life.end].phase == phase;
  }

  static MemoryCategory category_of_stack(const StackTraits& traits) {
    if (traits.is_workspace) return kWorkspace;
    if (traits.is_optimizer) return kOptimizerState;
    if (traits.is_backward) return kGradients;
    if (traits.builds_module) return kWeights;
    return traits.calls_module ? kActivations : kOther;
  }

  // Decides for blocks from before the history: only the stack, if the allocator still had it, tells their
  // origin.
  Decision decide_before(size_t block) {
    const Life& life = lives_[block];
    if (is_freed_in(life, StepPhase::kBackward)) return {kActivations, Rule::kFreedInBackward};
    if (trace_.block_facts[block].stack != 0) {
      if (traits(block).is_optimizer) return {kOptimizerState, Rule::kOptimizerKeeps};
      if (traits(block).is_backward) return {kGradients, Rule::kBackwardKeeps};
      // Weights come from constructors or are moved; a forward makes results, and its libraries' handles keep
      // a workspace each. Kept results are many of one stack, and C++ frames would name a workspace.
      if (stays(life) && traits(block).is_forward) {
        return traits(block).has_native || !is_alone(block) ? Decision{kActivations, Rule::kBeforeHistory}
                                                            : Decision{kWorkspace, Rule::kHandleKeeps};
      }
    }
    const bool is_weight = stays(life) && (trace_.block_facts[block].stack != 0 ||
                                           gradient_sizes_.contains(trace_.events[life.begin].bytes));
    return {is_weight ? kWeights : kOther, Rule::kBeforeHistory};
  }

  // Returns true if no other block from before the history has the same stack and size.
  bool is_alone(size_t block) {
    const auto key = [&](size_t of) {
      return std::pair(trace_.block_facts[of].stack, trace_.events[lives_[of].begin].bytes);
    };
    if (alike_before_.empty()) {
      for (size_t other = 0; other < lives_.size(); ++other) {
        if (static_cast<int64_t>(lives_[other].begin) < trace_.live_before) ++alike_before_[key(other)];
      }
    }
    return alike_before_[key(block)] == 1;
  }

  Decision decide_setup(size_t block) {
    const Life& life = lives_[block];
    if (!stays(life)) return {kOther, Rule::kSetupTemporary};
    const bool built_by_module = trace_.block_facts[block].stack == 0 || traits(block).is_module_code;
    if (!built_by_module && !gradient_sizes_.empty() &&
        !gradient_sizes_.contains(trace_.events[life.begin].bytes)) {
      return {kInputs, Rule::kSetupWithoutGradient};
    }
    return {kWeights, Rule::kSetupKeeps};
  }

  Decision decide_forward(size_t block) {
    const Life& life = lives_[block];
    if (!stays(life) && is_freed_in(life, StepPhase::kBackward) && !outlives_step(life))
      return {kActivations, Rule::kFreedInBackward};
    if (!outlives_step(life) && is_freed_in(life, StepPhase::kForward)) {
      return freed_before_next_[block] ? Decision{kWorkspace, Rule::kOneOp}
                                       : Decision{kActivations, Rule::kForwardTemporary};
    }
    const bool in_module = trace_.block_facts[block].stack != 0 && traits(block).calls_module;
    if (moments_[life.begin].phase == StepPhase::kForward && !in_module && !follows_module(life)) {
      return {kInputs, Rule::kBeforeModules};
    }
    if (!in_module && moments_[life.begin].phase == StepPhase::kOther) return {kOther, Rule::kOutsidePhases};
    if (stays(life) && moments_[life.begin].step == last_step()) return {kActivations, Rule::kLiveAtEnd};
    return {kActivations, outlives_step(life) ? Rule::kOutlivesStep : Rule::kForwardTemporary};
  }

  // Returns true if a module was called earlier in the same step.
  bool follows_module(const Life& life) {
    if (first_module_.empty()) {
      for (size_t b = 0; b < lives_.size(); ++b) {
        if (trace_.block_facts[b].stack == 0 || !traits(b).calls_module) continue;
        first_module_.try_emplace(moments_[lives_[b].begin].step, lives_[b].begin);
      }
      first_module_.try_emplace(-1, 0);
    }
    const auto found = first_module_.find(moments_[life.begin].step);
    return found != first_module_.end() && found->second < life.begin;
  }

  Trace& trace_;
  std::vector<Moment> moments_;  // by event
  std::vector<Life> lives_;      // by block
  std::vector<bool> freed_before_next_, is_freed_;
  std::unordered_set<int64_t> gradient_sizes_, setup_sizes_;
  std::unordered_map<int32_t, StackTraits> traits_;
  std::map<std::pair<int32_t, int64_t>, int64_t> alike_before_;  // stack, bytes -> blocks before the history
  std::unordered_map<int32_t, size_t> first_module_;             // by step: the first event inside a module
  int32_t first_optimizer_step_ = -1;
  size_t stop_ = 0;  // the end of the work
};

}  // namespace

const DeviceEvent* fatal_failure(const Trace& trace) {
  const auto last =
      std::find_if(trace.device_events.rbegin(), trace.device_events.rend(),
                   [](const auto& event) { return event.kind == DeviceEvent::Kind::kOutOfMemory; });
  if (last == trace.device_events.rend()) return nullptr;
  int32_t step = 0, failed_step = 0;
  auto mark = trace.marks.begin();
  int64_t live_bytes = 0, failed_bytes = 0;
  for (int64_t i = 0; i < std::ssize(trace.events); ++i) {
    if (i == last->position) {
      failed_bytes = live_bytes;
      failed_step = step;
    }
    for (; mark != trace.marks.end() && mark->position <= i; ++mark) step = mark->step;
    const TraceEvent& event = trace.events[static_cast<size_t>(i)];
    live_bytes += event.allocates ? event.bytes : -event.bytes;
    if (i < last->position || !event.allocates) continue;
    if (step > failed_step || live_bytes > failed_bytes) return nullptr;
  }
  return &*last;
}

void categorize(Trace& trace) {
  if (!trace.marks.empty()) {
    Categories(trace).run();
  } else if (is_moment(trace)) {
    Categories(trace).run_on_stacks();
  }
}

bool is_moment(const Trace& trace) {
  return trace.live_before == std::ssize(trace.events);
}

}  // namespace headroom
