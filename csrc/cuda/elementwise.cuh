// SwiGLU and rotary embedding, the twins of kernels/swiglu.h and kernels/rotary.h: a thread per number or pair.
#pragma once

#include "block.cuh"

namespace grrm_cuda {

__device__ inline float sigmoid(float x) { return 1.0f / (1.0f + expf(-x)); }

// y = silu(gate) up, over n numbers.
template <typename T>
__global__ void swiglu(const T* gate, const T* up, T* y, int64_t n) {
  const int64_t i = thread_of_grid();
  if (i >= n) return;
  const float value = static_cast<float>(gate[i]);
  y[i] = static_cast<T>(value * sigmoid(value) * static_cast<float>(up[i]));
}

// With s = sigmoid(gate): dgate = g up (s + gate s (1 - s)), dup = g gate s.
template <typename T>
__global__ void swiglu_backward(const T* gate, const T* up, const T* g, T* dgate, T* dup, int64_t n) {
  const int64_t i = thread_of_grid();
  if (i >= n) return;
  const float value = static_cast<float>(gate[i]), pull = static_cast<float>(g[i]);
  const float s = sigmoid(value), passed = value * s;
  dgate[i] = static_cast<T>(pull * static_cast<float>(up[i]) * (s + passed - passed * s));
  dup[i] = static_cast<T>(pull * passed);
}

// The halves (a, b) of each head of x [rows, heads, width] become (a cos - b sin, b cos + a sin); tables [P, width]
// have equal halves, `direction` -1 rotates back. `y` may be `x`.
template <typename T>
__global__ void rotate(const T* x, const float* cos, const float* sin, const int64_t* positions, T* y, int64_t rows,
                       int64_t heads, int64_t width, float direction) {
  const int64_t half = width / 2, i = thread_of_grid();
  if (i >= rows * heads * half) return;
  const int64_t row = i / (heads * half), place = i / half * width + i % half;
  const int64_t entry = positions[row] * width + i % half;
  const float c = cos[entry], turn = sin[entry] * direction;
  const float low = static_cast<float>(x[place]), high = static_cast<float>(x[place + half]);
  y[place] = static_cast<T>(low * c - high * turn);
  y[place + half] = static_cast<T>(high * c + low * turn);
}

}  // namespace grrm_cuda
