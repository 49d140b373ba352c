// Vectors of floats as wide as the build's registers, on the compilers' vector extensions. Knows no tensor.
#pragma once

#include <cstdint>
#include <cstring>

namespace headroom::cpu {

#if defined(__AVX512F__)
inline constexpr int kLanes = 16;
inline constexpr int kVectorRegisters = 32;
#elif defined(__AVX__)
inline constexpr int kLanes = 8;
inline constexpr int kVectorRegisters = 16;
#else
inline constexpr int kLanes = 4;  // SSE, NEON
inline constexpr int kVectorRegisters = 16;
#endif

using Vec = float __attribute__((vector_size(kLanes * 4)));
using IntVec = int32_t __attribute__((vector_size(kLanes * 4)));
using ByteVec = uint8_t __attribute__((vector_size(kLanes)));

inline Vec load(const float* p) {
  Vec v;
  std::memcpy(&v, p, sizeof v);  // one unaligned move
  return v;
}
inline void store(float* p, Vec v) {
  std::memcpy(p, &v, sizeof v);
}

// Lanes [0, count).
inline Vec load_some(const float* p, int64_t count) {
  Vec v = {};
  std::memcpy(&v, p, static_cast<size_t>(count) * sizeof(float));
  return v;
}
inline void store_some(float* p, Vec v, int64_t count) {
  std::memcpy(p, &v, static_cast<size_t>(count) * sizeof(float));
}

// `count` bytes, at most kLanes, widened; lanes beyond are 0.
inline IntVec load_bytes(const uint8_t* p, int64_t count) {
  ByteVec bytes = {};
  if (count >= kLanes) {
    std::memcpy(&bytes, p, sizeof bytes);
  } else {
    std::memcpy(&bytes, p, static_cast<size_t>(count));
  }
  return __builtin_convertvector(bytes, IntVec);
}
inline void store_bytes(uint8_t* p, IntVec v, int64_t count) {
  const ByteVec bytes = __builtin_convertvector(v, ByteVec);
  if (count >= kLanes) {
    std::memcpy(p, &bytes, sizeof bytes);
  } else {
    std::memcpy(p, &bytes, static_cast<size_t>(count));
  }
}

}  // namespace headroom::cpu
