// Vectors of floats as wide as the build's registers, on the compilers' vector types. Knows no tensor.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
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
#if defined(__AVX512F__)
  return _mm512_maskz_loadu_ps(static_cast<__mmask16>((1U << count) - 1), p);
#else
  Vec v = {};
  std::memcpy(&v, p, static_cast<size_t>(count) * sizeof(float));
  return v;
#endif
}
inline void store_some(float* p, Vec v, int64_t count) {
#if defined(__AVX512F__)
  _mm512_mask_storeu_ps(p, static_cast<__mmask16>((1U << count) - 1), v);
#else
  std::memcpy(p, &v, static_cast<size_t>(count) * sizeof(float));
#endif
}

// b where a or b is NaN. GCC 12 makes two instructions of the comparison and the choice.
inline Vec vec_max(Vec a, Vec b) {
#if defined(__AVX512F__)
  return _mm512_max_ps(a, b);
#else
  return a > b ? a : b;
#endif
}
inline Vec vec_min(Vec a, Vec b) {
#if defined(__AVX512F__)
  return _mm512_min_ps(a, b);
#else
  return a < b ? a : b;
#endif
}

// True in lanes [0, count).
inline IntVec lanes_below(int64_t count) {
  IntVec lanes;
  for (int i = 0; i < kLanes; ++i) lanes[i] = i;
  return lanes < static_cast<int32_t>(count);
}

// Calls body(vectors, first, lanes) for all channels: `vectors` vectors starting at `first`, of `lanes` lanes
// each. Both counts are constants, except the lanes of a last part. The vectors stay in registers.
template <int kVectors = 4, typename Body>
void for_each_vectors(int64_t channels, const Body& body, int64_t first = 0) {
  constexpr std::integral_constant<int64_t, kLanes> kWhole = {};
  for (; first + kVectors * kLanes <= channels; first += kVectors * kLanes)
    body(std::integral_constant<int, kVectors>{}, first, kWhole);
  if constexpr (kVectors > 1) {
    for_each_vectors<kVectors / 2>(channels, body, first);
  } else if (first < channels) {
    body(std::integral_constant<int, 1>{}, first, channels - first);
  }
}

// The lanes of the first (kHalf 0), or of the second, halves of a and b in turns.
template <int kHalf>
Vec interleave(Vec a, Vec b) {
  return [&]<int... kLane>(std::integer_sequence<int, kLane...>) {
    return __builtin_shufflevector(a, b, (kHalf * kLanes / 2 + kLane / 2 + kLane % 2 * kLanes)...);
  }
  (std::make_integer_sequence<int, kLanes>());
}

// Rows become columns: interleaving halves as often as rows can be halved does that.
inline void transpose(Vec (&rows)[kLanes]) {
  for (int left = kLanes; left > 1; left /= 2) {
    Vec mixed[kLanes];
#pragma GCC unroll 8
    for (int i = 0; i < kLanes / 2; ++i) {
      mixed[2 * i] = interleave<0>(rows[i], rows[i + kLanes / 2]);
      mixed[2 * i + 1] = interleave<1>(rows[i], rows[i + kLanes / 2]);
    }
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) rows[i] = mixed[i];
  }
}

// The sum of the lanes of each of kLanes vectors, in its own lane; overwrites them.
inline Vec sums_of_lanes(Vec* vectors) {
#pragma GCC unroll 4
  for (int half = kLanes / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < half; ++i) {
      const Vec a = vectors[i], b = vectors[i + half];
      vectors[i] = interleave<0>(a, b) + interleave<1>(a, b);
    }
  }
  return vectors[0];
}

// All lanes combined by f, in pairs: lane i with lane i + half.
template <int kHalf = kLanes / 2, typename F>
float combine_lanes(Vec v, F f) {
  const Vec moved = [&]<int... kLane>(std::integer_sequence<int, kLane...>) {
    return __builtin_shufflevector(v, v, ((kLane + kHalf) % kLanes)...);
  }
  (std::make_integer_sequence<int, kLanes>());
  const Vec both = f(v, moved);
  if constexpr (kHalf == 1) {
    return both[0];
  } else {
    return combine_lanes<kHalf / 2>(both, f);
  }
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
