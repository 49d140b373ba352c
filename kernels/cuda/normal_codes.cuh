// Compressed values that a batch norm keeps for its gradients: normalized values in 8 bits, and one bit per
// result. Knows no norm.
#pragma once

#include "kernels/cuda/reals.cuh"
#include "kernels/normal_code.h"

namespace headroom::cuda {

// The codes of normalized values (kernels/normal_code.h), which kernels read in the place of x.
struct Codes {
  const uint8_t* data = nullptr;
};
template <int L>
__device__ Lanes<uint8_t, L> fetch_packed(const Codes& from, int64_t i) {
  return load<L>(from.data + i);
}
// The codes of two values, in the lower halves of a word's halves.
__device__ inline uint32_t codes_of_two(float a, float b) {
  const __half2 most = __float2half2_rn(kMostNormal * kNormalScale);
  const __half2 pair = __hmax2(__hmin2(__floats2half2_rn(a * kNormalScale, b * kNormalScale), most), -most);
  const uint32_t bits = reinterpret_cast<const uint32_t&>(pair);
  constexpr uint32_t kHalf = 1 << (kBitsBehindCode - 1), kHalves = kHalf << 16 | kHalf;
  return (((bits & 0x7fff7fff) + kHalves) >> kBitsBehindCode & 0x007f007f) | (bits >> 8 & 0x00800080);
}
__device__ inline float2 two_of_codes(uint32_t codes) {
  const uint32_t bits = (codes & 0x007f007f) << kBitsBehindCode | (codes & 0x00800080) << 8;
  return __half22float2(reinterpret_cast<const __half2&>(bits));
}

// The codes of L values of a row.
template <int L>
__device__ void store_codes(uint8_t* to, const Lanes<float, L>& normals) {
  if constexpr (L == 1) {
    *to = static_cast<uint8_t>(codes_of_two(normals.values[0], 0));
  } else {
    Lanes<uint32_t, L / 4> words;
#pragma unroll
    for (int k = 0; k < L / 4; ++k) {
      const float* four = normals.values + 4 * k;
      words.values[k] = __byte_perm(codes_of_two(four[0], four[1]), codes_of_two(four[2], four[3]), 0x6420);
    }
    store(reinterpret_cast<uint32_t*>(to), words);
  }
}
// Converts fetched values for a Normal.
template <typename Fetched>
__device__ auto values_of(const Fetched& fetched) {
  return widened(fetched);
}
template <int L>
__device__ Lanes<float, L> values_of(const Lanes<uint8_t, L>& codes) {
  Lanes<float, L> normals;
  if constexpr (L == 1) {
    normals.values[0] = two_of_codes(codes.values[0]).x;
  } else {
    const auto* words = reinterpret_cast<const uint32_t*>(codes.values);
#pragma unroll
    for (int k = 0; k < L; k += 2) {
      const float2 two = two_of_codes(__byte_perm(words[k / 4], 0, k % 4 == 0 ? 0x4140 : 0x4342));
      normals.values[k] = two.x;
      normals.values[k + 1] = two.y;
    }
  }
  return normals;
}

// Stores which of eight neighboring channels have more than 0, using the threads of a row that hold them.
template <int L>
__device__ void store_marks(uint8_t* marks, int64_t at, const Lanes<float, L>& y) {
  uint32_t bits = 0;
#pragma unroll
  for (int lane = 0; lane < L; ++lane) bits |= (y.values[lane] <= 0 ? 0u : 1u) << lane;
  constexpr int kSharers = 8 / L;
  const int sharer = static_cast<int>(threadIdx.x) % kSharers;
  if constexpr (kSharers > 1) {
    const uint32_t group = ((1u << kSharers) - 1) << (static_cast<int>(threadIdx.x) % 32 - sharer);
    bits <<= sharer * L;
    for (int apart = 1; apart < kSharers; apart *= 2) bits |= __shfl_xor_sync(group, bits, apart);
  }
  if (sharer == 0) marks[at / 8] = static_cast<uint8_t>(bits);
}
// The bits of neighbors, the lowest for the one at `at`.
__device__ inline uint32_t marks_at(const uint8_t* marks, int64_t at) {
  return static_cast<uint32_t>(marks[at / 8]) >> at % 8;
}

}  // namespace headroom::cuda
