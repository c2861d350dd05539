// Log softmax at the label, entropy and log-normaliser of rows of logits, the twin of kernels/token_scores.h: a block
// per row, which reads the row once. Sums over a block are in an order that does not depend on timing.
//
// Numbers are float or __nv_bfloat16 in memory and float in registers. Blocks are one-dimensional, whole warps.
#pragma once

#include <cmath>
#include <cstdint>

namespace grrm_cuda {

constexpr unsigned kWarp = 32, kMostWarps = 32, kWholeWarp = 0xffffffffu;

__device__ inline float from_lane(float x, unsigned distance) { return __shfl_xor_sync(kWholeWarp, x, distance); }

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

constexpr float kFarthest = -3e38f;  // of a logit of -inf, which takes no part

// Not by fmaxf, which drops what is no number: a row with NaN has no scores, and none may be made up.
__device__ inline float distance(float logit, float from) {
  return logit - from < kFarthest ? kFarthest : logit - from;
}

// Of some of a row's logits z: the largest, the sum of e = exp(z - top), and the sum of e (z - top).
struct SoftmaxSums {
  float top, sum, weighted;
};

__device__ inline SoftmaxSums from_lane(const SoftmaxSums& x, unsigned distance) {
  return {from_lane(x.top, distance), from_lane(x.sum, distance), from_lane(x.weighted, distance)};
}

// The same sums as seen from a larger top: exp(z - top') = exp(z - top) exp(top - top').
__device__ inline SoftmaxSums lifted(const SoftmaxSums& x, float top) {
  if (x.sum == 0.0f) return {top, 0.0f, 0.0f};  // of no logit: its top is -inf, and inf - inf is no number
  const float step = x.top - top, shrunk = expf(step);
  return {top, x.sum * shrunk, (x.weighted + step * x.sum) * shrunk};
}

struct JoinSums {
  __device__ SoftmaxSums operator()(const SoftmaxSums& a, const SoftmaxSums& b) const {
    const float top = a.top > b.top ? a.top : b.top;
    const SoftmaxSums low = lifted(a, top), high = lifted(b, top);
    return {top, low.sum + high.sum, low.weighted + high.weighted};
  }
};

template <typename T>
__global__ void score_tokens(const T* logits, const int64_t* labels, float* logprobs, float* entropy, float* lse,
                             int64_t vocab) {
  const int64_t row = blockIdx.x;
  const T* z = logits + row * vocab;
  SoftmaxSums own{-INFINITY, 0.0f, 0.0f};
  for (int64_t i = threadIdx.x; i < vocab; i += blockDim.x) {
    const float value = static_cast<float>(z[i]);
    if (value == -INFINITY) continue;
    if (value > own.top) own = lifted(own, value);
    const float shifted = distance(value, own.top), e = expf(shifted);
    own.sum += e;
    own.weighted += e * shifted;
  }
  const SoftmaxSums all = over_block(own, JoinSums());
  if (threadIdx.x > 0) return;
  const float log_sum = logf(all.sum);
  lse[row] = log_sum + all.top;
  logprobs[row] = static_cast<float>(z[labels[row]]) - all.top - log_sum;
  entropy[row] = log_sum - all.weighted / all.sum;
}

// dlogits = p (g_lse - g_logprob - g_entropy (logits - lse + H)) + g_logprob onehot(label). `dlogits` may be `logits`.
template <typename T>
__global__ void score_tokens_backward(const T* logits, const int64_t* labels, const float* entropy, const float* lse,
                                      const float* g_logprob, const float* g_entropy, const float* g_lse, T* dlogits,
                                      int64_t vocab) {
  const int64_t row = blockIdx.x, label = labels[row];
  const float chosen = g_logprob[row], spread = g_entropy[row];
  const float base = g_lse[row] - chosen - spread * entropy[row];
  for (int64_t i = threadIdx.x; i < vocab; i += blockDim.x) {
    const float shifted = distance(static_cast<float>(logits[row * vocab + i]), lse[row]);
    const float pull = expf(shifted) * (base - spread * shifted) + (i == label ? chosen : 0.0f);
    dlogits[row * vocab + i] = static_cast<T>(pull);
  }
}

}  // namespace grrm_cuda
