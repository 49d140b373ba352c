// Vectors of floats as wide as the build's registers, on the compilers' vector types. Knows no tensor.
#pragma once

#include <cstdint>
#include <cstring>
#if defined(__AVX2__)
#include <immintrin.h>
#endif

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

// The widest vectors of any CPU. What decides the workspace of a kernel counts in these, so that it is the
// same on every host.
inline constexpr int kMostLanes = 16;

using Vec = float __attribute__((vector_size(kLanes * 4)));
using IntVec = int32_t __attribute__((vector_size(kLanes * 4)));

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

// kLanes bytes, widened; and the low bytes of all lanes. By intrinsics: GCC 12 and 13 take
// __builtin_convertvector between bytes and words apart lane by lane, and loops over arrays go through the
// stack.
inline IntVec load_bytes(const uint8_t* p) {
#if defined(__AVX512F__)
  return reinterpret_cast<IntVec>(_mm512_cvtepu8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))));
#elif defined(__AVX2__)
  return reinterpret_cast<IntVec>(_mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
#else
  IntVec v = {};
  for (int i = 0; i < kLanes; ++i) v[i] = p[i];
  return v;
#endif
}
inline void store_bytes(uint8_t* p, IntVec v) {
#if defined(__AVX512F__)
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(reinterpret_cast<__m512i>(v)));
#else
  for (int i = 0; i < kLanes; ++i) p[i] = static_cast<uint8_t>(v[i]);
#endif
}

// The first `count` of them, at most kLanes; lanes beyond are 0.
inline IntVec load_some_bytes(const uint8_t* p, int64_t count) {
  if (count == kLanes) return load_bytes(p);
  uint8_t bytes[kLanes] = {};
  std::memcpy(bytes, p, static_cast<size_t>(count));
  return load_bytes(bytes);
}
inline void store_some_bytes(uint8_t* p, IntVec v, int64_t count) {
  if (count == kLanes) return store_bytes(p, v);
  uint8_t bytes[kLanes];
  store_bytes(bytes, v);
  std::memcpy(p, bytes, static_cast<size_t>(count));
}

}  // namespace headroom::cpu
