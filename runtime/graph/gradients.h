// Reverse-mode differentiation: gradients are nodes of the same graph. Knows no kernel and no plan.
#pragma once

#include <span>
#include <vector>

#include "runtime/graph/graph.h"

namespace headroom {

// Appends the nodes that compute d loss / d variables[i] and returns those values, shaped like the variables.
// Values that the loss does not depend on get zeros. Throws InvalidArgument when loss is no f32 scalar, or
// when the path goes through an op that has no gradient (argmax, accuracy).
std::vector<Value> gradients(Value loss, std::span<const Value> variables);

}  // namespace headroom
