// Products with a right factor in eight bits and a left one in 16, whose sums are exact: a row has the same bits
// whatever the other rows, the threads and the order of work.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "bf16_product.h"
#include "vnni_layout.h"

namespace grrm {

// The left factor, laid out.
struct LeftQuads {
  const uint32_t* quads;
  int64_t row_stride;
  const float* steps;
};

inline LeftQuads lay_out_left(Matrix a, int64_t m, int64_t k, Pairs& room, Floats& steps) {
  const int64_t row_stride = quads_of(k) * 2;
  with_room(room, m * row_stride);
  steps.resize(m);
  const auto part = [&](int64_t, int64_t begin, int64_t end) {
    quantize_rows(a, k, begin, end, room.data(), steps.data());
  };
  if (m * k <= kFewNumbers)
    part(0, 0, m);
  else
    over_ranges(m, part);
  return {room.data(), row_stride, steps.data()};
}

// c [rows, columns], or what is added to it, from the two sums of each of its numbers.
GRRM_CLONES inline void scale_sums(const QuadTile& t, int64_t rows, int64_t columns, const float* row_steps,
                                   const float* column_steps, bool adds, float* c, int64_t c_columns) {
  for (int64_t r = 0; r < rows; ++r) {
    float* to = c + r * c_columns;
    for (int64_t j = 0; j < columns; ++j) {
      const float upper = static_cast<float>(t.upper[r * kPanel + j]);
      const float sum = upper * 256.0f + static_cast<float>(t.lower[r * kPanel + j]);
      const float product = sum * column_steps[j] * row_steps[r];
      to[j] = adds ? to[j] + product : product;
    }
  }
}

// Some columns of a product: what one thread does.
class QuadRange {
 public:
  QuadRange(LeftQuads a, float* b, int64_t m, int64_t n, int64_t k, bool adds, float* c, int64_t c_columns)
      : a_(a), b_(b), m_(m), n_(n), k_(k), adds_(adds), c_(c), c_columns_(c_columns), run_(quads_runner()) {}

  // Columns of the panels from `begin` to `end`.
  void run(int64_t begin, int64_t end) const {
    for (int64_t first = begin; first < end; first += kPanelsAtOnce)
      for (int64_t row = 0; row < m_; row += kBlockRows)
        for (int64_t panel = first; panel < std::min(first + kPanelsAtOnce, end); ++panel)
          multiply_block(panel, row, std::min(row + kBlockRows, m_));
  }

 private:
  void multiply_block(int64_t panel, int64_t begin, int64_t end) const {
    const QuadPanel b = QuadPanel::at(b_, k_, panel);
    const int64_t columns = std::min(kPanel, n_ - panel * kPanel);
    int32_t upper[kQuadRows * kPanel], lower[kQuadRows * kPanel];
    const int64_t tiles = (end - begin + kQuadRows - 1) / kQuadRows;
    for (int64_t i = 0; i < tiles; ++i) {  // of nearly the same height: few rows wait for what they read
      const int64_t row = begin + (end - begin) * i / tiles, rows = begin + (end - begin) * (i + 1) / tiles - row;
      for (int64_t part = 0; part < parts_of(k_); ++part) {
        const int64_t q = part * kMostSummed / kQuad;
        const int64_t n_quads = std::min(kMostSummed / kQuad, quads_of(k_) - q);
        const QuadTile tile{a_.quads + row * a_.row_stride + 2 * q, a_.row_stride, b.numbers + q * kPanel * kQuad,
                            n_quads, b.starts + part * kPanel, upper, lower};
        run_(tile, rows);
        scale_sums(tile, rows, columns, a_.steps + row, b.steps, adds_ || part > 0,
                   c_ + row * c_columns_ + panel * kPanel, c_columns_);
      }
    }
  }

  const LeftQuads a_;
  float* const b_;
  const int64_t m_, n_, k_;
  const bool adds_;
  float* const c_;
  const int64_t c_columns_;
  const RunQuads run_;
};

inline size_t vnni_pack_bytes(int, int, int n, int k) {
  return static_cast<size_t>(panels_of(n) * QuadPanel::bytes(k));
}

// cblas_sgemm_pack for b on the right, alpha 1.
inline void vnni_pack(int, int, int transpose, int, int n, int k, float, const float* matrix, int columns,
                      float* packed) {
  const Matrix b{matrix, columns, transpose == kTransposed};
  over_ranges(panels_of(n), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel)
      pack_quads(b, k, n, panel * kPanel, QuadPanel::at(packed, k, panel));
  });
}

// cblas_sgemm_compute with such a b, and an `a` as it lies; beta is 0 or 1.
inline void vnni_packed(int, int, int, int m, int n, int k, const float* a, int lda, const float* b, int,
                        float beta, float* c, int ldc) {
  static thread_local Pairs room;  // kept: products of one size follow each other
  static thread_local Floats steps;
  const LeftQuads left = lay_out_left({a, lda, false}, m, k, room, steps);
  const QuadRange product(left, const_cast<float*>(b), m, n, k, beta != 0.0f, c, ldc);
  over_ranges(panels_of(n), [&](int64_t, int64_t begin, int64_t end) { product.run(begin, end); });
}

}  // namespace grrm
