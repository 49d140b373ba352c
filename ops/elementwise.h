// One output element from one element of each input.
#pragma once

#include "ops/function_kinds.h"
#include "ops/op.h"

namespace headroom {

inline constexpr std::string_view kUnaryNames[] = {
    "relu", "sigmoid",      "tanh",  "exp",   "sqrt", "reciprocal", "gelu", "tanh_gelu",
    "log",  "erf",          "abs",   "sin",   "cos",  "softplus",   "clip", "leaky_relu",
    "elu",  "hard_sigmoid", "power", "floor", "ceil", "round",      "sign"};
inline constexpr std::string_view kUnaryGradNames[] = {
    "relu_grad",  "sigmoid_grad",   "tanh_grad", "exp_grad",        "sqrt_grad", "reciprocal_grad",
    "gelu_grad",  "tanh_gelu_grad", "log_grad",  "erf_grad",        "abs_grad",  "sin_grad",
    "cos_grad",   "softplus_grad",  "clip_grad", "leaky_relu_grad", "elu_grad",  "hard_sigmoid_grad",
    "power_grad", "floor_grad",     "ceil_grad", "round_grad",      "sign_grad"};
constexpr bool gradient_needs_input(UnaryKind kind) {
  return kind >= UnaryKind::kGelu;
}
constexpr bool has_gradient(UnaryKind kind) {
  return kind < UnaryKind::kFloor;
}
// f32 x -> same shape
struct Unary {
  static constexpr OpTraits kTraits{.kind_names = kUnaryNames, .in_place_inputs = 1};
  UnaryKind kind;
  float alpha = 0, beta = 0;
  Outputs infer(const OpCheck& c) const;
};
// dy, saved -> dx. `saved` is x if gradient_needs_input(kind), else y.
struct UnaryGrad {
  static constexpr OpTraits kTraits{
      .kind_names = kUnaryGradNames, .in_place_inputs = 1, .differentiable = false};
  UnaryKind kind;
  float alpha = 0, beta = 0;
  Outputs infer(const OpCheck& c) const;
};
// f32 x -> factor * x
struct Scale {
  static constexpr OpTraits kTraits{.name = "scale", .in_place_inputs = 1};
  float factor = 1;
  Outputs infer(const OpCheck& c) const;
};
inline constexpr std::string_view kBinaryNames[] = {"add", "sub",     "mul",     "div",
                                                    "pow", "maximum", "minimum", "mod"};
// a, b of one dtype, f32, i32 or u8 -> the shape that both broadcast to. An operand that is not broadcast may
// become the result: an element is read before it is written. The sign of mod is the divisor's, also for an
// infinite one. Whole numbers: div rounds towards zero, a division by 0 gives 0, and there is no pow. A NaN
// is the max and the min.
struct Binary {
  static constexpr OpTraits kTraits{.kind_names = kBinaryNames, .in_place_inputs = 2};
  BinaryKind kind;
  Outputs infer(const OpCheck& c) const;
};
enum class CompareKind : uint8_t { kEqual, kNotEqual, kLess, kLessEqual };
inline constexpr std::string_view kCompareNames[] = {"equal", "not_equal", "less", "less_equal"};
// a, b of one dtype -> u8, 1 where the comparison holds, of the shape that both broadcast to
struct Compare {
  static constexpr OpTraits kTraits{.kind_names = kCompareNames, .differentiable = false};
  CompareKind kind;
  Outputs infer(const OpCheck& c) const;
};
// u8 condition, a, b of one dtype -> a where the condition is not 0, otherwise b; all three broadcast
struct Where {
  static constexpr OpTraits kTraits{.name = "where"};
  Outputs infer(const OpCheck& c) const;
};
// x.. -> each converted between f32, i32 and u8: rounds towards zero and saturates; NaN gives 0. Conversion
// to bf16 and f16 rounds to nearest, ties to even. Several operands must all be floats, of any types. Passes
// a gradient between floats.
struct Cast {
  static constexpr OpTraits kTraits{.name = "cast"};
  DType to;
  Outputs infer(const OpCheck& c) const;
};
// x.., y.., as many of each, pairs of one shape, floats of any types -> x + y of each pair, in f32
struct AddPairs {
  static constexpr OpTraits kTraits{.name = "add_pairs", .differentiable = false};
  int in_place_input(size_t output) const { return static_cast<int>(output); }
  Outputs infer(const OpCheck& c) const;
};
// x, step i32 [] -> x / (1 - rate) for kept elements, 0 for others. Only (seed, step, element) decides if an
// element is kept, so the same op applied to dy is its gradient.
struct Dropout {
  static constexpr OpTraits kTraits{.name = "dropout", .in_place_inputs = 1};
  float rate = 0.5f;
  uint64_t seed = 0;
  Outputs infer(const OpCheck& c) const;
};
// step i32 [] -> f32 (shape) in [0, 1), of dropout's words: only (seed, step, element) decides a number
struct RandomUniform {
  static constexpr OpTraits kTraits{.name = "random_uniform", .differentiable = false};
  Shape shape;
  uint64_t seed = 0;
  Outputs infer(const OpCheck& c) const;
};

}  // namespace headroom
