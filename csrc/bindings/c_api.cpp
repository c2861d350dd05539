// The kernels behind a C interface: pointers to contiguous float32 and int64 arrays, as `ctypes` passes them.
//
// Work is divided among OpenMP threads by rows or heads; no sum is shared by two threads except where `partial` holds
// one for each, so results do not depend on the timing of threads.

#include <cstdint>
#include <vector>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "../kernels/attention.h"
#include "../kernels/rms_norm.h"
#include "../kernels/rotary.h"
#include "../kernels/swiglu.h"
#include "../kernels/token_scores.h"

namespace {

int64_t n_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

// Calls run(part, begin, end) for one range per thread.
template <typename Run>
void over_ranges(int64_t n, Run run) {
  const int64_t parts = n_threads();
#pragma omp parallel for schedule(static, 1) if (parts > 1)
  for (int64_t part = 0; part < parts; ++part) run(part, n * part / parts, n * (part + 1) / parts);
}

}  // namespace

extern "C" {

int32_t grrm_abi() { return 1; }

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

void grrm_score_tokens_backward(const float* logits, const int64_t* labels, const float* lse, const float* g,
                                float* dlogits, int64_t rows, int64_t vocab) {
  over_ranges(rows, [&](int64_t, int64_t begin, int64_t end) {
    grrm::score_token_backward_rows(logits, labels, lse, g, dlogits, begin, end, vocab);
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

}  // extern "C"
