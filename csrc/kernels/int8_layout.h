// Matrices whose columns are stored in eight bits: whole numbers, and for each column the step between them. Numbers
// that meet in one sum lie beside each other in groups, of as many as the product takes at a time.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

#include "bf16_layout.h"

namespace grrm {

constexpr int kInt8Top = 127;
constexpr float kLeastColumn = 1e-36f;  // columns of smaller numbers are zeros: 127 divided by them is no number

// The bits of |x|: in the order of the sizes, and what is not finite comes last.
GRRM_INLINE uint32_t size_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  return bits & 0x7FFFFFFFu;
}

// The number of these bits, none where they are not of a finite one.
GRRM_INLINE float finite_size(uint32_t bits) {
  float size;
  std::memcpy(&size, &bits, sizeof size);
  return bits < 0x7F800000u ? size : std::numeric_limits<float>::quiet_NaN();
}

// The panel of b [k, n] that starts at `column`: steps [kPanel] and numbers [groups of k, kPanel, group], zeros beyond
// b. A column with a number that is not finite has a step that is none, so that its sums are none.
GRRM_CLONES inline void quantize_panel(Matrix b, int64_t k, int64_t n, int64_t column, int64_t group, float* steps,
                                       int8_t* numbers) {
  std::fill_n(steps, kPanel, 0.0f);
  std::fill_n(numbers, (k + group - 1) / group * group * kPanel, int8_t{0});
  for (int64_t j = 0; j < std::min(kPanel, n - column); ++j) {
    const float* from = b.data + (b.transposed ? (column + j) * b.columns : column + j);
    const int64_t step = b.transposed ? 1 : b.columns;
    uint32_t bits = 0;
    for (int64_t i = 0; i < k; ++i) bits = std::max(bits, size_bits(from[i * step]));
    const float largest = finite_size(bits);
    if (largest < kLeastColumn) continue;
    steps[j] = largest / kInt8Top;
    if (!(largest > 0.0f)) continue;
    const float inverse = kInt8Top / largest;
    int8_t* to = numbers + j * group;
    for (int64_t first = 0; first < k; first += group, to += kPanel * group)
      for (int64_t i = first; i < std::min(first + group, k); ++i)
        to[i - first] = static_cast<int8_t>(std::lrintf(from[i * step] * inverse));
  }
}

}  // namespace grrm
