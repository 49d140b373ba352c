// The lever "recompute": drops values between their uses and computes them again, chains of them where
// needed.
#pragma once

#include "runtime/plan/solve.h"

namespace headroom {

StepState recompute(const StepProblem& problem, StepState state, const LeverEffort& effort);

}  // namespace headroom
