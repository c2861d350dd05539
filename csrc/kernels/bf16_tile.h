// A few rows of the left factor times one panel of the right: the inner loop of bfloat16 products. Products of pairs are
// added up in float32, in the order of the pairs whatever the number of rows, so a row has the same bits in any company.
#pragma once

#include <cstdint>
#include <cstring>

#include "bf16_layout.h"
#include "simd.h"

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(GRRM_PLAIN_PRODUCTS) && \
    __has_include(<avx512bf16intrin.h>)
#define GRRM_HAS_BF16 1
#include <immintrin.h>
#else
#define GRRM_HAS_BF16 0
#endif

namespace grrm {

constexpr int64_t kTileRows = 12;  // with two registers of columns each, and three more for the factors
constexpr int kFewRows = 4;        // wait for the right factor, which comes from memory
constexpr int64_t kAhead = 16;     // pairs that are fetched ahead: the processor's own looking ahead ends with a page

// c [rows, kPanel] += a b, or = where it does not add; `a` begins at the tile's first row and pair.
struct Tile {
  LeftPairs a;
  const uint32_t* b;
  int64_t n_pairs;
  float* c;
  int64_t c_columns;
  bool adds;
};

using RunTile = void (*)(const Tile& tile, int64_t rows);

#if GRRM_HAS_BF16
#define GRRM_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

template <int kRows>
GRRM_BF16 inline void dot_rows(const Tile& t) {
  __m512 left[kRows], right[kRows];
  for (int r = 0; r < kRows; ++r) {
    left[r] = t.adds ? _mm512_loadu_ps(t.c + r * t.c_columns) : _mm512_setzero_ps();
    right[r] = t.adds ? _mm512_loadu_ps(t.c + r * t.c_columns + 16) : _mm512_setzero_ps();
  }
  const uint32_t* a = t.a.pairs;
  for (int64_t q = 0; q < t.n_pairs; ++q, a += t.a.pair_stride) {
    if (kRows <= kFewRows) {
      _mm_prefetch(reinterpret_cast<const char*>(t.b + (q + kAhead) * kPanel), _MM_HINT_T0);
      _mm_prefetch(reinterpret_cast<const char*>(t.b + (q + kAhead) * kPanel + 16), _MM_HINT_T0);
    }
    const __m512bh b0 = (__m512bh)_mm512_loadu_si512(t.b + q * kPanel);
    const __m512bh b1 = (__m512bh)_mm512_loadu_si512(t.b + q * kPanel + 16);
#pragma GCC unroll 12
    for (int r = 0; r < kRows; ++r) {
      const __m512bh pair = (__m512bh)_mm512_set1_epi32(static_cast<int>(a[r * t.a.row_stride]));
      left[r] = _mm512_dpbf16_ps(left[r], pair, b0);
      right[r] = _mm512_dpbf16_ps(right[r], pair, b1);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    _mm512_storeu_ps(t.c + r * t.c_columns, left[r]);
    _mm512_storeu_ps(t.c + r * t.c_columns + 16, right[r]);
  }
}

GRRM_BF16 inline void run_tile_dot(const Tile& t, int64_t rows) {
  static constexpr void (*kOf[])(const Tile&) = {dot_rows<1>, dot_rows<2>, dot_rows<3>,  dot_rows<4>,
                                                 dot_rows<5>, dot_rows<6>, dot_rows<7>,  dot_rows<8>,
                                                 dot_rows<9>, dot_rows<10>, dot_rows<11>, dot_rows<12>};
  kOf[rows - 1](t);
}
#endif

GRRM_INLINE float bf16_value(uint32_t upper_bits) {
  float value;
  std::memcpy(&value, &upper_bits, sizeof value);
  return value;
}

// The same sums on any processor; their last bits may differ from the above.
GRRM_CLONES inline void run_tile_plain(const Tile& t, int64_t rows) {
  for (int64_t r = 0; r < rows; ++r) {
    float sums[kPanel] = {};
    float* c = t.c + r * t.c_columns;
    if (t.adds) std::memcpy(sums, c, sizeof sums);
    for (int64_t q = 0; q < t.n_pairs; ++q) {
      const uint32_t pair = t.a.pairs[r * t.a.row_stride + q * t.a.pair_stride];
      const float even = bf16_value(pair << 16), odd = bf16_value(pair & 0xFFFF0000u);
      const uint32_t* b = t.b + q * kPanel;
      for (int64_t j = 0; j < kPanel; ++j) {
        sums[j] += odd * bf16_value(b[j] & 0xFFFF0000u);
        sums[j] += even * bf16_value(b[j] << 16);
      }
    }
    std::memcpy(c, sums, sizeof sums);
  }
}

// Whether this processor has dot products of bfloat16 pairs.
inline bool has_bf16() {
#if GRRM_HAS_BF16
  return __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
         __builtin_cpu_supports("avx512vl");
#else
  return false;
#endif
}

inline RunTile tile_runner() {
#if GRRM_HAS_BF16
  static const RunTile chosen = has_bf16() ? run_tile_dot : run_tile_plain;
  return chosen;
#else
  return run_tile_plain;
#endif
}

}  // namespace grrm
