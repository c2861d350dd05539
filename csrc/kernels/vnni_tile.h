// A few rows in 16 bits times one panel in eight bits: the inner loop of products with eight-bit weights on processors
// that add up products of bytes (AVX512-VNNI). Sums are whole numbers, the same in any order and from either loop.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "bf16_layout.h"
#include "simd.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(GRRM_PLAIN_PRODUCTS) && \
    __has_include(<avx512vnniintrin.h>)
#define GRRM_HAS_VNNI 1
#include <immintrin.h>
#else
#define GRRM_HAS_VNNI 0
#endif

namespace grrm {

constexpr int64_t kQuad = 4;      // neighbours along k, which meet in one sum
constexpr int64_t kQuadRows = 6;  // with two registers of columns for each half of a number
constexpr int64_t kMostSummed = 1 << 15;
static_assert((255 + 128) * 127 * kMostSummed < INT32_MAX, "no sum leaves 32 bits on its way");

// Sums [rows, kPanel] over the quads: of upper halves, from `start` on, and of lower halves.
struct QuadTile {
  const uint32_t* a;  // four upper halves and four lower halves, in turn; none has a sign
  int64_t row_stride;
  const int8_t* b;  // [n_quads, kPanel, 4]
  int64_t n_quads;
  const int32_t* start;  // [kPanel]
  int32_t *upper, *lower;
};

using RunQuads = void (*)(const QuadTile& tile, int64_t rows);

#if GRRM_HAS_VNNI
#define GRRM_VNNI __attribute__((target("avx512f,avx512bw,avx512vl,avx512vnni")))

// Not __m512i, which may alias anything and so would not stay in registers.
typedef int32_t Whole __attribute__((vector_size(64)));

template <int kRows>
GRRM_VNNI inline void sum_quads(const QuadTile& t) {
  Whole upper_left[kRows], upper_right[kRows], lower_left[kRows], lower_right[kRows];
  for (int r = 0; r < kRows; ++r) {
    upper_left[r] = (Whole)_mm512_loadu_si512(t.start);
    upper_right[r] = (Whole)_mm512_loadu_si512(t.start + 16);
    lower_left[r] = lower_right[r] = Whole{};
  }
  const uint32_t* a = t.a;
  for (int64_t q = 0; q < t.n_quads; ++q, a += 2) {
    const __m512i left = _mm512_loadu_si512(t.b + q * kPanel * kQuad);
    const __m512i right = _mm512_loadu_si512(t.b + q * kPanel * kQuad + 64);
#pragma GCC unroll 6
    for (int r = 0; r < kRows; ++r) {
      const __m512i upper = _mm512_set1_epi32(static_cast<int>(a[r * t.row_stride]));
      const __m512i lower = _mm512_set1_epi32(static_cast<int>(a[r * t.row_stride + 1]));
      upper_left[r] = (Whole)_mm512_dpbusd_epi32((__m512i)upper_left[r], upper, left);
      upper_right[r] = (Whole)_mm512_dpbusd_epi32((__m512i)upper_right[r], upper, right);
      lower_left[r] = (Whole)_mm512_dpbusd_epi32((__m512i)lower_left[r], lower, left);
      lower_right[r] = (Whole)_mm512_dpbusd_epi32((__m512i)lower_right[r], lower, right);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    _mm512_storeu_si512(t.upper + r * kPanel, (__m512i)upper_left[r]);
    _mm512_storeu_si512(t.upper + r * kPanel + 16, (__m512i)upper_right[r]);
    _mm512_storeu_si512(t.lower + r * kPanel, (__m512i)lower_left[r]);
    _mm512_storeu_si512(t.lower + r * kPanel + 16, (__m512i)lower_right[r]);
  }
}

GRRM_VNNI inline void run_quads_vnni(const QuadTile& t, int64_t rows) {
  static constexpr void (*kOf[])(const QuadTile&) = {sum_quads<1>, sum_quads<2>, sum_quads<3>,
                                                     sum_quads<4>, sum_quads<5>, sum_quads<6>};
  kOf[rows - 1](t);
}
#endif

// The same sums on any processor: what those above are checked against.
GRRM_CLONES inline void run_quads_plain(const QuadTile& t, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    int32_t upper[kPanel], lower[kPanel] = {};
    std::copy_n(t.start, kPanel, upper);
    for (int64_t q = 0; q < t.n_quads; ++q) {
      uint8_t halves[2 * kQuad];
      std::memcpy(halves, t.a + r * t.row_stride + 2 * q, sizeof halves);
      const int8_t* b = t.b + q * kQuad * kPanel;
      for (int64_t j = 0; j < kPanel; ++j) {
        for (int64_t i = 0; i < kQuad; ++i) {
          upper[j] += halves[i] * b[j * kQuad + i];
          lower[j] += halves[kQuad + i] * b[j * kQuad + i];
        }
      }
    }
    std::copy_n(upper, kPanel, t.upper + r * kPanel);
    std::copy_n(lower, kPanel, t.lower + r * kPanel);
  }
}

// Whether this processor adds up products of four bytes at a time.
inline bool has_vnni() {
#if GRRM_HAS_VNNI
  return __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

inline RunQuads quads_runner() {
#if GRRM_HAS_VNNI
  static const RunQuads chosen = has_vnni() ? run_quads_vnni : run_quads_plain;
  return chosen;
#else
  return run_quads_plain;
#endif
}

}  // namespace grrm
