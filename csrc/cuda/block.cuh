// What the CUDA kernels share: sums over a block, in an order that does not depend on timing.
//
// Numbers are float or __nv_bfloat16 in memory and float in registers. Blocks are one-dimensional, whole warps.
#pragma once

#include <cmath>
#include <cstdint>

namespace grrm_cuda {

constexpr unsigned kWarp = 32, kMostWarps = 32, kWholeWarp = 0xffffffffu;

__device__ inline float from_lane(float x, unsigned distance) { return __shfl_xor_sync(kWholeWarp, x, distance); }

struct Add {
  template <typename V>
  __device__ V operator()(V a, V b) const {
    return a + b;
  }
};

// `join` of every thread's value, the same bits in each; `join` must not care which of two comes first. All threads of
// the block call it.
template <typename V, typename Join>
__device__ V over_block(V value, Join join) {
  __shared__ V of_warps[kMostWarps];
  for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) value = join(value, from_lane(value, distance));
  __syncthreads();  // of_warps may still be read from the call before
  if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = value;
  __syncthreads();
  V all = of_warps[0];
  for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) all = join(all, of_warps[warp]);
  return all;
}

// The number of this thread among all of a one-dimensional grid.
__device__ inline int64_t thread_of_grid() { return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; }

}  // namespace grrm_cuda
