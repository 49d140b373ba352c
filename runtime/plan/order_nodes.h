// The lever "order": runs nodes early that free more memory than they take.
#pragma once

#include "runtime/plan/solve.h"

namespace headroom {

std::vector<StepState> order_nodes(const StepProblem& problem, std::span<const StepState> before,
                                   int64_t max_work);

}  // namespace headroom
