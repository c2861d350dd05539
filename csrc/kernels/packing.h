// The matrices of a decoder as its BLAS likes to read them, laid out once for all products until they change.
#pragma once

#include "decoder.h"

namespace grrm {

constexpr int64_t kLine = 16;  // numbers of a cache line, on which every block begins

// Calls visit(matrix, its rows, its columns, where it is laid out) for every matrix, always in one order.
template <typename Visit>
void over_matrices(Decoder& d, Visit visit) {
  const auto projection = [&](Projection& p, int64_t in, int64_t out) {
    visit(Matrix{p.weight, out, false}, in, out, p.packed);
  };
  const int64_t queries = d.heads * d.width, keys = d.key_heads * d.width;
  for (DecoderLayer& layer : d.layers) {
    projection(layer.q, d.hidden, queries);
    projection(layer.k, d.hidden, keys);
    projection(layer.v, d.hidden, keys);
    projection(layer.o, queries, d.hidden);
    projection(layer.gate, d.hidden, d.inner);
    projection(layer.up, d.hidden, d.inner);
    projection(layer.down, d.inner, d.hidden);
  }
  const int64_t columns = d.head_is_transposed ? d.hidden : d.vocabulary;
  visit(Matrix{d.head, columns, d.head_is_transposed}, d.hidden, d.vocabulary, d.packed_head);
}

// Says where the matrices lie from `begin` on, if it is not null, and returns how many numbers they take.
inline int64_t place_packed(Decoder& d, float* begin) {
  int64_t n = 0;
  over_matrices(d, [&](Matrix, int64_t rows, int64_t columns, float*& packed) {
    packed = begin == nullptr ? nullptr : begin + n;
    n += (packed_numbers(d.blas, rows, columns) + kLine - 1) / kLine * kLine;
  });
  return n;
}

// Lays the matrices out where `place_packed` has said.
inline void pack(Decoder& d) {
  over_matrices(d, [&](Matrix matrix, int64_t rows, int64_t columns, float* packed) {
    pack_matrix(d.blas, rows, columns, matrix, packed);
  });
}

}  // namespace grrm
