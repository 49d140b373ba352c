// Chooses the values of a step to drop between their uses, to fit budgets at the least cost in time.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/plan/step_model.h"

namespace headroom {

// Choices for all budgets, each of which takes less than the one before it and no less time, from that which
// drops nothing on. Values are computed again, or also go to host memory where the model has a link. Begins
// with `known` choices, of which none is lost unless better ones were found. `max_work`: how many nodes all
// tried schedules may have together. Deterministic.
std::vector<StepModel::Choices> search_drops(StepModel& model, std::span<const StepModel::Choices> known,
                                             int64_t max_work);

}  // namespace headroom
