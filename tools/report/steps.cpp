#include "tools/report/steps.h"

#include <algorithm>
#include <cstddef>

namespace headroom::report {

Steps::Steps(const Trace& trace) : trace_(trace) {
  const auto events = static_cast<int64_t>(trace.events.size());
  for (size_t i = 0; i < trace.marks.size(); ++i) {
    const TraceMark& mark = trace.marks[i];
    const int64_t end = i + 1 < trace.marks.size() ? trace.marks[i + 1].position : events;
    if (mark.step == 0 || end == mark.position) continue;
    if (steps_.empty() || steps_.back().number != mark.step) {
      steps_.push_back({.number = mark.step, .begin = mark.position});
    }
    Step& step = steps_.back();
    step.end = end;
    step.has_forward |= mark.phase == StepPhase::kForward;
    step.has_backward |= mark.phase == StepPhase::kBackward;
    step.has_optimizer |= mark.phase == StepPhase::kOptimizer;
  }
}

Moment Steps::at(int64_t event) const {
  const auto after = std::upper_bound(trace_.marks.begin(), trace_.marks.end(), event,
                                      [](int64_t at, const TraceMark& mark) { return at < mark.position; });
  if (after == trace_.marks.begin()) return {};
  return {(after - 1)->step, (after - 1)->phase};
}

}  // namespace headroom::report
