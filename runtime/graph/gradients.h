// Reverse-mode differentiation: gradients are nodes of the same graph. Knows no kernel and no plan.
#pragma once

#include <span>
#include <vector>

#include "runtime/graph/graph.h"

namespace headroom {

// Appends the nodes that compute d loss / d variables[i] and returns those values, shaped like the variables:
// zeros if the loss does not depend on a variable. Throws InvalidArgument if the loss is not an f32 scalar,
// or if the path to it goes through an op without a gradient (argmax, accuracy).
std::vector<Value> gradients(Value loss, std::span<const Value> variables);

}  // namespace headroom
