// Drawing a token from a row of logits with one uniform number, and its log-probability; the twin of
// kernels/sampling.h. A block per row; nothing is sorted and nothing is stored but the sums of tiles: weights are
// computed again wherever they are read.
#pragma once

#include "../kernels/sampling_options.h"
#include "block.cuh"

namespace grrm_cuda {

constexpr int64_t kTiles = 256, kRun = 32;

// One row as the options shape it: the penalty on tokens `seen`, then bans; either may be null.
template <typename T>
struct ShapedRow {
  const T* logits;
  const uint8_t* seen;
  const uint8_t* banned;
  float penalty;

  __device__ float operator()(int64_t i) const {
    const float z = static_cast<float>(logits[i]);
    if (banned != nullptr && banned[i]) return -INFINITY;
    if (seen == nullptr || !seen[i]) return z;
    return z < 0.0f ? z * penalty : z / penalty;
  }
};

// Whole numbers in the order of the floats.
__device__ inline uint32_t ordered(float x) {
  const uint32_t bits = __float_as_uint(x == 0.0f ? 0.0f : x);  // -0 is 0
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}

// The sum of weight(i) over the tokens with taken(i): in float by each thread, in double among them.
template <typename Weight, typename Taken>
__device__ double sum_of(int64_t n, Weight weight, Taken taken) {
  float sum = 0.0f;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
    if (taken(i)) sum += weight(i);
  return over_block(static_cast<double>(sum), Add());
}

// The least key K that the weight of the keys above it is less than `limit` for; a token is kept whose key is at least
// K. With weights of 1 and a limit of k these are the k largest and their equals; with the softmax's and p times their
// sum they are the nucleus. The `largest` key is always kept.
template <typename Weight, typename Key>
__device__ uint32_t least_kept(int64_t n, Weight weight, Key key, uint32_t largest, double limit) {
  uint32_t low = 0, high = largest;
  while (low < high) {
    const uint32_t middle = low + (high - low) / 2;
    const double above = sum_of(n, weight, [&](int64_t i) { return key(i) > middle; });
    if (above < limit) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// The first token at which the running sum of weights exceeds uniform x total, never one of weight 0. One thread walks
// the sums of tiles, then of runs in one tile, then one run.
template <typename Weight>
__device__ int64_t invert_sums(int64_t n, Weight weight, double uniform) {
  __shared__ double of_tiles[kTiles];
  __shared__ int64_t drawn;
  const int64_t runs = (n + kRun * kTiles - 1) / (kRun * kTiles), tile = runs * kRun;
  const auto sum_range = [&](int64_t begin, int64_t end) {
    float sum = 0.0f;
    for (int64_t i = begin; i < (end < n ? end : n); ++i) sum += weight(i);
    return sum;
  };
  __syncthreads();
  for (int64_t t = threadIdx.x / kWarp; t < kTiles; t += blockDim.x / kWarp) {
    float sum = 0.0f;  // of a warp's threads, neighbours reading neighbours
    for (int64_t i = t * tile + threadIdx.x % kWarp; i < (t + 1) * tile && i < n; i += kWarp) sum += weight(i);
    for (unsigned distance = kWarp / 2; distance > 0; distance /= 2) sum += from_lane(sum, distance);
    if (threadIdx.x % kWarp == 0) of_tiles[t] = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    double total = 0.0, before = 0.0;
#pragma unroll 1
    for (int64_t t = 0; t < kTiles; ++t) total += of_tiles[t];
    const double target = uniform * total;
    int64_t last = 0;
#pragma unroll 1
    for (int64_t t = 0; t < kTiles; ++t) {
      if (of_tiles[t] > 0.0) last = t;
      if (before + of_tiles[t] > target) break;
      before += of_tiles[t];
    }
    int64_t begin = last * tile;
    for (int64_t run = 0; run < runs; ++run) {
      const double sum = sum_range(last * tile + run * kRun, last * tile + (run + 1) * kRun);
      if (sum > 0.0) begin = last * tile + run * kRun;
      if (before + sum > target) break;
      before += sum;
    }
    drawn = begin;
    for (int64_t i = begin; i < begin + kRun && i < n; ++i) {
      const float w = weight(i);
      if (w <= 0.0f) continue;
      drawn = i;
      before += w;
      if (before > target) break;
    }
  }
  __syncthreads();
  return drawn;
}

template <typename Row>
__device__ float largest_of(int64_t n, Row row) {
  float top = -INFINITY;
  bool is_number = true;
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) {
    const float z = row(i);
    is_number = is_number && z == z;
    top = z > top ? z : top;
  }
  const float without = over_block(is_number ? 0.0f : 1.0f, Larger());
  return without > 0.0f ? NAN : over_block(top, Larger());
}

// The first token of the largest logit.
template <typename Row>
__device__ int64_t first_largest(int64_t n, Row row, float top) {
  double first = static_cast<double>(n);
  for (int64_t i = n - 1 - threadIdx.x; i >= 0; i -= blockDim.x)
    if (row(i) == top) first = static_cast<double>(i);
  return static_cast<int64_t>(-over_block(-first, Larger()));
}

// A row per block: order and meaning as in kernels/sampling.h. `seen` and `banned` [rows, vocabulary] may be null.
// tokens[row] is -1, its log-probability 0, where the logits hold NaN, +inf or nothing but -inf, or where nothing is left
// to draw from.
template <typename T>
__global__ void __launch_bounds__(1024)
    sample(const T* logits, int64_t vocabulary, grrm::SamplingOptions options, const uint8_t* seen,
           const uint8_t* banned, const double* uniforms, int64_t* tokens, double* logprobs) {
  const int64_t row = blockIdx.x, first = row * vocabulary;
  const ShapedRow<T> plain{logits + first, nullptr, nullptr, 1.0f};
  const ShapedRow<T> shaped{logits + first, seen == nullptr ? nullptr : seen + first,
                            banned == nullptr ? nullptr : banned + first, options.repetition_penalty};
  const float inverse = fminf(1.0f / (options.temperature == 0.0f ? 1.0f : options.temperature), 3e38f);
  const auto all = [](int64_t) { return true; };
  const float top = largest_of(vocabulary, plain), shaped_top = largest_of(vocabulary, shaped);
  const bool is_drawable = fabsf(top) <= grrm::kLargest && fabsf(shaped_top) <= grrm::kLargest;
  if (!is_drawable) {  // the same for every thread of the block
    if (threadIdx.x > 0) return;
    tokens[row] = -1;
    logprobs[row] = 0.0;
    return;
  }
  const double total = sum_of(vocabulary, [&](int64_t i) { return expf((plain(i) - top) * inverse); }, all);
  int64_t token;
  if (options.temperature == 0.0f) {
    token = first_largest(vocabulary, shaped, shaped_top);
  } else {
    const auto key = [&](int64_t i) { return ordered(shaped(i)); };
    const auto one = [](int64_t) { return 1.0f; };
    uint32_t least = 0;
    const auto weight = [&](int64_t i) {
      return key(i) < least ? 0.0f : expf((shaped(i) - shaped_top) * inverse);
    };
    if (options.top_k > 0 && options.top_k < vocabulary)
      least = least_kept(vocabulary, one, key, ordered(shaped_top), static_cast<double>(options.top_k));
    if (options.top_p < 1.0) {
      const double kept = sum_of(vocabulary, weight, all);
      const uint32_t nucleus = least_kept(vocabulary, weight, key, ordered(shaped_top), options.top_p * kept);
      least = nucleus > least ? nucleus : least;
    }
    token = invert_sums(vocabulary, weight, uniforms[row]);
  }
  if (threadIdx.x == 0) {
    tokens[row] = token;
    logprobs[row] = static_cast<double>((plain(token) - top) * inverse) - log(total);
  }
}

}  // namespace grrm_cuda
