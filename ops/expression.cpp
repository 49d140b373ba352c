#include "ops/expression.h"

#include "ops/op_check.h"

namespace headroom {

Outputs Expression::infer(const OpCheck& c) const {
  c.require(operands > 0 && operands <= kMaxOperands && length > 0 && length <= kMaxInstructions,
            "has too few or too many operands or instructions");
  c.floats(operands);
  int known = operands;
  for (const Instruction& step : steps()) {
    c.require(step.a < known && (!step.has_two_operands() || step.b < known),
              "has an instruction that reads a later value");
    c.require(is_short(step), "has a function that only an op of its own computes");
    c.require(step.code != Instruction::Code::kInside || windows.axis_from_end >= 0,
              "has a part of an axis and no axis");
    ++known;
  }
  Shape result;
  for (size_t i = 0; i < c.size(); ++i) {
    Shape next;
    c.require(!windows.has(i) || (windows.axis_from_end >= 0 && windows.axis_from_end < c.shape(i).rank()),
              "has a window along an axis that its operand lacks");
    c.require(broadcast(result, windows.shape_of(i, c.shape(i)), &next), "shapes do not broadcast");
    result = next;
  }
  c.require(windows.axis_from_end < result.rank(), "has a window along an axis that its result lacks");
  return {f32(result)};
}

Outputs ReducedExpression::infer(const OpCheck& c) const {
  return by.infer(OpCheck(kTraits.name, of.infer(c)));
}

}  // namespace headroom
