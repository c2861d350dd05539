// The matrices of a decoder as its BLAS likes to read them, laid out once for all products until they change. What is
// zero is left out here as well.
#pragma once

#include "decoder.h"

namespace grrm {

constexpr int64_t kLine = 16;  // numbers of a cache line, on which every block begins

// Calls visit(block, its rows, its columns, where it is laid out) for every block of every matrix, always in one order.
template <typename Visit>
void over_blocks(Decoder& d, Visit visit) {
  const auto projection = [&](Projection& p, int64_t out) {
    for (int c = 0; c < 2; ++c) {
      for (int r = 0; r < 2; ++r) {
        const Span columns = p.extent.columns[c], rows = p.extent.rows[r];
        if (columns.size() == 0 || rows.size() == 0) continue;
        const Matrix block{p.weight + rows.begin * out + columns.begin, out, false};
        visit(block, rows.size(), columns.size(), p.packed[c][r]);
      }
    }
  };
  const int64_t queries = d.heads * d.width, keys = d.key_heads * d.width;
  for (DecoderLayer& layer : d.layers) {
    projection(layer.q, queries);
    projection(layer.k, keys);
    projection(layer.v, keys);
    projection(layer.o, d.hidden);
    projection(layer.gate, d.inner);
    projection(layer.up, d.inner);
    projection(layer.down, d.hidden);
  }
  const int64_t columns = d.head_is_transposed ? d.hidden : d.vocabulary;
  visit(Matrix{d.head, columns, d.head_is_transposed}, d.hidden, d.vocabulary, d.packed_head);
}

// Says where the blocks lie from `begin` on, if it is not null, and returns how many numbers they take.
inline int64_t place_packed(Decoder& d, float* begin) {
  int64_t n = 0;
  over_blocks(d, [&](Matrix, int64_t rows, int64_t columns, float*& packed) {
    packed = begin == nullptr ? nullptr : begin + n;
    n += (packed_numbers(d.blas, rows, columns) + kLine - 1) / kLine * kLine;
  });
  return n;
}

// Lays the blocks out where `place_packed` has said.
inline void pack(Decoder& d) {
  over_blocks(d, [&](Matrix block, int64_t rows, int64_t columns, float* packed) {
    pack_matrix(d.blas, rows, columns, block, packed);
  });
}

}  // namespace grrm
