// Token scores straight from hidden states. The caller gives room for the logits of the rows at hand, [rows, V], and so
// says how many are there at the same time.
#pragma once

#include "gemm.h"
#include "threads.h"
#include "token_scores.h"

namespace grrm {

// The output layer: weights [V, H] where `by_word`, as embeddings are, else [H, V].
struct OutputLayer {
  Sgemm sgemm;
  const float* weights;
  int64_t hidden, vocab;
  bool by_word;

  Matrix from_hidden() const { return {weights, by_word ? hidden : vocab, by_word}; }
  Matrix from_logits() const { return {weights, by_word ? hidden : vocab, !by_word}; }
};

// What comes back for every score.
struct ScoreGradients {
  const float *logprob, *entropy, *lse;
};

// Logits of the rows, and their scores unless `logprobs` is null.
inline void score_hidden(const OutputLayer& layer, const float* hidden, const int64_t* labels, int64_t rows,
                         float* logits, float* logprobs, float* entropy, float* lse) {
  multiply(layer.sgemm, rows, layer.vocab, layer.hidden, {hidden, layer.hidden, false}, layer.from_hidden(), 0.0f,
           logits);
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
  if (dhidden != nullptr) multiply(layer.sgemm, rows, width, vocab, dlogits, layer.from_logits(), 0.0f, dhidden);
  if (dweights == nullptr) return;
  if (layer.by_word)
    multiply(layer.sgemm, vocab, width, rows, by_column, {hidden, width, false}, beta, dweights);
  else
    multiply(layer.sgemm, width, vocab, rows, {hidden, width, true}, dlogits, beta, dweights);
}

}  // namespace grrm
