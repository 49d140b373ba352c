// The lever "recompute": drops values between their uses and computes them again, chains of them where
// needed.
#pragma once

#include "runtime/plan/solve.h"

namespace headroom {

std::vector<StepState> recompute(const StepProblem& problem, std::span<const StepState> before,
                                 int64_t max_work);

}  // namespace headroom
