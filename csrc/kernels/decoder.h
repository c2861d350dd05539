// One forward pass of a Llama-family decoder (Qwen2, Qwen3, Llama) over a cache: tokens of any slots at any positions, so
// that prefill, decoding and a mix of both are the same call. Matrix products are left to a BLAS, which the caller brings.
#pragma once

#include <algorithm>
#include <utility>
#include <vector>

#include "aligned.h"
#include "cached_attention.h"
#include "gemm.h"
#include "rms_norm.h"
#include "rotary.h"
#include "swiglu.h"
#include "threads.h"

namespace grrm {

// y = x W + b with W [in, out]; no bias where it is null. `packed` is W as the BLAS likes it, or null.
struct Projection {
  const float* weight;
  const float* bias;
  float* packed;
};

struct DecoderLayer {
  const float* attention_norm;
  Projection q, k, v, o;
  const float* q_norm;  // [D], of every head before it is rotated, or null
  const float* k_norm;
  const float* mlp_norm;
  Projection gate, up, down;
};

struct Decoder {
  int64_t hidden, heads, key_heads, width, inner, vocabulary;
  float epsilon;
  const float* embedding;  // [V, H]
  const float* cos;        // [positions, D], halves equal
  const float* sin;        // [positions, D], the first half negated
  const float* final_norm;
  const float* head;  // [V, H] where head_is_transposed, else [H, V]
  bool head_is_transposed;
  float* packed_head;  // or null
  std::vector<DecoderLayer> layers;
  Blas blas;
};

constexpr int64_t kLine = 16;  // numbers of a cache line, on which every block begins

// Calls visit(matrix, its rows, its columns, where it is laid out) for every matrix, always in one order.
template <typename Visit>
void over_matrices(Decoder& d, Visit visit) {
  const auto projection = [&](Projection& p, int64_t in, int64_t out) {
    visit(Matrix{p.weight, out, false}, in, out, p.packed);
  };
  const int64_t queries = d.heads * d.width, keys = d.key_heads * d.width;
  for (DecoderLayer& layer : d.layers) {
    projection(layer.q, d.hidden, queries);
    projection(layer.k, d.hidden, keys);
    projection(layer.v, d.hidden, keys);
    projection(layer.o, queries, d.hidden);
    projection(layer.gate, d.hidden, d.inner);
    projection(layer.up, d.hidden, d.inner);
    projection(layer.down, d.inner, d.hidden);
  }
  const int64_t columns = d.head_is_transposed ? d.hidden : d.vocabulary;
  visit(Matrix{d.head, columns, d.head_is_transposed}, d.hidden, d.vocabulary, d.packed_head);
}

// Says where the matrices lie from `begin` on, if it is not null, and returns how many numbers they take.
inline int64_t place_packed(Decoder& d, float* begin) {
  int64_t n = 0;
  over_matrices(d, [&](Matrix, int64_t rows, int64_t columns, float*& packed) {
    packed = begin == nullptr ? nullptr : begin + n;
    n += (packed_numbers(d.blas, rows, columns) + kLine - 1) / kLine * kLine;
  });
  return n;
}

// Lays the matrices out where `place_packed` has said.
inline void pack(Decoder& d) {
  over_matrices(d, [&](Matrix matrix, int64_t rows, int64_t columns, float* packed) {
    pack_matrix(d.blas, rows, columns, matrix, packed);
  });
}

// BLAS computes a row with the same bits whatever the other rows are only where their number is a multiple of this.
// Products with matrices that were laid out do so for any number but one, which MKL hands to a routine for vectors; that
// holds with AVX-512, and elsewhere the last bits may differ.
constexpr int64_t kRows = 16, kPackedRows = 2;

GRRM_INLINE int64_t whole_rows(int64_t n, int64_t multiple = kRows) { return (n + multiple - 1) / multiple * multiple; }

// The tokens of one pass, and what the pass writes on the way; buffers have whole_rows(n) rows.
class DecoderPass {
 public:
  DecoderPass(const Decoder& decoder, const CacheShape& cache, const int64_t* tokens, Places places)
      : d_(decoder), cache_(cache), places_(std::move(places)), n_(static_cast<int64_t>(places_.slots.size())) {
    const int64_t n = n_;
    const int64_t rows = whole_rows(n);
    hidden_.assign(rows * d_.hidden, 0.0f);
    for (int64_t i = 0; i < n; ++i)
      std::copy_n(d_.embedding + tokens[i] * d_.hidden, d_.hidden, hidden_.data() + i * d_.hidden);
    normed_.assign(rows * d_.hidden, 0.0f);
    inverse_.resize(rows * d_.heads);
    q_.assign(rows * d_.heads * d_.width, 0.0f);
    k_.resize(rows * d_.key_heads * d_.width);
    v_.resize(rows * d_.key_heads * d_.width);
    attended_.assign(rows * d_.heads * d_.width, 0.0f);
    gate_.resize(rows * d_.inner);
    up_.resize(rows * d_.inner);
  }

