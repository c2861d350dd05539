// The C functions of c_api.cu, which tells what they do; without CUDA's own headers, for those who call them.
#pragma once

#include <cstdint>

extern "C" {

int grrm_cuda_rms_norm(int bf16, const void* x, const void* w, void* y, float* inverse, int64_t rows, int64_t width,
                       float epsilon, void* stream);
int grrm_cuda_rms_norm_backward(int bf16, const void* x, const void* w, const float* inverse, const void* g, void* dx,
                                void* dw, float* parts, int64_t n_parts, int64_t rows, int64_t width, void* stream);
int grrm_cuda_swiglu(int bf16, const void* gate, const void* up, void* y, int64_t n, void* stream);
int grrm_cuda_swiglu_backward(int bf16, const void* gate, const void* up, const void* g, void* dgate, void* dup,
                              int64_t n, void* stream);
int grrm_cuda_rotate(int bf16, const void* x, const float* cos, const float* sin, const int64_t* positions, void* y,
                     int64_t rows, int64_t heads, int64_t width, float direction, void* stream);
int grrm_cuda_score_tokens(int bf16, const void* logits, const int64_t* labels, float* logprobs, float* entropy,
                           float* lse, int64_t rows, int64_t vocab, void* stream);
int grrm_cuda_score_tokens_backward(int bf16, const void* logits, const int64_t* labels, const float* entropy,
                                    const float* lse, const float* g_logprob, const float* g_entropy,
                                    const float* g_lse, void* dlogits, int64_t rows, int64_t vocab, void* stream);

}  // extern "C"
