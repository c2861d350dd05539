// Runs every kernel on arrays of exactly the size they need, for shapes that are and are not whole vectors, so that
// the sanitizers this is compiled with see any step outside.

#include <cstdint>
#include <cstdio>
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
  grrm_score_tokens_backward(x.data(), labels.data(), lse.data(), logprobs.data(), dx.data(), n, width);
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

}  // namespace

int main() {
  for (int64_t width : {1, 2, 15, 16, 17, 48, 100}) rows(3, width);
  for (int64_t width : {2, 8, 48}) rotation(3, 2, width);
  for (int64_t width : {2, 16, 24, 48, 64, 80})
    for (int64_t length : {1, 2, 5, 31, 32, 33, 70}) attention(2, length, 4, 2, width);
  std::puts("clean");
  return 0;
}
