// The matrix product that the kernels leave to a BLAS, which the caller brings.
#pragma once

#include <cstddef>
#include <cstdint>

namespace grrm {

// cblas_sgemm.
using Sgemm = void (*)(int layout, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a,
                       int lda, const float* b, int ldb, float beta, float* c, int ldc);

// cblas_sgemm and, where a BLAS has them, else null, cblas_sgemm_pack_get_size, _pack and _compute.
struct Blas {
  Sgemm sgemm;
  size_t (*pack_bytes)(int which, int m, int n, int k);
  void (*pack)(int layout, int which, int transpose, int m, int n, int k, float alpha, const float* matrix, int columns,
               float* packed);
  void (*packed)(int layout, int transpose_a, int transpose_b, int m, int n, int k, const float* a, int lda,
                 const float* b, int ldb, float beta, float* c, int ldc);

  bool packs() const { return pack_bytes != nullptr && pack != nullptr && packed != nullptr; }
};

// A matrix as it lies in memory, rows beside each other; `transposed` is how a product reads it.
struct Matrix {
  const float* data;
  int64_t columns;
  bool transposed;
};

constexpr int kRowMajor = 101, kPlain = 111, kTransposed = 112, kPacked = 151, kSecondFactor = 162;

// c [m, n] = a [m, k] b [k, n] + beta c, where a row of c begins `c_columns` behind the one before.
inline void multiply(Sgemm sgemm, int64_t m, int64_t n, int64_t k, Matrix a, Matrix b, float beta, float* c,
                     int64_t c_columns) {
  sgemm(kRowMajor, a.transposed ? kTransposed : kPlain, b.transposed ? kTransposed : kPlain, static_cast<int>(m),
        static_cast<int>(n), static_cast<int>(k), 1.0f, a.data, static_cast<int>(a.columns), b.data,
        static_cast<int>(b.columns), beta, c, static_cast<int>(c_columns));
}

inline void multiply(Sgemm sgemm, int64_t m, int64_t n, int64_t k, Matrix a, Matrix b, float beta, float* c) {
  multiply(sgemm, m, n, k, a, b, beta, c, n);
}

// The same with a `b` of `pack_matrix`, which is good for any m.
inline void multiply_packed(const Blas& blas, int64_t m, int64_t n, int64_t k, const float* a, int64_t a_columns,
                            const float* b, float beta, float* c, int64_t c_columns) {
  blas.packed(kRowMajor, kPlain, kPacked, static_cast<int>(m), static_cast<int>(n), static_cast<int>(k), a,
              static_cast<int>(a_columns), b, static_cast<int>(n), beta, c, static_cast<int>(c_columns));
}

constexpr int kAnyRows = 16;  // what packing is told of m

// Room for a matrix [k, n] that is laid out.
inline int64_t packed_numbers(const Blas& blas, int64_t k, int64_t n) {
  const size_t bytes = blas.pack_bytes(kSecondFactor, kAnyRows, static_cast<int>(n), static_cast<int>(k));
  return static_cast<int64_t>((bytes + sizeof(float) - 1) / sizeof(float));
}

// Lays b [k, n] out for products from the right.
inline void pack_matrix(const Blas& blas, int64_t k, int64_t n, Matrix b, float* packed) {
  blas.pack(kRowMajor, kSecondFactor, b.transposed ? kTransposed : kPlain, kAnyRows, static_cast<int>(n),
            static_cast<int>(k), 1.0f, b.data, static_cast<int>(b.columns), packed);
}

}  // namespace grrm
