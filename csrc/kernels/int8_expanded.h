// Products with a right factor in eight bits (int8_layout.h) for any processor: it is expanded to bfloat16, which holds
// whole numbers up to 256 exactly, panel by panel.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "bf16_product.h"
#include "int8_layout.h"

namespace grrm {

// Bytes of a panel: its steps, then pairs of whole numbers as bf16_layout.h orders them.
inline int64_t expanded_panel_bytes(int64_t k) {
  return kPanel * static_cast<int64_t>(sizeof(float)) + pairs_of(k) * kPanel * 2;
}

inline size_t expanded_pack_bytes(int, int, int n, int k) {
  return static_cast<size_t>(panels_of(n) * expanded_panel_bytes(k));
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
inline void expanded_pack(int, int, int transpose, int, int n, int k, float, const float* matrix, int columns,
                          float* packed) {
  const Matrix b{matrix, columns, transpose == kTransposed};
  auto* panels = reinterpret_cast<int8_t*>(packed);
  over_ranges(panels_of(n), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel) {
      int8_t* at = panels + panel * expanded_panel_bytes(k);
      auto* steps = reinterpret_cast<float*>(at);
      quantize_panel(b, k, n, panel * kPanel, 2, steps, at + kPanel * sizeof(float));
    }
  });
}

// cblas_sgemm_compute with such a b, and an `a` as it lies; beta is 0 or 1.
inline void expanded_packed(int, int, int, int m, int n, int k, const float* a, int lda, const float* b,
                            int, float beta, float* c, int ldc) {
  static thread_local Pairs room, of_parts;
  const int64_t pairs = pairs_of(k);
  const LeftPairs left = lay_out_left({a, lda, false}, m, k, room);
  const RunTile run_tile = tile_runner();
  uint32_t* const expanded_parts = with_room(of_parts, n_threads() * pairs * kPanel);
  over_ranges(panels_of(n), [&](int64_t part, int64_t begin, int64_t end) {
    uint32_t* const expanded = expanded_parts + part * pairs * kPanel;
    for (int64_t panel = begin; panel < end; ++panel) {
      const auto* stored = reinterpret_cast<const int8_t*>(b) + panel * expanded_panel_bytes(k);
      float steps[kPanel], sums[kTileRows * kPanel];
      std::memcpy(steps, stored, sizeof steps);
      expand_pairs(stored + sizeof steps, pairs * kPanel, expanded);
      const int64_t columns = std::min<int64_t>(kPanel, n - panel * kPanel);
      for (int64_t row = 0; row < m; row += kTileRows) {
        const int64_t rows = std::min<int64_t>(kTileRows, m - row);
        const LeftPairs of_rows{left.pairs + row * left.row_stride, left.row_stride, left.pair_stride};
        run_tile({of_rows, expanded, pairs, sums, kPanel, false}, rows);
        for (int64_t r = 0; r < rows; ++r) {
          float* to = c + (row + r) * ldc + panel * kPanel;
          for (int64_t j = 0; j < columns; ++j) {
            const float product = sums[r * kPanel + j] * steps[j];
            to[j] = beta != 0.0f ? to[j] + product : product;
          }
        }
      }
    }
  });
}

}  // namespace grrm
