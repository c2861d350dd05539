// Runs every kernel on arrays of exactly the size they need, for shapes that are and are not whole vectors, so that
// the sanitizers this is compiled with see any step outside.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <initializer_list>
#include <vector>

#include "../../csrc/bindings/c_api.cpp"

namespace {

using Floats = std::vector<float>;

Floats numbers(int64_t n) {
  Floats made(n);
  uint32_t state = 12345;
  for (auto& x : made) {
    state = state * 1664525u + 1013904223u;
    x = static_cast<float>(state >> 8) / (1 << 23) - 1.0f;
  }
  return made;
}

void rows(int64_t n, int64_t width) {
  const Floats x = numbers(n * width), w = numbers(width);
  Floats y(n * width), inverse(n), dx(n * width), dw(width);
  grrm_rms_norm(x.data(), w.data(), y.data(), inverse.data(), n, width, 1e-6f);
  grrm_rms_norm_backward(x.data(), w.data(), inverse.data(), y.data(), dx.data(), dw.data(), n, width);
  grrm_swiglu(x.data(), y.data(), dx.data(), n * width);
  Floats gate(n * width), up(n * width);
  grrm_swiglu_backward(x.data(), y.data(), dx.data(), gate.data(), up.data(), n * width);
  std::vector<int64_t> labels(n, width - 1);
  Floats logprobs(n), entropy(n), lse(n);
  grrm_score_tokens(x.data(), labels.data(), logprobs.data(), entropy.data(), lse.data(), n, width);
  grrm_score_tokens_backward(x.data(), labels.data(), entropy.data(), lse.data(), logprobs.data(), entropy.data(),
                             lse.data(), dx.data(), n, width);
}

// Row-major product, as slow as it is plain.
void plain_sgemm(int, int transpose_a, int transpose_b, int m, int n, int k, float alpha, const float* a, int lda,
                 const float* b, int ldb, float beta, float* c, int ldc) {
  for (int i = 0; i < m; ++i) {
    for (int j = 0; j < n; ++j) {
      float sum = 0.0f;
      for (int l = 0; l < k; ++l)
        sum += (transpose_a == 112 ? a[l * lda + i] : a[i * lda + l]) *
               (transpose_b == 112 ? b[j * ldb + l] : b[l * ldb + j]);
      c[i * ldc + j] = alpha * sum + (beta == 0.0f ? 0.0f : beta * c[i * ldc + j]);
    }
  }
}

// A BLAS that copies a matrix to lay it out, with room to spare as others have.
size_t plain_pack_bytes(int, int, int n, int k) { return (static_cast<size_t>(n) * k + 3) * sizeof(float) + 1; }

void plain_pack(int, int, int transpose, int, int n, int k, float alpha, const float* b, int ldb, float* packed) {
  for (int i = 0; i < k; ++i)
    for (int j = 0; j < n; ++j) packed[i * n + j] = alpha * (transpose == 112 ? b[j * ldb + i] : b[i * ldb + j]);
}

void plain_packed(int layout, int transpose_a, int, int m, int n, int k, const float* a, int lda, const float* b, int,
                  float beta, float* c, int ldc) {
  plain_sgemm(layout, transpose_a, 111, m, n, k, 1.0f, a, lda, b, n, beta, c, ldc);
}

void scores_of_hidden(int64_t n, int64_t width, int64_t vocab, int64_t by_word) {
  const Floats hidden = numbers(n * width), weights = numbers(width * vocab);
  const std::vector<int64_t> labels(n, vocab - 1);
  Floats logits(n * vocab), logprobs(n), entropy(n), lse(n), dhidden(n * width), dweights(width * vocab);
  const void* blas[] = {reinterpret_cast<const void*>(&plain_sgemm), reinterpret_cast<const void*>(&plain_pack_bytes),
                        reinterpret_cast<const void*>(&plain_pack), reinterpret_cast<const void*>(&plain_packed)};
  const auto lay_out = [&](int64_t from_logits) {
    Floats room(grrm_pack_output_layer(blas, weights.data(), width, vocab, by_word, from_logits, nullptr));
    grrm_pack_output_layer(blas, weights.data(), width, vocab, by_word, from_logits, room.data());
    return room;
  };
  Floats for_hidden = lay_out(0), for_logits = lay_out(1);
  for (const int pass : {0, 1, 2}) {  // written, added to, not wanted
    const bool wanted = pass < 2;
    const bool laid_out = pass == 1;
    grrm_linear_scores(blas, laid_out ? for_hidden.data() : nullptr, hidden.data(), weights.data(), labels.data(), logits.data(),
                       wanted ? logprobs.data() : nullptr, entropy.data(), lse.data(), n, width, vocab, by_word);
    grrm_linear_scores_backward(blas, laid_out ? for_logits.data() : nullptr, logits.data(), hidden.data(), weights.data(), labels.data(), entropy.data(),
                                lse.data(), logprobs.data(), entropy.data(), lse.data(),
                                wanted ? dhidden.data() : nullptr, wanted ? dweights.data() : nullptr, n, width, vocab,
                                by_word, pass == 1);
  }
}

// How far the product with b in eight bits is from `wanted`.
float off_in_eight_bits(const grrm::Blas& blas, const Floats& a, const Floats& b, const Floats& wanted, int m, int n,
                        int k, int how_b) {
  const int ldb = how_b == 112 ? k : n;
  Floats packed(blas.pack_bytes(162, 16, n, k) / sizeof(float)), c(wanted.size(), 1.0f);
  blas.pack(101, 162, how_b, 16, n, k, 1.0f, b.data(), ldb, packed.data());
  blas.packed(101, 111, 151, m, n, k, a.data(), k, packed.data(), n, 1.0f, c.data(), n);
  float off = 0.0f;
  for (size_t i = 0; i < wanted.size(); ++i) off = std::max(off, std::fabs(c[i] - wanted[i]));
  return off;
}

// Sums of whole numbers are the same from the loop for any processor and, where there is one, from that for this.
void whole_sums(int64_t rows, int64_t n_quads) {
  std::vector<uint32_t> a(rows * n_quads * 2);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<uint32_t>(i) * 2654435761u;
  std::vector<int8_t> b(n_quads * grrm::kPanel * grrm::kQuad);
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<int8_t>(static_cast<int>(i * 37 % 255) - 127);
  const std::vector<int32_t> start(grrm::kPanel, -128 * 127);
  std::vector<int32_t> sums[4];
  for (auto& of : sums) of.resize(rows * grrm::kPanel);
  const auto run = [&](grrm::RunQuads runner, int first) {
    runner({a.data(), n_quads * 2, b.data(), n_quads, start.data(), sums[first].data(), sums[first + 1].data()}, rows);
  };
  run(grrm::run_quads_plain, 0);
  run(grrm::quads_runner(), 2);
  if (sums[0] != sums[2] || sums[1] != sums[3])
    std::printf("two sums of %d rows and %d quads\n", static_cast<int>(rows), static_cast<int>(n_quads));
}

// Products of bfloat16 factors against those of float32, for factors that rounding does not change.
void rounded_products(int64_t m, int64_t n, int64_t k, bool a_transposed, bool b_transposed) {
  Floats a(m * k), b(k * n);
  for (size_t i = 0; i < a.size(); ++i) a[i] = static_cast<float>(static_cast<int>(i % 13) - 6) / 8;
  for (size_t i = 0; i < b.size(); ++i) b[i] = static_cast<float>(static_cast<int>(i % 11) - 5) / 4;
  const void* blas[4];
  grrm_bf16_blas(0, blas);
  Floats c(m * n, 1.0f), wanted(m * n, 1.0f);
  grrm_multiply(blas, a.data(), b.data(), c.data(), m, n, k, a_transposed, b_transposed, 1.0f);
  const int lda = static_cast<int>(a_transposed ? m : k), ldb = static_cast<int>(b_transposed ? k : n);
  const int how_a = a_transposed ? 112 : 111, how_b = b_transposed ? 112 : 111, rows = static_cast<int>(m);
  const int columns = static_cast<int>(n), depth = static_cast<int>(k);
  plain_sgemm(101, how_a, how_b, rows, columns, depth, 1.0f, a.data(), lda, b.data(), ldb, 1.0f, wanted.data(), columns);
  bool right = c == wanted;
  if (!a_transposed) {  // what is laid out meets an `a` as it lies
    Floats packed(grrm::bf16_pack_bytes(162, 16, columns, depth) / sizeof(float)), from_packed(m * n, 1.0f);
    grrm::bf16_pack(101, 162, how_b, 16, columns, depth, 1.0f, b.data(), ldb, packed.data());
    grrm::bf16_packed(101, how_a, 151, rows, columns, depth, a.data(), lda, packed.data(), columns, 1.0f,
                      from_packed.data(), columns);
    right = right && from_packed == wanted;
    // In steps of its column, which are at most 1.25 / 127, a column of b is off by half a step.
    const float bound = 0.75f * 0.5f * 1.25f / 127 * static_cast<float>(k) + 1e-3f;
    const grrm::Blas expanded{nullptr, grrm::expanded_pack_bytes, grrm::expanded_pack, grrm::expanded_packed};
    const grrm::Blas vnni{nullptr, grrm::vnni_pack_bytes, grrm::vnni_pack, grrm::vnni_packed};
    for (const grrm::Blas& of : {expanded, vnni})
      right = right && off_in_eight_bits(of, a, b, wanted, rows, columns, depth, how_b) <= bound;
  }
  if (!right)
    std::printf("wrong product of %d x %d x %d\n", rows, columns, depth);
}

void rotation(int64_t tokens, int64_t heads, int64_t width) {
  const Floats x = numbers(tokens * heads * width), table = numbers(3 * width);
  const std::vector<int64_t> positions(tokens, 2);
  Floats y(x.size());
  grrm_rotate(x.data(), table.data(), table.data(), positions.data(), y.data(), tokens, heads, width, 1.0f);
}

// Rows of a prompt, two segments that answer it, and padding at the end.
void attention(int64_t batch, int64_t length, int64_t heads, int64_t key_heads, int64_t width) {
  std::vector<int32_t> begin(batch * length, 0), end(batch * length, 0), own(batch * length, 0);
  const int64_t prompt = length / 3, second = length / 2, padding = length - length / 5;
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t i = 0; i < length; ++i) {
      const int64_t token = b * length + i;
      if (i >= padding) {
        own[token] = static_cast<int32_t>(i + 1);
      } else if (i >= prompt) {
        end[token] = static_cast<int32_t>(prompt);
        own[token] = static_cast<int32_t>(i < second ? prompt : second);
      }
    }
  }
  const int64_t queries = batch * length * heads * width, keys = batch * length * key_heads * width;
  const Floats q = numbers(queries), k = numbers(keys), v = numbers(keys), g = numbers(queries);
  Floats out(queries), lse(batch * heads * length), dq(queries), dk(keys), dv(keys);
  grrm_attention(q.data(), k.data(), v.data(), begin.data(), end.data(), own.data(), out.data(), lse.data(), batch,
                 length, heads, key_heads, width);
  grrm_attention_backward(q.data(), k.data(), v.data(), begin.data(), end.data(), own.data(), out.data(), lse.data(),
                          g.data(), dq.data(), dk.data(), dv.data(), batch, length, heads, key_heads, width);
}