  // Logits [whole_rows(n_wanted), V] of the tokens `wanted`; the last layer computes nothing for others but their keys
  // and values.
  void run(const int32_t* table, float* keys, float* values, const int64_t* wanted, int64_t n_wanted, float* logits) {
    const bool all = n_wanted == n_;  // in what order matters in the end only: neighbours share what they read
    for (size_t index = 0; index < d_.layers.size(); ++index) {
      const DecoderLayer& layer = d_.layers[index];
      const CacheLayer cache{cache_, table, keys + index * cache_.keys_per_layer(),
                             values + index * cache_.values_per_layer()};
      project_attention(layer, cache);
      if (index + 1 == d_.layers.size() && !all) keep(wanted, n_wanted);
      if (n_ == 0) return;  // part of a prompt whose end is in a later pass
      attend(layer, cache);
      feed_forward(layer);
    }
    if (all) keep(wanted, n_wanted);
    norm(d_.final_norm);
    const bool by_word = d_.head_is_transposed;
    multiply(normed_.data(), d_.hidden, {d_.head, by_word ? d_.hidden : d_.vocabulary, by_word}, d_.packed_head,
             d_.hidden, d_.vocabulary, 0.0f, logits, d_.vocabulary);
  }

 private:
  void norm(const float* weight) {
    over_ranges(n_, [&](int64_t, int64_t begin, int64_t end) {
      rms_norm_rows(hidden_.data(), weight, normed_.data(), inverse_.data(), begin, end, d_.hidden, d_.epsilon);
    });
  }

  void norm_heads(const float* weight, int64_t heads, int64_t begin, int64_t end, Floats& x) {
    if (weight == nullptr) return;
    rms_norm_rows(x.data(), weight, x.data(), inverse_.data(), begin * heads, end * heads, d_.width, d_.epsilon);
  }

  // c [rows of the pass, n] = a b [k, n] + beta c; `packed` is b laid out, or null.
  void multiply(const float* a, int64_t a_columns, Matrix b, const float* packed, int64_t k, int64_t n, float beta,
                float* c, int64_t c_columns) const {
    if (packed != nullptr)
      multiply_packed(d_.blas, whole_rows(n_, kPackedRows), n, k, a, a_columns, packed, beta, c, c_columns);
    else
      grrm::multiply(d_.blas.sgemm, whole_rows(n_), n, k, {a, a_columns, false}, b, beta, c, c_columns);
  }

  // y = x W + beta y
  void add_product(const Floats& x, int64_t in, const Projection& p, int64_t out, float beta, Floats& y) const {
    multiply(x.data(), in, {p.weight, out, false}, p.packed, in, out, beta, y.data(), out);
  }

  // y = x W + b
  void project(const Floats& x, int64_t in, const Projection& p, int64_t out, Floats& y) const {
    if (p.bias == nullptr) return add_product(x, in, p, out, 0.0f, y);
    over_ranges(whole_rows(n_), [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) std::copy_n(p.bias, out, y.data() + row * out);
    });
    add_product(x, in, p, out, 1.0f, y);
  }

