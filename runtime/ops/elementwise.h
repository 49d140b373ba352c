// One output element from one element of each input.
#pragma once

#include "runtime/ops/op.h"

namespace headroom {

enum class UnaryKind : uint8_t { kRelu, kSigmoid, kTanh, kGelu };  // gelu: the exact one, with erf
inline constexpr std::string_view kUnaryNames[] = {"relu", "sigmoid", "tanh", "gelu"};
inline constexpr std::string_view kUnaryGradNames[] = {"relu_grad", "sigmoid_grad", "tanh_grad", "gelu_grad"};
// f32 x -> same shape
struct Unary {
  static constexpr OpTraits kTraits{.kind_names = kUnaryNames, .in_place_inputs = 1};
  UnaryKind kind;
  Outputs infer(const OpCheck& c) const;
};
// dy, saved -> dx. `saved` is y for relu, sigmoid and tanh, x for gelu.
struct UnaryGrad {
  static constexpr OpTraits kTraits{
      .kind_names = kUnaryGradNames, .in_place_inputs = 1, .differentiable = false};
  UnaryKind kind;
  Outputs infer(const OpCheck& c) const;
};
// f32 x -> factor * x
struct Scale {
  static constexpr OpTraits kTraits{.name = "scale", .in_place_inputs = 1};
  float factor = 1;
  Outputs infer(const OpCheck& c) const;
};
enum class BinaryKind : uint8_t { kAdd, kSub, kMul, kDiv };
inline constexpr std::string_view kBinaryNames[] = {"add", "sub", "mul", "div"};
// f32 a, b -> the shape that both broadcast to. An operand that is not broadcast may become the result: an
// element is read before it is written.
struct Binary {
  static constexpr OpTraits kTraits{.kind_names = kBinaryNames, .in_place_inputs = 2};
  BinaryKind kind;
  Outputs infer(const OpCheck& c) const;
};
// Converts between f32, i32 and u8: towards zero, saturating; NaN gives 0. Passes no gradient.
struct Cast {
  static constexpr OpTraits kTraits{.name = "cast"};
  DType to;
  Outputs infer(const OpCheck& c) const;
};
// x, step i32 [] -> x / (1 - rate) where kept, else 0. (seed, step, element) alone decide what is kept, so
// the same op applied to dy is its gradient.
struct Dropout {
  static constexpr OpTraits kTraits{.name = "dropout", .in_place_inputs = 1};
  float rate = 0.5f;
  uint64_t seed = 0;
  Outputs infer(const OpCheck& c) const;
};

}  // namespace headroom