// Two prompts into slots 2 and 0, the first copied to slot 1, then a step of all three; drawn with every filter.
void decoding(int64_t heads, int64_t key_heads, int64_t width, bool tied) {
  const int64_t vocabulary = 130, layers = 2, length = 45, hidden = 10, inner = 7;
  const int64_t sizes[] = {hidden, heads, key_heads, width, inner, vocabulary, tied, layers, 4, 1};  // blocks, of a slot's row
  const Floats table = numbers(vocabulary * hidden), rotary = numbers(length * width), norm = numbers(hidden);
  const Floats q = numbers(hidden * heads * width), k = numbers(hidden * key_heads * width);
  const Floats mlp = numbers(hidden * inner), head_norm = numbers(width);
  const Floats q_bias = numbers(heads * width), k_bias = numbers(key_heads * width);
  std::vector<const void*> at = {reinterpret_cast<const void*>(&plain_sgemm),
                                 reinterpret_cast<const void*>(&plain_pack_bytes),
                                 reinterpret_cast<const void*>(&plain_pack),
                                 reinterpret_cast<const void*>(&plain_packed),
                                 table.data(),
                                 rotary.data(),
                                 rotary.data(),
                                 norm.data(),
                                 table.data()};
  for (int64_t i = 0; i < layers; ++i) {
    const void* of_heads = i == 0 ? nullptr : head_norm.data();
    for (const void* one : std::initializer_list<const void*>{
             norm.data(), q.data(), q_bias.data(), k.data(), k_bias.data(), k.data(), nullptr, q.data(), nullptr,
             of_heads, of_heads, norm.data(), mlp.data(), nullptr, mlp.data(), nullptr, mlp.data(), norm.data()})
      at.push_back(one);
  }
  int64_t counts_of_cache[2];
  grrm_cache_sizes(sizes, counts_of_cache);
  Floats keys(counts_of_cache[0]), values(counts_of_cache[1]), logits(16 * vocabulary);
  const std::vector<int64_t> tokens = {1, 2, 3, 4, 5, 6, 129}, slots = {2, 2, 2, 2, 0, 0, 0},
                             positions = {0, 1, 2, 3, 0, 1, 2}, wanted = {3, 6};
  const std::vector<int32_t> blocks = {1, 3, 0};  // of the slots, one each
  Floats packed(grrm_pack(sizes, at.data(), nullptr));
  grrm_pack(sizes, at.data(), packed.data());
  uint64_t fingerprint = 0;
  grrm_fingerprint(sizes, at.data(), &fingerprint);
  grrm_decode(sizes, 1e-6f, at.data(), packed.data(), tokens.data(), slots.data(), positions.data(),
              nullptr, nullptr, 7, wanted.data(), 2, blocks.data(), keys.data(), values.data(), logits.data());
  const std::vector<int64_t> from = {0}, to = {3};
  grrm_copy_blocks(sizes, keys.data(), values.data(), from.data(), to.data(), 1);
  const std::vector<int64_t> all = {0, 1, 2}, next = {3, 4, length - 1};
  grrm_decode(sizes, 1e-6f, at.data(), nullptr, all.data(), all.data(), next.data(),
              nullptr, nullptr, 3, all.data(), 3, blocks.data(), keys.data(), values.data(), logits.data());
  const std::vector<int64_t> owners = {0, 2, 2}, shared = {0, 40, 40}, later = {3, 40, length - 1}, last = {2, 0, 1};
  grrm_decode(sizes, 1e-6f, at.data(), nullptr, all.data(), all.data(), later.data(), owners.data(),
              shared.data(), 3, last.data(), 3, blocks.data(), keys.data(), values.data(), logits.data());
  grrm_decode(sizes, 1e-6f, at.data(), nullptr, all.data(), all.data(), later.data(), nullptr, nullptr,
              3, nullptr, 0, blocks.data(), keys.data(), values.data(), logits.data());
  const std::vector<uint8_t> seen(3 * vocabulary, 1), too_short = {1, 0, 1};
  const std::vector<int64_t> stops = {0, vocabulary - 1};
  const std::vector<double> uniforms = {0.0, 0.5, 1.0 - 1e-16};
  std::vector<int64_t> drawn(3);
  std::vector<double> logprobs(3);
  for (float temperature : {0.0f, 0.7f})
    for (int64_t top_k : {0, 1, 5})
      for (double top_p : {1.0, 0.5, 1e-9})
        grrm_sample(logits.data(), 3, vocabulary, temperature, top_k, top_p, 1.3f, seen.data(), too_short.data(),
                    stops.data(), 2, uniforms.data(), drawn.data(), logprobs.data());
}

}  // namespace

