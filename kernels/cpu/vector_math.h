// Functions of vectors of floats. The bits of a lane depend on that lane alone.
#pragma once

#include "kernels/cpu/simd.h"

namespace headroom::cpu {

// NaN stays.
inline Vec clamp(Vec x, float least, float most) {
  return vec_min(Vec{} + most, vec_max(Vec{} + least, x));
}

// Within two units in the last place: Cephes' expf.
inline Vec exp(Vec x) {
  constexpr float kLogOfE = 1.44269504088896341f, kRound = 12582912;  // 1.5 x 2^23: no bits below 1
  x = clamp(x, -105, 89);                                             // 0 and infinity beyond
  const Vec whole = (x * kLogOfE + kRound) - kRound;
  const Vec r = (x - whole * 0.693359375f) + whole * 2.12194440e-4f;  // less ln 2, in two parts
  Vec p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = (p * (r * r) + r) + 1;
#if defined(__AVX512F__)
  return _mm512_scalef_ps(p, whole);
#else
  // By two powers of 2, as one of them may not be a normal number.
  const IntVec power = __builtin_convertvector(whole, IntVec), half = power >> 1;
  const auto power_of_2 = [](IntVec n) { return reinterpret_cast<Vec>((n + 127) << 23); };
  return p * power_of_2(half) * power_of_2(power - half);
#endif
}

inline Vec sigmoid(Vec x) {
  return 1 / (1 + exp(-x));
}

// Eigen's quotient of polynomials, which is 1 beyond the limits; near 0 it is x.
inline Vec tanh(Vec x) {
  constexpr float kLimit = 7.90531110763549805f, kLinear = 0.0004f;
  const Vec c = clamp(x, -kLimit, kLimit), s = c * c;
  Vec p = s * -2.76076847742355e-16f + 2.00018790482477e-13f;
  p = p * s + -8.60467152213735e-11f;
  p = p * s + 5.12229709037114e-08f;
  p = p * s + 1.48572235717979e-05f;
  p = p * s + 6.37261928875436e-04f;
  p = p * s + 4.89352455891786e-03f;
  Vec q = s * 1.19825839466702e-06f + 1.18534705686654e-04f;
  q = q * s + 2.26843463243900e-03f;
  q = q * s + 4.89352518554385e-03f;
  return ((x < kLinear) & (x > -kLinear)) ? x : c * p / q;
}

// f of n numbers, a vector at a time; y may be x.
template <typename F>
void for_each_vector(const float* x, float* y, int64_t n, F f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) store(y + i, f(load(x + i)));
  if (i < n) store_some(y + i, f(load_some(x + i, n - i)), n - i);
}

}  // namespace headroom::cpu
