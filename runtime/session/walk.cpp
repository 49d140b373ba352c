#include "runtime/session/walk.h"

#include <algorithm>

#include "runtime/session/start_op.h"

namespace headroom {

Walk::Walk(PlanMemory& memory) : memory_(memory) {
  const std::vector<Step>& steps = memory_.plan().steps;
  const auto is_run = [](const Step& step) { return step.kind == StepKind::kRun; };
  nodes_.reserve(static_cast<size_t>(std::ranges::count_if(steps, is_run)));
  steps_.reserve(steps.size());
  for (const Step& step : steps) {
    if (!is_run(step)) {
      steps_.push_back(step);
      continue;
    }
    const bool is_update_node = is_update(memory_.graph().node(step.id).op);
    const bool goes_on =
        !steps_.empty() && is_run(steps_.back()) && groups_.back().is_update == is_update_node;
    nodes_.push_back(step.id);
    if (!goes_on) {
      steps_.push_back({StepKind::kRun, static_cast<int>(groups_.size())});
      groups_.push_back({{&nodes_.back(), 0}, is_update_node});
    }
    std::span<const int>& nodes = groups_.back().nodes;
    nodes = {nodes.data(), nodes.size() + 1};
  }
  is_started_.resize(groups_.size());
}

void Walk::start(int group) {
  if (is_started_[static_cast<size_t>(group)]) return;
  for (const int id : groups_[static_cast<size_t>(group)].nodes) {
    const PlacedDevice& on = memory_.device_of(memory_.graph().node(id));
    start_node(memory_.graph(), id, *on.device, *on.allocator);
  }
  is_started_[static_cast<size_t>(group)] = true;
}

// Memory may be deallocated while a GPU still works on it: later requests queue their work afterwards, on the
// same stream of the device, and copies between devices are in order with both.
void Walk::run_pass(const Pass& pass, Stream stream, PlanWork& work) {
  bool is_updating = false;
  for (const Step& step : steps_) {
    switch (step.kind) {
      case StepKind::kAllocate:
        memory_.allocate(step.id, stream);
        work.allocated(step.id);
        break;
      case StepKind::kDeallocate:
        memory_.deallocate(step.id, stream);
        work.deallocated(step.id);
        break;
      case StepKind::kCopyIn:
        if (pass.copies_in) work.copy_in(step.id);
        break;
      case StepKind::kCopyOut:
        if (pass.is_last) work.copy_out(step.id);
        break;
      case StepKind::kRun: {
        if (!groups_[static_cast<size_t>(step.id)].is_update) {
          start(step.id);
        } else if (!is_updating) {
          // Everything that can still fail must do so before the first variable changes.
          is_updating = true;
          for (size_t other = 0; other < groups_.size(); ++other) {
            if (groups_[other].is_update) start(static_cast<int>(other));
          }
          if (pass.is_last) work.wait_before_updates();
        }
        work.run_group(step.id);
        break;
      }
    }
  }
}

void Walk::run_inner_steps(int64_t steps, Stream stream, PlanWork& work) {
  const bool can_replay = has_arena(memory_.plan().mode);
  while (steps > 0) {
    const int64_t replayed = can_replay ? work.replay(steps) : 0;
    if (replayed == 0) run_pass({.copies_in = false, .is_last = false}, stream, work);
    steps -= std::max<int64_t>(replayed, 1);
  }
}

// With an arena the inputs stay for all steps; a dynamic plan frees them.
void Walk::run(int64_t steps, bool copies_in, Stream stream, PlanWork& work) {
  if (!has_arena(memory_.plan().mode)) {
    for (int64_t step = 1; step <= steps; ++step) run_pass({copies_in, step == steps}, stream, work);
    return;
  }
  for (const Step& step : steps_) {
    if (step.kind == StepKind::kCopyIn && copies_in) work.copy_in(step.id);
  }
  run_inner_steps(steps - 1, stream, work);
  run_pass({.copies_in = false, .is_last = true}, stream, work);
}

}  // namespace headroom
