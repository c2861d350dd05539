// Products whose right factor is stored in eight bits, with one scale for each of its columns: half of the memory that
// bfloat16 takes. It is expanded to bfloat16, which holds whole numbers up to 256 exactly, panel by panel.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "bf16_product.h"

namespace grrm {

constexpr int kInt8Top = 127;

// Bytes of a panel: its scales, then pairs of whole numbers as bf16_layout.h orders them.
inline int64_t int8_panel_bytes(int64_t k) {
  return kPanel * static_cast<int64_t>(sizeof(float)) + pairs_of(k) * kPanel * 2;
}

inline size_t int8_pack_bytes(int, int, int n, int k) {
  return static_cast<size_t>(panels_of(n) * int8_panel_bytes(k));
}

// The panel of b [k, n] that starts at `column`: every column in steps of its largest number by 127, zeros beyond b. A
// column with a number that is not finite has a scale that is none, so that its sums are none.
GRRM_CLONES inline void quantize_panel(Matrix b, int64_t k, int64_t n, int64_t column, int8_t* panel) {
  float scales[kPanel] = {};
  int8_t* numbers = panel + sizeof scales;
  std::fill_n(numbers, pairs_of(k) * kPanel * 2, int8_t{0});
  for (int64_t j = 0; j < std::min(kPanel, n - column); ++j) {
    const float* from = b.data + (b.transposed ? (column + j) * b.columns : column + j);
    const int64_t step = b.transposed ? 1 : b.columns;
    float largest = 0.0f;
    bool is_finite = true;
    for (int64_t i = 0; i < k; ++i) {
      const float size = std::fabs(from[i * step]);
      is_finite = is_finite && size <= std::numeric_limits<float>::max();
      largest = std::max(largest, size);
    }
    scales[j] = is_finite ? largest / kInt8Top : std::numeric_limits<float>::quiet_NaN();
    if (!is_finite) continue;
    const float inverse = largest > 0.0f ? kInt8Top / largest : 0.0f;
    for (int64_t i = 0; i < k; ++i)
      numbers[(i / 2 * kPanel + j) * 2 + i % 2] = static_cast<int8_t>(std::lrintf(from[i * step] * inverse));
  }
  std::memcpy(panel, scales, sizeof scales);
}

// Whole numbers as bfloat16 pairs.
GRRM_CLONES inline void expand_pairs(const int8_t* numbers, int64_t n, uint32_t* pairs) {
  for (int64_t i = 0; i < n; ++i) {
    const float even = numbers[2 * i], odd = numbers[2 * i + 1];
    uint32_t low, high;
    std::memcpy(&low, &even, sizeof low);
    std::memcpy(&high, &odd, sizeof high);
    pairs[i] = low >> 16 | (high & 0xFFFF0000u);
  }
}

// cblas_sgemm_pack for b on the right, alpha 1.
inline void int8_pack(int, int, int transpose, int, int n, int k, float, const float* matrix, int columns,
                      float* packed) {
  const Matrix b{matrix, columns, transpose == kTransposed};
  auto* panels = reinterpret_cast<int8_t*>(packed);
  over_ranges(panels_of(n), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel)
      quantize_panel(b, k, n, panel * kPanel, panels + panel * int8_panel_bytes(k));
  });
}

// cblas_sgemm_compute with such a b; beta is 0 or 1.
inline void int8_packed(int, int transpose_a, int, int m, int n, int k, const float* a, int lda, const float* b, int,
                        float beta, float* c, int ldc) {
  static thread_local Pairs room, of_parts;
  const int64_t pairs = pairs_of(k);
  const LeftPairs left = lay_out_left({a, lda, transpose_a == kTransposed}, m, k, room);
  const RunTile run_tile = tile_runner();
  uint32_t* const expanded_parts = with_room(of_parts, n_threads() * pairs * kPanel);
  over_ranges(panels_of(n), [&](int64_t part, int64_t begin, int64_t end) {
    uint32_t* const expanded = expanded_parts + part * pairs * kPanel;
    for (int64_t panel = begin; panel < end; ++panel) {
      const auto* stored = reinterpret_cast<const int8_t*>(b) + panel * int8_panel_bytes(k);
      float scales[kPanel], sums[kTileRows * kPanel];
      std::memcpy(scales, stored, sizeof scales);
      expand_pairs(stored + sizeof scales, pairs * kPanel, expanded);
      const int64_t columns = std::min<int64_t>(kPanel, n - panel * kPanel);
      for (int64_t row = 0; row < m; row += kTileRows) {
        const int64_t rows = std::min<int64_t>(kTileRows, m - row);
        const LeftPairs of_rows{left.pairs + row * left.row_stride, left.row_stride, left.pair_stride};
        run_tile({of_rows, expanded, pairs, sums, kPanel, false}, rows);
        for (int64_t r = 0; r < rows; ++r) {
          float* to = c + (row + r) * ldc + panel * kPanel;
          for (int64_t j = 0; j < columns; ++j) {
            const float product = sums[r * kPanel + j] * scales[j];
            to[j] = beta != 0.0f ? to[j] + product : product;
          }
        }
      }
    }
  });
}

}  // namespace grrm
