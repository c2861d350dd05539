// Token scores straight from hidden states. The caller gives room for the logits of the rows at hand, [rows, V], and so
// says how many are there at the same time.
#pragma once

#include "gemm.h"
#include "threads.h"
#include "token_scores.h"

namespace grrm {

// The output layer: weights [V, H] where `by_word`, as embeddings are, else [H, V]. What multiplies hidden states and
// gradients of logits may be laid out for the BLAS already, or null.
struct OutputLayer {
  Blas blas;
  const float* weights;
  int64_t hidden, vocab;
  bool by_word;
  float *packed_from_hidden, *packed_from_logits;

  Matrix from_hidden() const { return {weights, by_word ? hidden : vocab, by_word}; }
  Matrix from_logits() const { return {weights, by_word ? hidden : vocab, !by_word}; }

  void logits_of(const float* rows, int64_t n, float* logits) const {
    multiply(rows, n, vocab, hidden, from_hidden(), packed_from_hidden, logits);
  }
  void hidden_of(const float* dlogits, int64_t n, float* dhidden) const {
    multiply(dlogits, n, hidden, vocab, from_logits(), packed_from_logits, dhidden);
  }

 private:
  void multiply(const float* a, int64_t m, int64_t n, int64_t k, Matrix b, const float* packed, float* c) const {
    if (packed != nullptr)
      multiply_packed(blas, m, n, k, a, k, packed, 0.0f, c, n);
    else
      grrm::multiply(blas.sgemm, m, n, k, {a, k, false}, b, 0.0f, c);
  }
};

// What comes back for every score.
struct ScoreGradients {
  const float *logprob, *entropy, *lse;
};

// Logits of the rows, and their scores unless `logprobs` is null.
inline void score_hidden(const OutputLayer& layer, const float* hidden, const int64_t* labels, int64_t rows,
                         float* logits, float* logprobs, float* entropy, float* lse) {
  layer.logits_of(hidden, rows, logits);
  if (logprobs == nullptr) return;
  over_ranges(rows, [&](int64_t, int64_t begin, int64_t end) {
    score_token_rows(logits, labels, logprobs, entropy, lse, begin, end, layer.vocab);
  });
}

// Turns logits into their gradient, in place, and passes it on: `dhidden` is written, `dweights`, laid out as the
// weights, written or added to. Either may be null where nobody wants it.
inline void pull_scores(const OutputLayer& layer, float* logits, const float* hidden, const int64_t* labels,
                        const float* entropy, const float* lse, ScoreGradients g, int64_t rows, float* dhidden,
                        float* dweights, bool adds) {
  const int64_t width = layer.hidden, vocab = layer.vocab;
  over_ranges(rows, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      float* z = logits + i * vocab;
      score_token_backward_row(z, labels[i], entropy[i], lse[i], g.logprob[i], g.entropy[i], g.lse[i], z, vocab);
    }
  });
  const Matrix dlogits{logits, vocab, false}, by_column{logits, vocab, true};
  const float beta = adds ? 1.0f : 0.0f;
  if (dhidden != nullptr) layer.hidden_of(logits, rows, dhidden);
  if (dweights == nullptr) return;
  if (layer.by_word)
    multiply(layer.blas.sgemm, vocab, width, rows, by_column, {hidden, width, false}, beta, dweights);
  else
    multiply(layer.blas.sgemm, width, vocab, rows, {hidden, width, true}, dlogits, beta, dweights);
}

}  // namespace grrm
