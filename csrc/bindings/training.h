// The part of c_api.cpp that Paddle's operators (operators.cpp) call; what the arguments mean is told there and where the
// kernels are. All arrays are contiguous.
#pragma once

#include <cstdint>

extern "C" {

// x, y [rows, width]; w [width]; inverse [rows] is 1 / root mean square.
void grrm_rms_norm(const float* x, const float* w, float* y, float* inverse, int64_t rows, int64_t width,
                   float epsilon);
void grrm_rms_norm_backward(const float* x, const float* w, const float* inverse, const float* g, float* dx, float* dw,
                            int64_t rows, int64_t width);

// n numbers each.
void grrm_swiglu(const float* gate, const float* up, float* y, int64_t n);
void grrm_swiglu_backward(const float* gate, const float* up, const float* g, float* dgate, float* dup, int64_t n);

// x, y [rows, heads, width]; cos, sin [positions, width]; direction 1, or -1 to turn back.
void grrm_rotate(const float* x, const float* cos, const float* sin, const int64_t* positions, float* y, int64_t rows,
                 int64_t heads, int64_t width, float direction);

// logits [rows, vocab]; all else [rows].
void grrm_score_tokens(const float* logits, const int64_t* labels, float* logprobs, float* entropy, float* lse,
                       int64_t rows, int64_t vocab);
void grrm_score_tokens_backward(const float* logits, const int64_t* labels, const float* entropy, const float* lse,
                                const float* g_logprob, const float* g_entropy, const float* g_lse, float* dlogits,
                                int64_t rows, int64_t vocab);

// q, out [batch, length, heads, width]; k, v [batch, length, key_heads, width]; ranges [batch, length];
// lse [batch, heads, length].
void grrm_attention(const float* q, const float* k, const float* v, const int32_t* prompt_begin,
                    const int32_t* prompt_end, const int32_t* own_begin, float* out, float* lse, int64_t batch,
                    int64_t length, int64_t heads, int64_t key_heads, int64_t width);
void grrm_attention_backward(const float* q, const float* k, const float* v, const int32_t* prompt_begin,
                             const int32_t* prompt_end, const int32_t* own_begin, const float* out, const float* lse,
                             const float* grad, float* dq, float* dk, float* dv, int64_t batch, int64_t length,
                             int64_t heads, int64_t key_heads, int64_t width);

}  // extern "C"
