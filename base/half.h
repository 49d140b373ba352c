// Floats in 16 bits: bf16, the upper half of an f32, and f16 of IEC 559. Rounds to nearest, ties to even.
// Knows no tensor.
#pragma once

#include <bit>
#include <cstdint>

namespace headroom {

inline float float_of_bf16(uint16_t stored) {
  return std::bit_cast<float>(uint32_t{stored} << 16);
}

inline uint16_t bf16_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40;  // a NaN must not round to infinity
  return static_cast<uint16_t>(value != value ? quiet : rounded);
}

inline float float_of_f16(uint16_t stored) {
  const uint32_t sign = uint32_t{stored & 0x8000u} << 16, rest = stored & 0x7fffu;
  // Exponents move by 112: those of infinity and NaN to the end, subnormals by a float subtraction.
  constexpr float kLeast = 0x1p-14f;
  const float subnormal = std::bit_cast<float>((rest << 13) + std::bit_cast<uint32_t>(kLeast)) - kLeast;
  const uint32_t exponent = (rest >= 0x7c00 ? 224u : 112u) << 23;
  const uint32_t normal = (rest << 13) + exponent;
  return std::bit_cast<float>((rest < 0x400 ? std::bit_cast<uint32_t>(subnormal) : normal) | sign);
}

inline uint16_t f16_of(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = bits & 0x80000000u, rest = bits ^ sign;
  // Adding 0.5 leaves a subnormal's bits at the end of the float, rounded by the addition.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(rest) + 0.5f) - 0x3f000000u;
  const uint32_t normal = (rest - (112u << 23) + 0xfff + ((rest >> 13) & 1)) >> 13;
  const uint32_t large = rest > 0x7f800000u ? 0x7e00u : 0x7c00u;  // from 2^16 on, and NaN
  const uint32_t small = rest < 0x38800000u ? subnormal : normal;
  return static_cast<uint16_t>((rest >= 0x47800000u ? large : small) | (sign >> 16));
}

}  // namespace headroom
