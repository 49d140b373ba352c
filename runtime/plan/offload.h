#pragma once

#include "runtime/plan/solve.h"

namespace headroom {

// A lever that keeps values in host memory where that costs less than to compute them again, or takes less of
// the device. Nothing where there is no link to the host.
std::vector<StepState> offload(const StepProblem& problem, std::span<const StepState> before,
                               int64_t max_work);

// The same state with these values on the device, kept as in `keep_all`.
StepState without_offload(StepState state, const StepModel::Choices& keep_all);

}  // namespace headroom
