// A normalized value in 8 bits, for the gradient of its norm: a sign, 3 bits of exponent and 4 of mantissa,
// which are the middle bits of an f16 of the value / 2^11, rounded to nearest. Magnitudes above kMostNormal
// become that. The decoded value is within 1/32 of the magnitude of the original, or 1/256 below 1/8: 1.3 %
// of a standard normal value in the mean square. A NaN becomes kMostNormal; the statistics of the same values
// show it. Jain et al. 2018 (Gist) and Chen et al. 2021 (ActNN) show that 8 bits are enough for values that
// only gradients read. Knows no op.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/half.h"

namespace headroom {

inline constexpr float kMostNormal = 15.5f;
inline constexpr float kNormalScale = 0x1p-11f;  // scale of the f16
inline constexpr int kBitsBehindCode = 6;        // bits of the f16's mantissa

inline uint8_t code_of_normal(float normal) {
  const uint32_t bits = f16_of(std::max(-kMostNormal, std::min(kMostNormal, normal)) * kNormalScale);
  const uint32_t magnitude = ((bits & 0x7fff) + (1 << (kBitsBehindCode - 1))) >> kBitsBehindCode;
  return static_cast<uint8_t>((magnitude & 0x7f) | (bits >> 8 & 0x80));
}

inline float normal_of_code(uint8_t code) {
  const uint32_t bits = (code & 0x7fu) << kBitsBehindCode | (code & 0x80u) << 8;
  return float_of_f16(static_cast<uint16_t>(bits)) / kNormalScale;
}

}  // namespace headroom
