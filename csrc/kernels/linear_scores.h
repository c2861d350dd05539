// Token scores straight from hidden states: logits of a few rows at a time, [chunk, V], never all of them.
#pragma once

#include <algorithm>
#include <vector>

#include "gemm.h"
#include "threads.h"
#include "token_scores.h"

namespace grrm {

// The output layer: weights [V, H] where `by_word`, as embeddings are, else [H, V].
struct OutputLayer {
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

class LinearScores {
 public:
  LinearScores(Sgemm sgemm, OutputLayer layer, int64_t rows, int64_t chunk)
      : sgemm_(sgemm), layer_(layer), rows_(rows), chunk_(std::min(rows, chunk)), logits_(chunk_ * layer.vocab) {}

  void forward(const float* hidden, const int64_t* labels, float* logprobs, float* entropy, float* lse) {
    for (int64_t first = 0; first < rows_; first += chunk_) {
      const int64_t n = fill(hidden, first);
      over_ranges(n, [&](int64_t, int64_t begin, int64_t end) {
        score_token_rows(logits_.data(), labels + first, logprobs + first, entropy + first, lse + first, begin, end,
                         layer_.vocab);
      });
    }
  }

  // `dhidden` and `dweights` (laid out as the weights) may be null where nobody wants them.
  void backward(const float* hidden, const int64_t* labels, const float* entropy, const float* lse, ScoreGradients g,
                float* dhidden, float* dweights) {
    const int64_t width = layer_.hidden, vocab = layer_.vocab;
    for (int64_t first = 0; first < rows_; first += chunk_) {
      const int64_t n = fill(hidden, first);
      over_ranges(n, [&](int64_t, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t row = first + i;
          float* z = logits_.data() + i * vocab;
          score_token_backward_row(z, labels[row], entropy[row], lse[row], g.logprob[row], g.entropy[row], g.lse[row],
                                   z, vocab);
        }
      });
      const Matrix dlogits{logits_.data(), vocab, false};
      if (dhidden != nullptr)
        multiply(sgemm_, n, width, vocab, dlogits, layer_.from_logits(), 0.0f, dhidden + first * width);
      if (dweights != nullptr) add_to(dweights, dlogits, hidden + first * width, n, first == 0 ? 0.0f : 1.0f);
    }
  }

 private:
  // Logits of the rows from `first` on; answers how many there are.
  int64_t fill(const float* hidden, int64_t first) {
    const int64_t n = std::min(chunk_, rows_ - first), width = layer_.hidden;
    multiply(sgemm_, n, layer_.vocab, width, {hidden + first * width, width, false}, layer_.from_hidden(), 0.0f,
             logits_.data());
    return n;
  }

  void add_to(float* dweights, Matrix dlogits, const float* hidden, int64_t n, float beta) const {
    const Matrix by_column{dlogits.data, dlogits.columns, true};
    if (layer_.by_word)
      multiply(sgemm_, layer_.vocab, layer_.hidden, n, by_column, {hidden, layer_.hidden, false}, beta, dweights);
    else
      multiply(sgemm_, layer_.hidden, layer_.vocab, n, {hidden, layer_.hidden, true}, dlogits, beta, dweights);
  }

  Sgemm sgemm_;
  OutputLayer layer_;
  int64_t rows_, chunk_;
  std::vector<float> logits_;
};

}  // namespace grrm
