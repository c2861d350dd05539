// Per row of logits [N, V]: log softmax at the label, and the entropy of the softmax.
#pragma once

#include <cmath>

#include "simd.h"

namespace grrm {

// A logit of -inf takes no part; the product of its weight 0 and its distance is 0, not NaN.
constexpr float kFarthest = -3e38f;

// `lse` keeps log(sum(exp(logits))) for the backward pass; entropy = lse - sum(p * logits), in nats.
GRRM_CLONES
static void score_token_rows(const float* logits, const int64_t* labels, float* logprobs, float* entropy, float* lse,
                             int64_t begin, int64_t end, int64_t vocab) {
  for (int64_t row = begin; row < end; ++row) {
    const float* z = logits + row * vocab;
    const float top = largest(z, 0, vocab, z[0]);
    float sum = 0.0f, weighted = 0.0f;
#pragma omp simd reduction(+ : sum, weighted)
    for (int64_t i = 0; i < vocab; ++i) {
      const float shifted = z[i] - top < kFarthest ? kFarthest : z[i] - top;
      const float e = exp_approx(shifted);
      sum += e;
      weighted += e * shifted;
    }
    const float log_sum = std::log(sum);
    lse[row] = log_sum + top;
    logprobs[row] = z[labels[row]] - top - log_sum;
    entropy[row] = log_sum - weighted / sum;
  }
}

// Gradients of log-probability, entropy and lse into one row: with p the softmax and H its entropy,
// dlogits = p (g_lse - g_logprob - g_entropy (logits - lse + H)) + g_logprob onehot(label). `dlogits` may be `z`.
GRRM_CLONES
static void score_token_backward_row(const float* z, int64_t label, float entropy, float lse, float g_logprob,
                                     float g_entropy, float g_lse, float* dlogits, int64_t vocab) {
  const float base = g_lse - g_logprob - g_entropy * entropy;
#pragma omp simd
  for (int64_t i = 0; i < vocab; ++i) {
    const float shifted = z[i] - lse < kFarthest ? kFarthest : z[i] - lse;
    dlogits[i] = exp_approx(shifted) * (base - g_entropy * shifted);
  }
  dlogits[label] += g_logprob;
}

}  // namespace grrm
