// The functions of one and of two numbers that ops and expressions compute. Includes nothing else: kernels
// that are compiled at run time see this file, too.
#pragma once

#include <cstdint>

namespace headroom {

enum class UnaryKind : uint8_t {
  // Their gradient is computed from y.
  kRelu,
  kSigmoid,
  kTanh,
  kExp,
  kSqrt,
  kReciprocal,
  // From x.
  kGelu,      // the exact one, with erf
  kTanhGelu,  // its approximation with tanh
  kLog,
  kErf,
  kAbs,
  kSin,
  kCos,
  kSoftplus,     // log(1 + exp(x))
  kClip,         // into [alpha, beta]
  kLeakyRelu,    // alpha x where x < 0
  kElu,          // alpha (exp(x) - 1) where x < 0
  kHardSigmoid,  // alpha x + beta, into [0, 1]
  kPower,        // x^alpha
  // Steps: their gradient is 0, and gradients() leaves it out.
  kFloor,
  kCeil,
  kRound,  // ties to even
  kSign,
};
enum class BinaryKind : uint8_t { kAdd, kSub, kMul, kDiv, kPow, kMax, kMin, kMod };

}  // namespace headroom
