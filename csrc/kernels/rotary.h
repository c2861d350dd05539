// Rotary position embedding over [N, heads, D]: the halves (a, b) of a head become (a cos - b sin, b cos + a sin).
#pragma once

#include "simd.h"

namespace grrm {

// `cos` and `sin` are tables [P, D] whose halves are equal, `positions` [N] names a row of them for each token.
// `direction` 1 rotates, -1 rotates back, which is the gradient. `y` may be `x`.
GRRM_CLONES
static void rotate_rows(const float* x, const float* cos, const float* sin, const int64_t* positions, float* y,
                        int64_t begin, int64_t end, int64_t heads, int64_t width, float direction) {
  const int64_t half = width / 2;
  for (int64_t row = begin; row < end; ++row) {
    const float* c = cos + positions[row] * width;
    const float* s = sin + positions[row] * width;
    for (int64_t head = 0; head < heads; ++head) {
      const float* a = x + (row * heads + head) * width;
      float* out = y + (row * heads + head) * width;
#pragma omp simd
      for (int64_t i = 0; i < half; ++i) {
        const float turn = s[i] * direction, low = a[i], high = a[i + half];
        out[i] = low * c[i] - high * turn;
        out[i + half] = high * c[i] + low * turn;
      }
    }
  }
}

}  // namespace grrm
