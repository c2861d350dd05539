// What all kernels share: one version of each function per instruction set, and an exponential the compiler vectorises.
#pragma once

#include <cstdint>
#include <cstring>

// The loader picks the newest version that the processor has; a build needs no -march and runs anywhere.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(GRRM_NO_CLONES)
#define GRRM_CLONES __attribute__((target_clones("avx512f", "arch=haswell", "default")))
#else
#define GRRM_CLONES
#endif
#define GRRM_INLINE static inline __attribute__((always_inline))

namespace grrm {

// Sixteen numbers at a time, in as many registers as the instruction set needs. Passed by reference only: how vectors
// are passed by value depends on the instruction set.
constexpr int64_t kLanes = 16;
typedef float Lanes __attribute__((vector_size(64)));

GRRM_INLINE void load(const float* from, Lanes& to) { std::memcpy(&to, from, sizeof to); }
GRRM_INLINE void store(const Lanes& from, float* to) { std::memcpy(to, &from, sizeof from); }

// The largest of `before` and x[begin] to x[end - 1].
GRRM_INLINE float largest(const float* x, int64_t begin, int64_t end, float before) {
  float top = before;
#pragma omp simd reduction(max : top)
  for (int64_t j = begin; j < end; ++j) top = x[j] > top ? x[j] : top;
  return top;
}

// exp(x) for x <= 0 or small positive x, relative error below 3e-7: 2^n * p(r) with r in [-ln2/2, ln2/2] (Cephes
// expf's polynomial). Below -87 it is 0, above 88 it stays finite.
GRRM_INLINE float exp_approx(float x) {
  const float clamped = x < -87.0f ? -87.0f : (x > 88.0f ? 88.0f : x);
  const float shifted = clamped * 1.44269504088896341f + 12582912.0f;  // rounds to the nearest integer
  const float n = shifted - 12582912.0f;
  const float r = (clamped - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  int32_t bits;
  std::memcpy(&bits, &shifted, sizeof bits);
  const int32_t scale_bits = (bits - 0x4B400000 + 127) << 23;
  float scale;
  std::memcpy(&scale, &scale_bits, sizeof scale);
  const float value = p * scale;
  return x < -87.0f ? 0.0f : value;
}

}  // namespace grrm
