// How the factors of a product of whole numbers are laid out: four neighbours along k beside each other. A number of
// the left factor is rounded to 16 bits, in steps of its row's largest number by 32767, moved up so that none is below
// zero, and cut in two bytes; where each panel's sums begin takes the move back.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "int8_layout.h"
#include "vnni_tile.h"

namespace grrm {

constexpr float kInt16Top = 32767.0f;
constexpr float kLeastRow = 1e-37f;  // rows of smaller numbers are zeros
constexpr float kBetween = 4.0f;     // divided by any larger number it is neither infinite nor denormal

GRRM_INLINE int64_t quads_of(int64_t k) { return (k + kQuad - 1) / kQuad; }

// A sum of more is several, each with a start of its own. Without any k there is one, of nothing.
GRRM_INLINE int64_t parts_of(int64_t k) { return std::max<int64_t>((k + kMostSummed - 1) / kMostSummed, 1); }

// x, which is at most kBetween in size, in 32767 steps either way from 32768. Added to 1.5 times 2^23, which has no
// bits for fractions, it is the lower half of the sum's bits.
GRRM_INLINE uint32_t int16_bits(float x) {
  const float moved = x * (kInt16Top / kBetween) + (12582912.0f + 32768.0f);
  uint32_t bits;
  std::memcpy(&bits, &moved, sizeof bits);
  return bits;
}

// Four numbers times `inverse`: their upper bytes, then their lower ones.
GRRM_INLINE void put_quad(const float* four, float inverse, uint32_t* out) {
  const uint32_t b0 = int16_bits(four[0] * inverse), b1 = int16_bits(four[1] * inverse);
  const uint32_t b2 = int16_bits(four[2] * inverse), b3 = int16_bits(four[3] * inverse);
  out[0] = (b0 >> 8 & 0xFFu) | (b1 & 0xFF00u) | (b2 & 0xFF00u) << 8 | (b3 & 0xFF00u) << 16;
  out[1] = (b0 & 0xFFu) | (b1 & 0xFFu) << 8 | (b2 & 0xFFu) << 16 | b3 << 24;
}

// Rows [begin, end) of a [m, k] as it lies: quads [m, quads, 2], upper bytes and lower bytes, and the step of each row:
// none where the row has a number that is not finite.
GRRM_CLONES inline void quantize_rows(Matrix a, int64_t k, int64_t begin, int64_t end, uint32_t* quads, float* steps) {
  for (int64_t row = begin; row < end; ++row) {
    const float* from = a.data + row * a.columns;
    uint32_t* to = quads + row * quads_of(k) * 2;
    uint32_t bits = 0;
    for (int64_t i = 0; i < k; ++i) bits = std::max(bits, size_bits(from[i]));
    const float largest = finite_size(bits);
    steps[row] = largest < kLeastRow ? 0.0f : largest / kInt16Top;
    if (!(steps[row] > 0.0f)) {
      std::fill_n(to, quads_of(k) * 2, 0u);
      continue;
    }
    const float inverse = kBetween / largest;
    for (int64_t q = 0; q < k / kQuad; ++q) put_quad(from + kQuad * q, inverse, to + 2 * q);
    if (k % kQuad != 0) {
      float last[kQuad] = {};
      std::copy_n(from + k / kQuad * kQuad, k % kQuad, last);
      put_quad(last, inverse, to + k / kQuad * 2);
    }
  }
}

// A panel of the right factor where it is stored: steps [kPanel], starts [parts, kPanel], numbers [quads, kPanel, 4].
struct QuadPanel {
  float* steps;
  int32_t* starts;
  int8_t* numbers;

  static int64_t bytes(int64_t k) {
    const int64_t head = (1 + parts_of(k)) * kPanel * static_cast<int64_t>(sizeof(float));
    return head + quads_of(k) * kPanel * kQuad;
  }

  static QuadPanel at(float* stored, int64_t k, int64_t panel) {
    auto* steps = stored + panel * bytes(k) / static_cast<int64_t>(sizeof(float));
    auto* starts = reinterpret_cast<int32_t*>(steps + kPanel);
    return {steps, starts, reinterpret_cast<int8_t*>(starts + parts_of(k) * kPanel)};
  }
};

GRRM_CLONES inline void pack_quads(Matrix b, int64_t k, int64_t n, int64_t column, QuadPanel to) {
  quantize_panel(b, k, n, column, kQuad, to.steps, to.numbers);
  for (int64_t part = 0; part < parts_of(k); ++part) {
    int32_t* starts = to.starts + part * kPanel;
    std::fill_n(starts, kPanel, 0);
    const int64_t end = std::min((part + 1) * kMostSummed / kQuad, quads_of(k));
    for (int64_t q = part * kMostSummed / kQuad; q < end; ++q)
      for (int64_t j = 0; j < kPanel; ++j)
        for (int64_t i = 0; i < kQuad; ++i) starts[j] -= 128 * to.numbers[(q * kPanel + j) * kQuad + i];
  }
}

}  // namespace grrm
