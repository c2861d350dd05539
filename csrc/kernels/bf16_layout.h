// How the factors of a bfloat16 product are laid out: numbers that meet in one sum lie beside each other in pairs, as
// the processor's dot products read them, and a pair is 32 bits.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "gemm.h"
#include "simd.h"

namespace grrm {

constexpr int64_t kPanel = 32;  // columns of the right factor that lie beside each other

GRRM_INLINE int64_t pairs_of(int64_t k) { return (k + 1) / 2; }
GRRM_INLINE int64_t panels_of(int64_t n) { return (n + kPanel - 1) / kPanel; }

// The upper half of the float nearest to x that has zeros below; ties to even. What is not a number stays none.
GRRM_INLINE uint32_t bf16_bits(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  const uint32_t rounded = (bits + 0x7FFFu + ((bits >> 16) & 1u)) >> 16;
  const uint32_t quiet = (bits >> 16) | 0x40u;
  return (bits & 0x7FFFFFFFu) > 0x7F800000u ? quiet : rounded;
}

GRRM_INLINE uint32_t bf16_pair(float even, float odd) { return bf16_bits(even) | bf16_bits(odd) << 16; }

// The left factor [m, k]: pairs of row i at i * row_stride + q * pair_stride.
struct LeftPairs {
  const uint32_t* pairs;
  int64_t row_stride, pair_stride;
};

// Pairs [begin, end) of all rows, from columns of memory: out [pairs, m].
GRRM_CLONES inline void pair_columns(Matrix a, int64_t m, int64_t k, int64_t begin, int64_t end, uint32_t* out) {
  for (int64_t q = begin; q < end; ++q) {
    const float* even = a.data + 2 * q * a.columns;
    const float* odd = even + a.columns;
    uint32_t* to = out + q * m;
    if (2 * q + 1 < k)
      for (int64_t i = 0; i < m; ++i) to[i] = bf16_pair(even[i], odd[i]);
    else
      for (int64_t i = 0; i < m; ++i) to[i] = bf16_pair(even[i], 0.0f);
  }
}

// Rows [begin, end) of a matrix as it lies: out [m, pairs].
GRRM_CLONES inline void pair_rows(Matrix a, int64_t k, int64_t begin, int64_t end, uint32_t* out) {
  const int64_t pairs = pairs_of(k);
  for (int64_t i = begin; i < end; ++i) {
    const float* from = a.data + i * a.columns;
    uint32_t* to = out + i * pairs;
    for (int64_t q = 0; q < k / 2; ++q) to[q] = bf16_pair(from[2 * q], from[2 * q + 1]);
    if (k % 2) to[k / 2] = bf16_pair(from[k - 1], 0.0f);
  }
}

// Pairs [begin, end) of the panel of b [k, n] that starts at `column`: out [end - begin, kPanel], zeros beyond b.
GRRM_CLONES inline void pair_panel(Matrix b, int64_t k, int64_t n, int64_t column, int64_t begin, int64_t end,
                                   uint32_t* out) {
  const int64_t columns = std::min(kPanel, n - column);
  if (columns < kPanel) std::fill_n(out, (end - begin) * kPanel, 0u);
  if (!b.transposed) {
    for (int64_t q = begin; q < end; ++q) {
      const float* even = b.data + 2 * q * b.columns + column;
      const float* odd = even + b.columns;
      uint32_t* to = out + (q - begin) * kPanel;
      if (2 * q + 1 < k)
        for (int64_t j = 0; j < columns; ++j) to[j] = bf16_pair(even[j], odd[j]);
      else
        for (int64_t j = 0; j < columns; ++j) to[j] = bf16_pair(even[j], 0.0f);
    }
    return;
  }
  constexpr int64_t kAtOnce = 64;  // so that what is written stays in the first-level cache
  for (int64_t first = begin; first < end; first += kAtOnce) {
    const int64_t last = std::min(first + kAtOnce, end);
    for (int64_t j = 0; j < columns; ++j) {
      const float* from = b.data + (column + j) * b.columns;
      uint32_t* to = out + j - begin * kPanel;
      for (int64_t q = first; q < last; ++q)
        to[q * kPanel] = bf16_pair(from[2 * q], 2 * q + 1 < k ? from[2 * q + 1] : 0.0f);
    }
  }
}

}  // namespace grrm
