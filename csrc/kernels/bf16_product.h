// Matrix products whose factors are rounded to bfloat16 and whose sums are float32, behind the interface of a BLAS
// (gemm.h), so that whatever multiplies in float32 can be given these instead.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "aligned.h"
#include "bf16_layout.h"
#include "bf16_tile.h"
#include "gemm.h"
#include "threads.h"

namespace grrm {

constexpr int64_t kDepth = 384;        // pairs of a panel that are read again and again: 48 kB
constexpr int64_t kBlockRows = 120;    // rows of the left factor that meet them: 180 kB
constexpr int64_t kPanelsAtOnce = 4;   // that a thread lays out before it multiplies
constexpr int64_t kLaidOut = kPanelsAtOnce * kDepth * kPanel;
constexpr int64_t kFewNumbers = 1 << 15;  // are laid out faster than a second thread wakes up

using Pairs = std::vector<uint32_t, OnCacheLines<uint32_t>>;

// The right factor: in panels already, or as it lies in memory.
struct RightFactor {
  const uint32_t* panels;
  Matrix matrix;
};

// Buffers grow before threads divide the work: an exception must not leave a thread.
inline uint32_t* with_room(Pairs& buffer, int64_t n) {
  if (static_cast<int64_t>(buffer.size()) < n) buffer.resize(n);
  return buffer.data();
}

inline LeftPairs lay_out_left(Matrix a, int64_t m, int64_t k, Pairs& room) {
  const int64_t pairs = pairs_of(k);
  with_room(room, m * pairs);
  const auto part = [&](int64_t, int64_t begin, int64_t end) {
    if (a.transposed)
      pair_columns(a, m, k, begin, end, room.data());
    else
      pair_rows(a, k, begin, end, room.data());
  };
  const int64_t parts = a.transposed ? pairs : m;
  if (m * k <= kFewNumbers)
    part(0, 0, parts);
  else
    over_ranges(parts, part);
  return a.transposed ? LeftPairs{room.data(), 1, m} : LeftPairs{room.data(), pairs, 1};
}

// Some columns of a product: what one thread does.
class PanelRange {
 public:
  PanelRange(LeftPairs a, RightFactor b, int64_t m, int64_t n, int64_t k, float beta, float* c, int64_t c_columns)
      : a_(a), b_(b), m_(m), n_(n), k_(k), adds_(beta != 0.0f), c_(c), c_columns_(c_columns) {}

  // Columns of the panels from `begin` to `end`; `laid_out` has room for kLaidOut pairs unless they are laid out.
  void run(int64_t begin, int64_t end, uint32_t* laid_out) const {
    const int64_t pairs = pairs_of(k_);
    for (int64_t first = begin; first < end; first += kPanelsAtOnce) {
      const int64_t last = std::min(first + kPanelsAtOnce, end);
      for (int64_t q = 0; q < pairs; q += kDepth) {
        const int64_t depth = std::min(kDepth, pairs - q);
        const uint32_t* panels[kPanelsAtOnce];
        for (int64_t panel = first; panel < last; ++panel)
          panels[panel - first] = panel_at(panel, q, depth, laid_out + (panel - first) * depth * kPanel);
        for (int64_t row = 0; row < m_; row += kBlockRows)
          for (int64_t panel = first; panel < last; ++panel)
            multiply_block(panels[panel - first], panel, q, depth, row, std::min(row + kBlockRows, m_));
      }
    }
  }

 private:
  const uint32_t* panel_at(int64_t panel, int64_t q, int64_t depth, uint32_t* room) const {
    if (b_.panels != nullptr) return b_.panels + (panel * pairs_of(k_) + q) * kPanel;
    pair_panel(b_.matrix, k_, n_, panel * kPanel, q, q + depth, room);
    return room;
  }

  void multiply_block(const uint32_t* b, int64_t panel, int64_t q, int64_t depth, int64_t begin, int64_t end) const {
    const RunTile run_tile = tile_runner();
    const int64_t columns = std::min(kPanel, n_ - panel * kPanel);
    for (int64_t row = begin; row < end; row += kTileRows) {
      const int64_t rows = std::min(kTileRows, end - row);
      const LeftPairs a{a_.pairs + row * a_.row_stride + q * a_.pair_stride, a_.row_stride, a_.pair_stride};
      float* c = c_ + row * c_columns_ + panel * kPanel;
      const bool adds = adds_ || q > 0;
      if (columns == kPanel) {
        run_tile({a, b, depth, c, c_columns_, adds}, rows);
        continue;
      }
      float edge[kTileRows * kPanel] = {};  // a tile is whole, the columns of c are not
      for (int64_t r = 0; adds && r < rows; ++r) std::copy_n(c + r * c_columns_, columns, edge + r * kPanel);
      run_tile({a, b, depth, edge, kPanel, adds}, rows);
      for (int64_t r = 0; r < rows; ++r) std::copy_n(edge + r * kPanel, columns, c + r * c_columns_);
    }
  }

  const LeftPairs a_;
  const RightFactor b_;
  const int64_t m_, n_, k_;
  const bool adds_;
  float* const c_;
  const int64_t c_columns_;
};

// c [m, n] = a [m, k] b [k, n], or added to c where beta is not 0, which then is 1.
inline void bf16_multiply(int64_t m, int64_t n, int64_t k, Matrix a, RightFactor b, float beta, float* c,
                          int64_t c_columns) {
  if (k == 0) {
    for (int64_t row = 0; row < m && beta == 0.0f; ++row) std::fill_n(c + row * c_columns, n, 0.0f);
    return;
  }
  static thread_local Pairs room, of_parts;  // kept: products of one size follow each other
  const PanelRange product(lay_out_left(a, m, k, room), b, m, n, k, beta, c, c_columns);
  uint32_t* const laid_out = with_room(of_parts, b.panels == nullptr ? n_threads() * kLaidOut : 0);
  over_ranges(panels_of(n), [&](int64_t part, int64_t begin, int64_t end) {
    product.run(begin, end, laid_out + (b.panels == nullptr ? part * kLaidOut : 0));
  });
}

// cblas_sgemm and its kin for row-major matrices, alpha 1, and beta 0 or 1.
inline void bf16_sgemm(int, int transpose_a, int transpose_b, int m, int n, int k, float, const float* a, int lda,
                       const float* b, int ldb, float beta, float* c, int ldc) {
  bf16_multiply(m, n, k, {a, lda, transpose_a == kTransposed}, {nullptr, {b, ldb, transpose_b == kTransposed}}, beta, c,
                ldc);
}

inline size_t bf16_pack_bytes(int, int, int n, int k) {
  return static_cast<size_t>(panels_of(n) * pairs_of(k) * kPanel) * sizeof(uint32_t);
}

inline void bf16_pack(int, int, int transpose, int, int n, int k, float, const float* matrix, int columns,
                      float* packed) {
  const Matrix b{matrix, columns, transpose == kTransposed};
  auto* out = reinterpret_cast<uint32_t*>(packed);
  over_ranges(panels_of(n), [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t panel = begin; panel < end; ++panel)
      pair_panel(b, k, n, panel * kPanel, 0, pairs_of(k), out + panel * pairs_of(k) * kPanel);
  });
}

inline void bf16_packed(int, int, int, int m, int n, int k, const float* a, int lda, const float* b, int, float beta,
                        float* c, int ldc) {
  bf16_multiply(m, n, k, {a, lda, false}, {reinterpret_cast<const uint32_t*>(b), {}}, beta, c, ldc);
}

}  // namespace grrm
