// The matrix product that the kernels leave to a BLAS, which the caller brings.
#pragma once

#include <cstdint>

namespace grrm {

// cblas_sgemm.
using Sgemm = void (*)(int layout, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a,
                       int lda, const float* b, int ldb, float beta, float* c, int ldc);

// A matrix as it lies in memory, rows beside each other; `transposed` is how a product reads it.
struct Matrix {
  const float* data;
  int64_t columns;
  bool transposed;
};

// c [m, n] = a [m, k] b [k, n] + beta c, where a row of c begins `c_columns` behind the one before.
inline void multiply(Sgemm sgemm, int64_t m, int64_t n, int64_t k, Matrix a, Matrix b, float beta, float* c,
                     int64_t c_columns) {
  constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112;
  sgemm(kRowMajor, a.transposed ? kTransposed : kPlain, b.transposed ? kTransposed : kPlain, static_cast<int>(m),
        static_cast<int>(n), static_cast<int>(k), 1.0f, a.data, static_cast<int>(a.columns), b.data,
        static_cast<int>(b.columns), beta, c, static_cast<int>(c_columns));
}

inline void multiply(Sgemm sgemm, int64_t m, int64_t n, int64_t k, Matrix a, Matrix b, float beta, float* c) {
  multiply(sgemm, m, n, k, a, b, beta, c, n);
}

}  // namespace grrm
