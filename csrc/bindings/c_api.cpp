// The kernels behind a C interface: pointers to contiguous arrays, as `ctypes` passes them.
//
// Work is divided among OpenMP threads by rows or heads; where threads add up the same numbers, each has a `partial`
// sum of its own, so results do not depend on their timing.

#include <cstdint>
#include <cstring>
#include <new>
#include <numeric>
#include <stdexcept>
#include <vector>

#include "../kernels/attention.h"
#include "../kernels/bf16_product.h"
#include "../kernels/decoder.h"
#include "../kernels/fingerprint.h"
#include "../kernels/int8_expanded.h"
#include "../kernels/linear_scores.h"
#include "../kernels/rms_norm.h"
#include "../kernels/rotary.h"
#include "../kernels/sampling.h"
#include "../kernels/swiglu.h"
#include "../kernels/threads.h"
#include "../kernels/token_scores.h"
#include "../kernels/vnni_product.h"
#include "training.h"

using grrm::n_threads;
using grrm::over_ranges;

namespace {

// What `grrm_decode` and its kin are told of sizes, in this order.
struct Sizes {
  int64_t hidden, heads, key_heads, width, inner, vocabulary, head_is_transposed, layers, blocks, row;

  grrm::CacheShape cache() const { return {blocks, key_heads, width, row}; }
};

grrm::Blas blas_at(const void* const* addresses) {
  grrm::Blas blas;
  static_assert(sizeof(blas) == 4 * sizeof(void*), "four addresses");
  std::memcpy(&blas, addresses, sizeof(blas));
  return blas;
}

grrm::OutputLayer output_layer_at(const void* const* blas, const float* weights, int64_t width, int64_t vocab,
                                  int64_t by_word, float* from_hidden, float* from_logits) {
  return {blas_at(blas), weights, width, vocab, by_word != 0, from_hidden, from_logits};
}

// The model behind a list of addresses: the four functions of grrm::Blas, embedding, cosines, sines, final norm, head,
// then 18 for each layer. `packed` is what `grrm_pack` has written, or null.
grrm::Decoder decoder_at(const Sizes& s, float epsilon, const void* const* addresses, float* packed) {
  grrm::Decoder decoder{};
  decoder.hidden = s.hidden;
  decoder.heads = s.heads;
  decoder.key_heads = s.key_heads;
  decoder.width = s.width;
  decoder.inner = s.inner;
  decoder.vocabulary = s.vocabulary;
  decoder.epsilon = epsilon;
  decoder.blas = blas_at(addresses);
  const auto* numbers = reinterpret_cast<const float* const*>(addresses) + 4;
  decoder.embedding = numbers[0];
  decoder.cos = numbers[1];
  decoder.sin = numbers[2];
  decoder.final_norm = numbers[3];
  decoder.head = numbers[4];
  decoder.head_is_transposed = s.head_is_transposed != 0;
  for (int64_t i = 0; i < s.layers; ++i) {
    const float* const* at = numbers + 5 + 18 * i;
    decoder.layers.push_back({at[0],
                              {at[1], at[2], nullptr},
                              {at[3], at[4], nullptr},
                              {at[5], at[6], nullptr},
                              {at[7], at[8], nullptr},
                              at[9],
                              at[10],
                              at[11],
                              {at[12], at[13], nullptr},
                              {at[14], at[15], nullptr},
                              {at[16], at[17], nullptr}});
  }
  if (packed != nullptr) grrm::place_packed(decoder, packed);
  return decoder;
}

// What the work answers, or kOutOfMemory: no exception may leave a C function.
constexpr int64_t kOutOfMemory = -1;

template <typename Work>
int64_t within_memory(Work work) {
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return kOutOfMemory;
  } catch (const std::length_error&) {
    return kOutOfMemory;
  }
}

}  // namespace

