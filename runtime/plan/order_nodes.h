// The lever "order": runs nodes early that free more memory than they take.
#pragma once

#include "runtime/plan/solve.h"

namespace headroom {

StepState order_nodes(const StepProblem& problem, StepState state, const LeverEffort& effort);

}  // namespace headroom
