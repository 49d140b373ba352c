// The steps of a traced program and the phases inside them, from the marks of its trace. Knows no output.
#pragma once

#include <cstdint>
#include <vector>

#include "trace/trace.h"

namespace headroom::report {

struct Moment {
  int32_t step = 0;  // 0: before the first
  StepPhase phase = StepPhase::kSetup;
};

struct Step {
  int32_t number = 0;          // from 1 on
  int64_t begin = 0, end = 0;  // [begin, end) of the trace's events
  bool has_forward = false, has_backward = false, has_optimizer = false;
};

class Steps {
 public:
  explicit Steps(const Trace& trace);

  bool known() const { return !steps_.empty(); }
  // In order; a step number may be missing.
  const std::vector<Step>& list() const { return steps_; }
  // Returns the moment of the event at that position of the trace.
  Moment at(int64_t event) const;

 private:
  const Trace& trace_;
  std::vector<Step> steps_;
};

}  // namespace headroom::report
