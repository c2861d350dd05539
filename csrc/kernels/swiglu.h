// Gated unit: y = silu(gate) * up, elementwise over n numbers.
#pragma once

#include "simd.h"

namespace grrm {

GRRM_INLINE float sigmoid_approx(float x) {
  const float e = exp_approx(x < 0.0f ? x : -x);  // of a number that is not positive: never overflows
  const float s = 1.0f / (1.0f + e);
  return x < 0.0f ? e * s : s;
}

GRRM_CLONES
static void swiglu_range(const float* gate, const float* up, float* y, int64_t begin, int64_t end) {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) y[i] = gate[i] * sigmoid_approx(gate[i]) * up[i];
}

// With s = sigmoid(gate): dgate = g * up * (s + gate * s * (1 - s)); dup = g * gate * s.
GRRM_CLONES
static void swiglu_backward_range(const float* gate, const float* up, const float* g, float* dgate, float* dup,
                                  int64_t begin, int64_t end) {
#pragma omp simd
  for (int64_t i = begin; i < end; ++i) {
    const float s = sigmoid_approx(gate[i]);
    const float passed = gate[i] * s;
    dgate[i] = g[i] * up[i] * (s + passed - passed * s);
    dup[i] = g[i] * passed;
  }
}

}  // namespace grrm