extern "C" {

int32_t grrm_abi() { return 13; }

// The addresses of a BLAS (grrm::Blas) whose factors are bfloat16, those that it lays out in eight bits where `int8` is
// not 0: half of the memory, in the order that the processor's products read. Returns 1 where the processor has dot
// products of them, 0 where the same sums take longer than float32's.
int64_t grrm_bf16_blas(int64_t int8, const void** addresses) {
  const grrm::Blas bf16{grrm::bf16_sgemm, grrm::bf16_pack_bytes, grrm::bf16_pack, grrm::bf16_packed};
  const grrm::Blas vnni{grrm::bf16_sgemm, grrm::vnni_pack_bytes, grrm::vnni_pack, grrm::vnni_packed};
  const grrm::Blas any{grrm::bf16_sgemm, grrm::expanded_pack_bytes, grrm::expanded_pack, grrm::expanded_packed};
  const grrm::Blas blas = int8 == 0 ? bf16 : grrm::has_vnni() ? vnni : any;
  static_assert(sizeof(blas) == 4 * sizeof(void*), "four addresses");
  std::memcpy(addresses, &blas, sizeof(blas));
  return (int8 != 0 ? grrm::has_vnni() : grrm::has_bf16()) ? 1 : 0;
}

void grrm_rms_norm(const float* x, const float* w, float* y, float* inverse, int64_t rows, int64_t width,
                   float epsilon) {
  over_ranges(rows, [&](int64_t, int64_t begin, int64_t end) {
    grrm::rms_norm_rows(x, w, y, inverse, begin, end, width, epsilon);
  });
}

void grrm_rms_norm_backward(const float* x, const float* w, const float* inverse, const float* g, float* dx, float* dw,
                            int64_t rows, int64_t width) {
  std::vector<float> partial(n_threads() * width, 0.0f);
  over_ranges(rows, [&](int64_t part, int64_t begin, int64_t end) {
    grrm::rms_norm_backward_rows(x, w, inverse, g, dx, partial.data() + part * width, begin, end, width);
  });
  for (int64_t i = 0; i < width; ++i) dw[i] = 0.0f;
  for (size_t i = 0; i < partial.size(); ++i) dw[i % width] += partial[i];
}

void grrm_swiglu(const float* gate, const float* up, float* y, int64_t n) {
  over_ranges(n, [&](int64_t, int64_t begin, int64_t end) { grrm::swiglu_range(gate, up, y, begin, end); });
}

void grrm_swiglu_backward(const float* gate, const float* up, const float* g, float* dgate, float* dup, int64_t n) {
  over_ranges(n, [&](int64_t, int64_t begin, int64_t end) {
    grrm::swiglu_backward_range(gate, up, g, dgate, dup, begin, end);
  });
}

void grrm_rotate(const float* x, const float* cos, const float* sin, const int64_t* positions, float* y, int64_t rows,
                 int64_t heads, int64_t width, float direction) {
  over_ranges(rows, [&](int64_t, int64_t begin, int64_t end) {
    grrm::rotate_rows(x, cos, sin, positions, y, begin, end, heads, width, direction);
  });
}

void grrm_score_tokens(const float* logits, const int64_t* labels, float* logprobs, float* entropy, float* lse,
                       int64_t rows, int64_t vocab) {
  over_ranges(rows, [&](int64_t, int64_t begin, int64_t end) {
    grrm::score_token_rows(logits, labels, logprobs, entropy, lse, begin, end, vocab);
  });
}

void grrm_score_tokens_backward(const float* logits, const int64_t* labels, const float* entropy, const float* lse,
                                const float* g_logprob, const float* g_entropy, const float* g_lse, float* dlogits,
                                int64_t rows, int64_t vocab) {
  over_ranges(rows, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      grrm::score_token_backward_row(logits + i * vocab, labels[i], entropy[i], lse[i], g_logprob[i], g_entropy[i],
                                     g_lse[i], dlogits + i * vocab, vocab);
  });
}

// Room for an output layer laid out for products with hidden states, or with gradients of logits, in numbers; 0 where
// the BLAS at `blas` (grrm::Blas) has no such order. Where `packed` is not null it is written there, on a cache line.
int64_t grrm_pack_output_layer(const void* const* blas, const float* weights, int64_t width, int64_t vocab,
                               int64_t by_word, int64_t from_logits, float* packed) {
  return within_memory([&] {
    const grrm::OutputLayer layer = output_layer_at(blas, weights, width, vocab, by_word, nullptr, nullptr);
    if (!layer.blas.packs()) return int64_t{0};
    const int64_t k = from_logits != 0 ? vocab : width, n = from_logits != 0 ? width : vocab;
    if (packed != nullptr)
      grrm::pack_matrix(layer.blas, k, n, from_logits != 0 ? layer.from_logits() : layer.from_hidden(), packed);
    return grrm::packed_numbers(layer.blas, k, n);
  });
}

