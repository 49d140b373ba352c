// Nodes of a plan as the tasks of a capture: which wait for which, and which may start before those are
// done. Knows no device.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "device/device.h"
#include "runtime/session/bound_plan.h"

namespace headroom {

// When nodes that change variables may begin.
enum class UpdatesBegin {
  kWithTheirOperands,
  kAfterAllOthers,  // where a node beside them can fail: no variable may have changed then
};

// The nodes, in the order of the plan, without those that do no work; `run` runs one of them. Throws
// InvalidArgument for a dynamic plan.
std::vector<Task> make_tasks(const BoundPlan& plan, std::span<const int> nodes, UpdatesBegin updates,
                             const std::function<void(int node, Stream)>& run);

}  // namespace headroom
