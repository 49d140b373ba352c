// Reverse-mode differentiation: gradients are nodes of the same graph. Knows no kernel and no plan.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "runtime/graph/graph.h"

namespace headroom {

// One node, as the gradient of its op sees it.
struct GradientContext {
  Graph& graph;
  std::vector<Value> in, out;                  // its operands and results
  std::vector<std::optional<Value>> grad_out;  // by result; absent: the loss does not depend on it
  std::vector<bool> wanted;                    // by operand: whether its gradient leads to a variable

  // Returns the gradient of the first result.
  Value dy() const { return *grad_out[0]; }
};

// Appends the nodes that compute d loss / d variables[i] and returns those values, shaped like the variables:
// zeros if the loss does not depend on a variable. Throws InvalidArgument if the loss is not an f32 scalar,
// or if the path to it goes through an op without a gradient (argmax, accuracy). The `gradient` of a CustomOp
// gets zeros for real results that the loss does not depend on; throws InvalidArgument if what it returns
// does not fit the operands.
std::vector<Value> gradients(Value loss, std::span<const Value> variables);

}  // namespace headroom