// Logits [rows, vocab] go where the caller has room; `logprobs` may be null, then they are all there is. `packed` is
// what `grrm_pack_output_layer` has written, or null.
int64_t grrm_linear_scores(const void* const* blas, float* packed, const float* hidden, const float* weights,
                           const int64_t* labels, float* logits, float* logprobs, float* entropy, float* lse,
                           int64_t rows, int64_t width, int64_t vocab, int64_t by_word) {
  return within_memory([&] {
    const grrm::OutputLayer layer = output_layer_at(blas, weights, width, vocab, by_word, packed, nullptr);
    grrm::score_hidden(layer, hidden, labels, rows, logits, logprobs, entropy, lse);
    return int64_t{0};
  });
}

// Overwrites `logits`. `dhidden` and `dweights` may be null; `packed`, which is for the former, too.
int64_t grrm_linear_scores_backward(const void* const* blas, float* packed, float* logits, const float* hidden,
                                    const float* weights, const int64_t* labels, const float* entropy,
                                    const float* lse, const float* g_logprob, const float* g_entropy,
                                    const float* g_lse, float* dhidden, float* dweights, int64_t rows, int64_t width,
                                    int64_t vocab, int64_t by_word, int64_t adds) {
  return within_memory([&] {
    const grrm::OutputLayer layer = output_layer_at(blas, weights, width, vocab, by_word, nullptr, packed);
    grrm::pull_scores(layer, logits, hidden, labels, entropy, lse, {g_logprob, g_entropy, g_lse}, rows, dhidden,
                      dweights, adds != 0);
    return int64_t{0};
  });
}

// c = a b + beta c, as cblas_sgemm but for alpha, which is 1, and beta, which is 0 or 1.
int64_t grrm_multiply(const void* const* blas, const float* a, const float* b, float* c, int64_t m, int64_t n,
                      int64_t k, int64_t a_transposed, int64_t b_transposed, float beta) {
  return within_memory([&] {
    const grrm::Matrix left{a, a_transposed != 0 ? m : k, a_transposed != 0};
    const grrm::Matrix right{b, b_transposed != 0 ? k : n, b_transposed != 0};
    grrm::multiply(blas_at(blas).sgemm, m, n, k, left, right, beta, c);
    return int64_t{0};
  });
}

void grrm_attention(const float* q, const float* k, const float* v, const int32_t* prompt_begin,
                    const int32_t* prompt_end, const int32_t* own_begin, float* out, float* lse, int64_t batch,
                    int64_t length, int64_t heads, int64_t key_heads, int64_t width) {
  const grrm::AttentionShape shape{length, heads, key_heads, width};
  const grrm::Visible visible{prompt_begin, prompt_end, own_begin};
  over_ranges(batch * key_heads, [&](int64_t, int64_t begin, int64_t end) {
    grrm::HeadBuffers head(length, width, false);
    for (int64_t i = begin; i < end; ++i)
      grrm::attention_head(shape, visible, q, k, v, out, lse, i / key_heads, i % key_heads, head);
  });
}

void grrm_attention_backward(const float* q, const float* k, const float* v, const int32_t* prompt_begin,
                             const int32_t* prompt_end, const int32_t* own_begin, const float* out, const float* lse,
                             const float* grad, float* dq, float* dk, float* dv, int64_t batch, int64_t length,
                             int64_t heads, int64_t key_heads, int64_t width) {
  const grrm::AttentionShape shape{length, heads, key_heads, width};
  const grrm::Visible visible{prompt_begin, prompt_end, own_begin};
  over_ranges(batch * key_heads, [&](int64_t, int64_t begin, int64_t end) {
    grrm::HeadBuffers head(length, width, true);
    for (int64_t i = begin; i < end; ++i)
      grrm::attention_backward_head(shape, visible, q, k, v, out, lse, grad, dq, dk, dv, i / key_heads, i % key_heads,
                                    head);
  });
}

// Numbers that the keys and the values of one cache need.
int64_t grrm_cache_sizes(const int64_t* sizes, int64_t* counts) {
  const Sizes& s = *reinterpret_cast<const Sizes*>(sizes);
  counts[0] = s.layers * s.cache().keys_per_layer();
  counts[1] = s.layers * s.cache().values_per_layer();
  return 0;
}

// A number that changes with every matrix that `grrm_pack` lays out.
int64_t grrm_fingerprint(const int64_t* sizes, const void* const* addresses, uint64_t* found) {
  const Sizes& s = *reinterpret_cast<const Sizes*>(sizes);
  return within_memory([&] {
    const grrm::Decoder decoder = decoder_at(s, 0.0f, addresses, nullptr);
    const int64_t queries = s.hidden * s.heads * s.width, keys = s.hidden * s.key_heads * s.width;
    uint64_t all = grrm::fingerprint(decoder.head, s.hidden * s.vocabulary, 0);
    for (const grrm::DecoderLayer& layer : decoder.layers) {
      for (const grrm::Projection* one : {&layer.q, &layer.o}) all = grrm::fingerprint(one->weight, queries, all);
      for (const grrm::Projection* one : {&layer.k, &layer.v}) all = grrm::fingerprint(one->weight, keys, all);
      for (const grrm::Projection* one : {&layer.gate, &layer.up, &layer.down})
        all = grrm::fingerprint(one->weight, s.hidden * s.inner, all);
    }
    *found = all;
    return int64_t{0};
  });
}