int main() {
  for (int64_t width : {1, 2, 15, 16, 17, 48, 100}) rows(3, width);
  for (int64_t by_word : {0, 1}) scores_of_hidden(9, 10, 17, by_word);
  for (int64_t m : {1, 11, 12, 13, 121})
    for (int64_t n : {1, 31, 32, 33, 130})
      for (int64_t k : {0, 1, 2, 65, 770})
        for (int how : {0, 1, 2, 3}) rounded_products(m, n, k, how & 1, how & 2);
  rounded_products(2, 33, grrm::kMostSummed + 5, true, true);
  rounded_products(2, 33, grrm::kMostSummed + 5, false, true);
  for (int64_t rows : {1, 2, 3, 4, 5, 6})
    for (int64_t n_quads : {0, 1, 37}) whole_sums(rows, n_quads);
  for (int64_t width : {2, 8, 48}) rotation(3, 2, width);
  for (int64_t width : {2, 16, 24, 48, 64, 80})
    for (int64_t length : {1, 2, 5, 31, 32, 33, 70}) attention(2, length, 4, 2, width);
  for (int64_t width : {2, 16, 20})
    for (bool tied : {true, false}) {
      decoding(4, 4, width, tied);
      decoding(7, 1, width, tied);
      decoding(40, 1, width, tied);
    }
  std::puts("clean");
  return 0;
}
