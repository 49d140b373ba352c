// The gradients among the operands of an optimizer's update, for passes that rewrite them. Knows no pass.
#pragma once

#include <cstddef>

#include "ops/ops.h"

namespace headroom {

// Returns the factor by which an optimizer multiplies gradients; null for all other ops.
inline float* gradient_scale_of(Op& op) {
  return std::visit(
      []<typename T>(T& o) -> float* {
        if constexpr (T::kTraits.changes == Changes::kWeights) {
          return &o.gradient_scale;
        } else {
          return nullptr;
        }
      },
      op);
}

// Returns true if operand `position` of the op is the gradient of a weight that it updates.
inline bool is_gradient_operand(const Op& op, size_t position) {
  if (traits_of(op).changes != Changes::kWeights) return false;
  const UpdateOperands operands = update_operands(op);
  return position >= operands.shared && (position - operands.shared) % operands.per_variable == 1;
}

}  // namespace headroom