  // hidden += x W + b
  void add_projected(const Floats& x, int64_t in, const Projection& p) {
    if (p.bias != nullptr)
      for (int64_t row = 0; row < n_; ++row)
        for (int64_t i = 0; i < d_.hidden; ++i) hidden_[row * d_.hidden + i] += p.bias[i];
    add_product(x, in, p, d_.hidden, 1.0f, hidden_);
  }

  void project_attention(const DecoderLayer& layer, const CacheLayer& cache) {
    norm(layer.attention_norm);
    project(normed_, d_.hidden, layer.q, d_.heads * d_.width, q_);
    project(normed_, d_.hidden, layer.k, d_.key_heads * d_.width, k_);
    project(normed_, d_.hidden, layer.v, d_.key_heads * d_.width, v_);
    over_ranges(n_, [&](int64_t, int64_t begin, int64_t end) {
      norm_heads(layer.q_norm, d_.heads, begin, end, q_);
      norm_heads(layer.k_norm, d_.key_heads, begin, end, k_);
      // The sign of the table's first half is the direction.
      rotate_rows(q_.data(), d_.cos, d_.sin, places_.positions.data(), q_.data(), begin, end, d_.heads, d_.width, -1.0f);
      rotate_rows(k_.data(), d_.cos, d_.sin, places_.positions.data(), k_.data(), begin, end, d_.key_heads, d_.width, -1.0f);
      for (int64_t i = begin; i < end; ++i)
        cache_token(cache, k_.data() + i * d_.key_heads * d_.width, v_.data() + i * d_.key_heads * d_.width,
                    places_.slots[i], places_.positions[i]);
    });
  }

  void attend(const DecoderLayer& layer, const CacheLayer& cache) {
    over_ranges(n_, [&](int64_t, int64_t begin, int64_t end) {
      cached_attention_tokens(cache, q_.data(), places_, d_.heads, begin, end, attended_.data());
    });
    add_projected(attended_, d_.heads * d_.width, layer.o);
  }

  void feed_forward(const DecoderLayer& layer) {
    norm(layer.mlp_norm);
    project(normed_, d_.hidden, layer.gate, d_.inner, gate_);
    project(normed_, d_.hidden, layer.up, d_.inner, up_);
    over_ranges(whole_rows(n_) * d_.inner, [&](int64_t, int64_t begin, int64_t end) {
      swiglu_range(gate_.data(), up_.data(), gate_.data(), begin, end);
    });
    add_projected(gate_, d_.inner, layer.down);
  }

  // Goes on with the tokens `wanted`, in that order, alone.
  void keep(const int64_t* wanted, int64_t n_wanted) {
    bool is_all = n_wanted == n_;
    for (int64_t i = 0; is_all && i < n_; ++i) is_all = wanted[i] == i;
    if (is_all) return;
    const Floats hidden = hidden_, q = q_;
    const int64_t queries = d_.heads * d_.width, rows = whole_rows(n_wanted);
    hidden_.assign(rows * d_.hidden, 0.0f);
    q_.assign(rows * queries, 0.0f);
    normed_.assign(rows * d_.hidden, 0.0f);
    attended_.assign(rows * queries, 0.0f);
    gate_.resize(rows * d_.inner);
    up_.resize(rows * d_.inner);
    places_.keep(wanted, n_wanted);
    for (int64_t i = 0; i < n_wanted; ++i) {
      std::copy_n(hidden.data() + wanted[i] * d_.hidden, d_.hidden, hidden_.data() + i * d_.hidden);
      std::copy_n(q.data() + wanted[i] * queries, queries, q_.data() + i * queries);
    }
    n_ = n_wanted;
    inverse_.resize(rows);
  }

  const Decoder& d_;
  const CacheShape& cache_;
  Places places_;
  int64_t n_;
  Floats hidden_, normed_, inverse_, q_, k_, v_, attended_, gate_, up_;
};

}  // namespace grrm
