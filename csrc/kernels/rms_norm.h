// Root-mean-square norm: y = x * w / sqrt(mean(x^2) + eps), rows [N, H].
#pragma once

#include <cmath>

#include "simd.h"

namespace grrm {

GRRM_CLONES
static void rms_norm_rows(const float* x, const float* w, float* y, float* inverse, int64_t begin, int64_t end,
                          int64_t width, float epsilon) {
  for (int64_t row = begin; row < end; ++row) {
    const float* xr = x + row * width;
    float* yr = y + row * width;
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < width; ++i) sum += xr[i] * xr[i];
    const float r = 1.0f / std::sqrt(sum / width + epsilon);
    inverse[row] = r;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) yr[i] = xr[i] * r * w[i];
  }
}

// dx = r * g * w - x * r^3 / H * sum(g * w * x); dw += sum over rows of r * g * x, added to `dw`.
GRRM_CLONES
static void rms_norm_backward_rows(const float* x, const float* w, const float* inverse, const float* g, float* dx,
                                   float* dw, int64_t begin, int64_t end, int64_t width) {
  for (int64_t row = begin; row < end; ++row) {
    const float* xr = x + row * width;
    const float* gr = g + row * width;
    float* dxr = dx + row * width;
    const float r = inverse[row];
    float pull = 0.0f;
#pragma omp simd reduction(+ : pull)
    for (int64_t i = 0; i < width; ++i) pull += gr[i] * w[i] * xr[i];
    const float c = pull * r * r * r / width;
#pragma omp simd
    for (int64_t i = 0; i < width; ++i) {
      dxr[i] = gr[i] * w[i] * r - xr[i] * c;
      dw[i] += gr[i] * xr[i] * r;
    }
  }
}

}  // namespace grrm
