// Products of small tiles on the tensor cores, one policy per Math mode. A policy says how f32 operands
// become the 32-bit words that lie in shared memory and how such words are multiplied; a step takes 8 words
// of each operand. Knows no op and no memory layout.
//
// Fragment layouts are those of PTX ISA, "Matrix fragments for mma.m16n8k8" (.tf32) and "m16n8k16" (.f16,
// .bf16), which are the same in words: in a warp, g = lane / 4 and t = lane % 4; a holds rows g, g + 8, g, g
// + 8 and words t, t, t + 4, t + 4; b holds column g and words t, t + 4; an accumulator holds rows g, g, g +
// 8, g + 8 and columns 2t, 2t + 1, 2t, 2t + 1.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

#include "kernels/kernel.h"

namespace headroom::cuda {

// Tensor cores of this kind came with compute capability 8.0; older GPUs use the libraries.
inline constexpr int kMinCapabilityOfMma = 80;

inline constexpr int kWordsOfStep = 8;

namespace detail {

__device__ inline uint32_t to_tf32(float x) {
  uint32_t bits = 0;
#if __CUDA_ARCH__ >= 800
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(bits) : "f"(x));
#endif
  return bits;
}

__device__ inline void mma_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
}

}  // namespace detail

template <Math>
struct Mma;

template <>
struct Mma<Math::kTf32> {
  static constexpr int kTermsOfWord = 1;
  // The word that holds x; with two terms to a word, x and y.
  __device__ static uint32_t word(float x, float) { return detail::to_tf32(x); }
  // d += a b
  __device__ static void multiply_add(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    detail::mma_tf32(d, a, b);
  }
};

// f32 as the sum of two TF32 numbers, high and low; all products but low x low are added ("3xTF32":
// Ootomo, Yokota 2022; CUTLASS' OpMultiplyAddFastF32). The high part is truncated, so that the low part
// is exact; the tensor cores drop its last two bits: 22 of 24 remain. The sums of a step are added in
// ordinary f32, since the tensor cores' accumulation truncates instead of rounding.
template <>
struct Mma<Math::kF32> {
  static constexpr int kTermsOfWord = 1;
  __device__ static uint32_t word(float x, float) { return __float_as_uint(x); }
  __device__ static uint32_t high_of(uint32_t word) { return word & 0xffffe000u; }
  __device__ static uint32_t low_of(uint32_t word) {
    return __float_as_uint(__uint_as_float(word) - __uint_as_float(high_of(word)));
  }
  __device__ static void multiply_add(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
    const uint32_t a_high[4] = {high_of(a[0]), high_of(a[1]), high_of(a[2]), high_of(a[3])};
    const uint32_t a_low[4] = {low_of(a[0]), low_of(a[1]), low_of(a[2]), low_of(a[3])};
    const uint32_t b_high[2] = {high_of(b[0]), high_of(b[1])}, b_low[2] = {low_of(b[0]), low_of(b[1])};
    float sum[4] = {};
    detail::mma_tf32(sum, a_low, b_high);
    detail::mma_tf32(sum, a_high, b_low);
    detail::mma_tf32(sum, a_high, b_high);
#pragma unroll
    for (int i = 0; i < 4; ++i) d[i] += sum[i];
  }
};

template <>
struct Mma<Math::kBf16> {
  static constexpr int kTermsOfWord = 2;
  __device__ static float low_term(uint32_t word) { return __uint_as_float(word << 16); }
  __device__ static float high_term(uint32_t word) { return __uint_as_float(word & 0xffff0000u); }
  __device__ static uint32_t word(float x, float y) {
    uint32_t bits = 0;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(y), "f"(x));
#endif
    return bits;
  }
  __device__ static void multiply_add(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
  }
};

template <>
struct Mma<Math::kF16> {
  static constexpr int kTermsOfWord = 2;
  __device__ static float low_term(uint32_t word) {
    return __half2float(__ushort_as_half(static_cast<unsigned short>(word & 0xffffu)));
  }
  __device__ static float high_term(uint32_t word) { return low_term(word >> 16); }
  __device__ static uint32_t word(float x, float y) {
    uint32_t bits = 0;
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(bits) : "f"(y), "f"(x));
#endif
    return bits;
  }
  __device__ static void multiply_add(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
        "{%0,%1,%2,%3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#endif
  }
};

// Stores 4 neighboring terms as words.
template <typename Policy>
__device__ void store_words(uint32_t* to, float4 v) {
  if constexpr (Policy::kTermsOfWord == 1) {
    *reinterpret_cast<uint4*>(to) = {Policy::word(v.x, 0), Policy::word(v.y, 0), Policy::word(v.z, 0),
                                     Policy::word(v.w, 0)};
  } else {
    *reinterpret_cast<uint2*>(to) = {Policy::word(v.x, v.y), Policy::word(v.z, v.w)};
  }
}

// Operands that are summed in either direction are in shared memory as single terms, and words of two terms
// are put together when they are read. The stored word for x, and below for 4 neighbors.
template <typename Policy>
__device__ uint32_t stored_term(float x) {
  return Policy::kTermsOfWord == 1 ? Policy::word(x, 0) : __float_as_uint(x);
}

template <typename Policy>
__device__ void store_terms(uint32_t* to, float4 v) {
  *reinterpret_cast<uint4*>(to) = {stored_term<Policy>(v.x), stored_term<Policy>(v.y),
                                   stored_term<Policy>(v.z), stored_term<Policy>(v.w)};
}

// Word `word` of a sum over terms that lie `pitch` apart.
template <typename Policy>
__device__ uint32_t word_at(const uint32_t* terms, int word, int pitch) {
  if constexpr (Policy::kTermsOfWord == 1) {
    return terms[word * pitch];
  } else {
    return Policy::word(__uint_as_float(terms[2 * word * pitch]),
                        __uint_as_float(terms[(2 * word + 1) * pitch]));
  }
}

// Like the function above, for terms in f32.
template <typename Policy>
__device__ uint32_t word_of(const float* terms, int word, int pitch) {
  if constexpr (Policy::kTermsOfWord == 1) {
    return Policy::word(terms[word * pitch], 0);
  } else {
    return Policy::word(terms[2 * word * pitch], terms[(2 * word + 1) * pitch]);
  }
}

// Four 8 x 4-word matrices from shared memory (ldmatrix): lane l gives the address of row l % 8 of matrix l /
// 8, 16 bytes each, and gets word t of row g of matrix i in words[i].
__device__ inline void load_matrices(uint32_t (&words)[4], const uint32_t* row) {
#if __CUDA_ARCH__ >= 750
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
#endif
}

// Loads matrices of 8 x 8 halves, each transposed: lane l gets elements (2t, g) and (2t + 1, g) of matrix i
// in words[i].
__device__ inline void load_transposed_matrices(uint32_t (&words)[4], const uint32_t* row) {
#if __CUDA_ARCH__ >= 750
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address)
               : "memory");
#endif
}

// Calls f with Mma<math>.
template <typename F>
auto with_policy(Math math, F f) {
  switch (math) {
    case Math::kF32:
      return f(Mma<Math::kF32>{});
    case Math::kTf32:
      return f(Mma<Math::kTf32>{});
    case Math::kBf16:
      return f(Mma<Math::kBf16>{});
    case Math::kF16:
      break;
  }
  return f(Mma<Math::kF16>{});
}

}  // namespace headroom::cuda