// Room for the weights as the BLAS likes to read them, in numbers; 0 where it has no such order. Where `packed` is not
// null the weights are written there; it begins on a cache line.
int64_t grrm_pack(const int64_t* sizes, const void* const* addresses, float* packed) {
  const Sizes& s = *reinterpret_cast<const Sizes*>(sizes);
  return within_memory([&] {
    grrm::Decoder decoder = decoder_at(s, 0.0f, addresses, nullptr);
    if (!decoder.blas.packs()) return int64_t{0};
    const int64_t n = grrm::place_packed(decoder, packed);
    if (packed != nullptr) grrm::pack(decoder);
    return n;
  });
}

// Runs n tokens through the model and leaves the logits of the tokens `wanted`; `logits` has room for a multiple of 16
// rows; `packed` is what `grrm_pack` has written, or null. `owners` and `shared` say which slot holds the same first
// positions as a token's own (see grrm::Places); null where nobody shares any. `table` are the cache's blocks.
int64_t grrm_decode(const int64_t* sizes, float epsilon, const void* const* addresses, float* packed,
                    const int64_t* tokens, const int64_t* slots, const int64_t* positions, const int64_t* owners,
                    const int64_t* shared, int64_t n, const int64_t* wanted, int64_t n_wanted, const int32_t* table,
                    float* keys, float* values, float* logits) {
  const Sizes& s = *reinterpret_cast<const Sizes*>(sizes);
  return within_memory([&] {
    const grrm::Decoder decoder = decoder_at(s, epsilon, addresses, packed);
    const grrm::CacheShape cache = s.cache();
    grrm::DecoderPass pass(decoder, cache, tokens, {slots, positions, owners, shared, n});
    pass.run(table, keys, values, wanted, n_wanted, logits);
    return int64_t{0};
  });
}

// Copies block from[i] to block to[i], over all layers, one i after the other.
int64_t grrm_copy_blocks(const int64_t* sizes, float* keys, float* values, const int64_t* from, const int64_t* to,
                         int64_t n) {
  const Sizes& s = *reinterpret_cast<const Sizes*>(sizes);
  const grrm::CacheShape cache = s.cache();
  over_ranges(s.layers, [&](int64_t, int64_t begin, int64_t end) {
    for (int64_t layer = begin; layer < end; ++layer) {
      const grrm::CacheLayer part{cache, nullptr, keys + layer * cache.keys_per_layer(),
                                  values + layer * cache.values_per_layer()};
      for (int64_t i = 0; i < n; ++i) grrm::copy_block(part, from[i], to[i]);
    }
  });
  return 0;
}

// Draws one token per row. `seen` [rows, vocabulary] may be null; rows marked `too_short` may not draw `stops`. Returns
// how many rows hold no numbers to draw from.
int64_t grrm_sample(const float* logits, int64_t rows, int64_t vocabulary, float temperature, int64_t top_k,
                    double top_p, float repetition_penalty, const uint8_t* seen, const uint8_t* too_short,
                    const int64_t* stops, int64_t n_stops, const double* uniforms, int64_t* tokens, double* logprobs) {
  const grrm::SamplingOptions options{temperature, top_k, top_p, repetition_penalty};
  return within_memory([&] {
    std::vector<int64_t> bad(n_threads(), 0);
    std::vector<grrm::SamplingBuffers> buffers(n_threads(), grrm::SamplingBuffers(vocabulary));
    over_ranges(rows, [&](int64_t part, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        grrm::Drawn drawn{0, 0.0};
        const uint8_t* marks = seen == nullptr ? nullptr : seen + i * vocabulary;
        if (!grrm::sample_row(logits + i * vocabulary, vocabulary, options, marks, stops, too_short[i] ? n_stops : 0,
                              uniforms[i], buffers[part], drawn))
          ++bad[part];
        tokens[i] = drawn.token;
        logprobs[i] = drawn.logprob;
      }
    });
    return std::accumulate(bad.begin(), bad.end(), int64_t{0});
  });
}

}  // extern "C"
