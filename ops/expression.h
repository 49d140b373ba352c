// Several elementwise ops as one: a short program that gives one element from one element of each operand.
#pragma once

#include "ops/elementwise.h"
#include "ops/statistics.h"

namespace headroom {

// One step of an expression: a unary, unary_grad, scale or binary op of f32 on values before it.
struct Instruction {
  // kInside: the value where the result's index along the axis of the windows is in [alpha, beta), 0
  // elsewhere.
  enum class Code : uint8_t { kUnary, kUnaryGrad, kScale, kBinary, kInside };
  Code code = Code::kScale;
  uint8_t kind = 0;           // UnaryKind or BinaryKind
  uint8_t a = 0, b = 0;       // operands: operands of the expression come first, then results of instructions
  float alpha = 0, beta = 0;  // parameters of the op; alpha is the factor of a scale

  bool has_two_operands() const { return code == Code::kUnaryGrad || code == Code::kBinary; }
  bool operator==(const Instruction&) const = default;
};

// Functions of few instructions on a GPU: the slow paths of the others would cost every expression its
// registers. No other ones are part of an expression.
constexpr bool is_short(UnaryKind kind, float alpha) {
  if (kind == UnaryKind::kPower) return alpha == 2 || alpha == 3;
  return kind != UnaryKind::kSin && kind != UnaryKind::kCos && kind != UnaryKind::kSoftplus;
}
constexpr bool is_short(BinaryKind kind) {
  return kind != BinaryKind::kPow && kind != BinaryKind::kMod;
}
constexpr bool is_short(const Instruction& step) {
  if (step.code == Instruction::Code::kScale || step.code == Instruction::Code::kInside) return true;
  if (step.code == Instruction::Code::kBinary) return is_short(static_cast<BinaryKind>(step.kind));
  return is_short(static_cast<UnaryKind>(step.kind), step.alpha);
}

// Calls f with the op of the instruction; that of kInside is a scale by 1.
template <typename F>
auto visit_op(const Instruction& step, F&& f) {
  switch (step.code) {
    case Instruction::Code::kUnary:
      return f(Unary{static_cast<UnaryKind>(step.kind), step.alpha, step.beta});
    case Instruction::Code::kUnaryGrad:
      return f(UnaryGrad{static_cast<UnaryKind>(step.kind), step.alpha, step.beta});
    case Instruction::Code::kBinary:
      return f(Binary{static_cast<BinaryKind>(step.kind)});
    case Instruction::Code::kInside:
      return f(Scale{});
    case Instruction::Code::kScale:
      break;
  }
  return f(Scale{step.alpha});
}

// The operands of an expression that lie elsewhere along one axis: slices of larger tensors, and parts of a
// concatenation.
struct Windows {
  int8_t axis_from_end = -1;  // 0: the last axis; -1: there are none
  uint8_t operands = 0;       // bit i: operand i has a window
  int64_t extent = 0;         // of the result along the axis
  // Index i of the result reads index i - begin of the operand, and 0 where there is none.
  std::array<int64_t, 8> begin = {};

  bool has(size_t operand) const { return (operands >> operand & 1) != 0; }
  // The shape that an operand has in broadcasting.
  Shape shape_of(size_t operand, const Shape& own) const {
    return has(operand) ? own.with(own.rank() - 1 - axis_from_end, extent) : own;
  }
  bool operator==(const Windows&) const = default;
};

// f32 x.. -> the result of the last instruction, of the shape that all operands broadcast to. Values between
// instructions are f32 and exist for no longer than an element takes. Without windows, an operand that is not
// broadcast may become the result: all operands of an element are read before it is written.
struct Expression {
  static constexpr int kMaxOperands = 8, kMaxInstructions = 20;
  static constexpr OpTraits kTraits{
      .name = "expression", .in_place_inputs = kMaxOperands, .differentiable = false};

  uint8_t operands = 0, length = 0;
  std::array<Instruction, kMaxInstructions> instructions = {};
  Windows windows = {};

  int in_place_inputs() const { return windows.operands == 0 ? kMaxOperands : 0; }
  std::span<const Instruction> steps() const { return {instructions.data(), length}; }
  Outputs infer(const OpCheck& c) const;
};

// f32 x.. -> what `by` makes of the expression's result, which is not stored.
struct ReducedExpression {
  static constexpr OpTraits kTraits{.name = "reduced_expression", .differentiable = false};

  Expression of;
  Reduce by;
  Outputs infer(const OpCheck& c) const;
};

}  // namespace headroom
