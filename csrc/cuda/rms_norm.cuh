// Root-mean-square norm, the twin of kernels/rms_norm.h: a block per row.
#pragma once

#include "block.cuh"

namespace grrm_cuda {

// y = x * w / sqrt(mean(x^2) + epsilon); `inverse` [rows] keeps the reciprocal root.
template <typename T>
__global__ void rms_norm(const T* x, const T* w, T* y, float* inverse, int64_t width, float epsilon) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * width;
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x) {
    const float value = static_cast<float>(x[first + i]);
    sum += value * value;
  }
  const float r = 1.0f / sqrtf(over_block(sum, Add()) / width + epsilon);
  if (threadIdx.x == 0) inverse[blockIdx.x] = r;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
    y[first + i] = static_cast<T>(static_cast<float>(x[first + i]) * r * static_cast<float>(w[i]));
}

// dx = r g w - x r^3 / H sum(g w x).
template <typename T>
__global__ void rms_norm_backward(const T* x, const T* w, const float* inverse, const T* g, T* dx, int64_t width) {
  const int64_t first = static_cast<int64_t>(blockIdx.x) * width;
  const float r = inverse[blockIdx.x];
  float pull = 0.0f;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
    pull += static_cast<float>(g[first + i]) * static_cast<float>(w[i]) * static_cast<float>(x[first + i]);
  const float c = over_block(pull, Add()) * r * r * r / width;
  for (int64_t i = threadIdx.x; i < width; i += blockDim.x)
    dx[first + i] = static_cast<T>(static_cast<float>(g[first + i]) * static_cast<float>(w[i]) * r -
                                   static_cast<float>(x[first + i]) * c);
}

// parts [gridDim.y, width]: the sum of r g x over the rows of part blockIdx.y; threads are columns.
template <typename T>
__global__ void rms_norm_weight_parts(const T* x, const float* inverse, const T* g, float* parts, int64_t rows,
                                      int64_t width) {
  const int64_t column = thread_of_grid();
  if (column >= width) return;
  const int64_t begin = rows * blockIdx.y / gridDim.y, end = rows * (blockIdx.y + 1) / gridDim.y;
  float sum = 0.0f;
  for (int64_t row = begin; row < end; ++row)
    sum += static_cast<float>(g[row * width + column]) * static_cast<float>(x[row * width + column]) * inverse[row];
  parts[blockIdx.y * width + column] = sum;
}

// dw [width]: the sum of the parts.
template <typename T>
__global__ void rms_norm_weight(const float* parts, T* dw, int64_t n_parts, int64_t width) {
  const int64_t column = thread_of_grid();
  if (column >= width) return;
  float sum = 0.0f;
  for (int64_t part = 0; part < n_parts; ++part) sum += parts[part * width + column];
  dw[column] = static_cast<T>(sum);
}

}  // namespace grrm_cuda
