// Drawing a token from a row of logits with one uniform number, and its log-probability; nothing is sorted.
#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "simd.h"

namespace grrm {

struct SamplingOptions {
  float temperature;  // 0 takes the largest
  int64_t top_k;      // 0 keeps all
  double top_p;       // 1 keeps all
  float repetition_penalty;
};

constexpr float kLargest = 3.4028235e38f;  // a finite logit is no larger

constexpr int64_t kBlock = 64;  // weights are added up in blocks: in float within one, in double among them

GRRM_INLINE int64_t whole_blocks(int64_t n) { return (n + kBlock - 1) / kBlock; }

// weights[i] = exp((z[i] - top) * inverse), sums[b] their sum in block b; returns the total.
GRRM_INLINE double exponential_weights(const float* z, int64_t n, float top, float inverse, float* weights,
                                       double* sums) {
  double total = 0.0;
  for (int64_t block = 0; block < whole_blocks(n); ++block) {
    const int64_t begin = block * kBlock, end = begin + kBlock < n ? begin + kBlock : n;
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = begin; i < end; ++i) {
      weights[i] = exp_approx((z[i] - top) * inverse);
      sum += weights[i];
    }
    sums[block] = sum;
    total += sums[block];
  }
  return total;
}

GRRM_INLINE double add_blocks(const float* weights, int64_t n, double* sums) {
  double total = 0.0;
  for (int64_t block = 0; block < whole_blocks(n); ++block) {
    const int64_t begin = block * kBlock, end = begin + kBlock < n ? begin + kBlock : n;
    float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = begin; i < end; ++i) sum += weights[i];
    sums[block] = sum;
    total += sums[block];
  }
  return total;
}

// The least weight in the smallest set of largest weights that holds `mass`: a weight is in it when all larger ones
// together fall short. Quickselect on sums instead of ranks.
static float nucleus_threshold(const float* weights, int64_t n, double mass, std::vector<float>& left) {
  left.assign(weights, weights + n);
  double above = 0.0;
  float least = *std::max_element(left.begin(), left.end());
  auto begin = left.begin(), end = left.end();
  while (begin != end) {
    const float pivot = begin[(end - begin) / 2];
    const auto equal = std::partition(begin, end, [pivot](float w) { return w > pivot; });
    const auto smaller = std::partition(equal, end, [pivot](float w) { return w == pivot; });
    double larger = above;
    for (auto w = begin; w != equal; ++w) larger += *w;
    if (larger >= mass) {
      end = equal;
      continue;
    }
    least = pivot;
    above = larger + static_cast<double>(pivot) * (smaller - equal);
    begin = smaller;
  }
  return least;
}

// First index at which the running sum exceeds uniform x total; never one whose weight is 0.
GRRM_INLINE int64_t invert_cdf(const float* weights, const double* sums, int64_t n, double total, double uniform) {
  const double target = uniform * total;
  double before = 0.0;
  int64_t last = 0;
  for (int64_t block = 0; block < whole_blocks(n); ++block) {
    if (sums[block] > 0.0) last = block;
    if (before + sums[block] > target) break;
    before += sums[block];
  }
  const int64_t begin = last * kBlock, end = begin + kBlock < n ? begin + kBlock : n;
  int64_t drawn = begin;
  for (int64_t i = begin; i < end; ++i) {
    if (weights[i] <= 0.0f) continue;
    drawn = i;
    before += weights[i];
    if (before > target) break;
  }
  return drawn;
}

// Buffers of one thread.
struct SamplingBuffers {
  std::vector<float> shaped, weights, left;
  std::vector<double> sums;

  explicit SamplingBuffers(int64_t vocabulary)
      : shaped(vocabulary), weights(vocabulary), left(vocabulary), sums(whole_blocks(vocabulary)) {}
};

struct Drawn {
  int64_t token;
  double logprob;
};

// Order: repetition penalty on the tokens `seen` (null without one), `banned` tokens, temperature, top-k, top-p. The
// log-probability is that of the logits as they came, at the temperature (1 where it is 0). Returns false where they
// hold NaN, +inf or nothing but -inf, or where the penalty or a ban leaves nothing else to draw from.
GRRM_CLONES
static bool sample_row(const float* logits, int64_t vocabulary, const SamplingOptions& options, const uint8_t* seen,
                       const int64_t* banned, int64_t n_banned, double uniform, SamplingBuffers& buffers,
                       Drawn& drawn) {
  // Bounded, because 0 times infinity is no number.
  const float inverse = std::min(1.0f / (options.temperature == 0.0f ? 1.0f : options.temperature), 3e38f);
  float* weights = buffers.weights.data();
  double* sums = buffers.sums.data();
  const float top = largest(logits, 0, vocabulary, logits[0]);
  double total = exponential_weights(logits, vocabulary, top, inverse, weights, sums);
  if (!(total > 0.0 && total <= 1e300) || !(std::fabs(top) <= kLargest)) return false;
  const double log_total = std::log(total);
  const float* z = logits;
  if (seen != nullptr || n_banned > 0) {
    float* shaped = buffers.shaped.data();
    std::copy_n(logits, vocabulary, shaped);
    for (int64_t i = 0; seen != nullptr && i < vocabulary; ++i)
      if (seen[i]) shaped[i] = shaped[i] < 0 ? shaped[i] * options.repetition_penalty
                                             : shaped[i] / options.repetition_penalty;
    for (int64_t i = 0; i < n_banned; ++i) shaped[banned[i]] = -INFINITY;
    z = shaped;
  }
  const float shaped_top = z == logits ? top : largest(z, 0, vocabulary, z[0]);
  if (!(std::fabs(shaped_top) <= kLargest)) return false;
  if (options.temperature == 0.0f) {
    drawn.token = std::max_element(z, z + vocabulary) - z;
  } else {
    if (z != logits) total = exponential_weights(z, vocabulary, shaped_top, inverse, weights, sums);
    if (options.top_k > 0 && options.top_k < vocabulary) {
      buffers.left.assign(z, z + vocabulary);
      const auto kth = buffers.left.begin() + (options.top_k - 1);
      std::nth_element(buffers.left.begin(), kth, buffers.left.end(), std::greater<float>());
      const float least = *kth;
      for (int64_t i = 0; i < vocabulary; ++i) weights[i] = z[i] < least ? 0.0f : weights[i];
      total = add_blocks(weights, vocabulary, sums);
    }
    if (options.top_p < 1.0) {
      const float least = nucleus_threshold(weights, vocabulary, options.top_p * total, buffers.left);
      for (int64_t i = 0; i < vocabulary; ++i) weights[i] = weights[i] < least ? 0.0f : weights[i];
      total = add_blocks(weights, vocabulary, sums);
    }
    drawn.token = invert_cdf(weights, sums, vocabulary, total, uniform);
  }
  drawn.logprob = static_cast<double>((logits[drawn.token] - top) * inverse) - log_total;
  return true;
}

}  // namespace grrm
