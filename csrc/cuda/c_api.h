// The C functions of c_api.cu, which tells what they do; without CUDA's own headers, for those who call them.
#pragma once

#include <cstdint>

extern "C" {

int grrm_cuda_score_tokens(int bf16, const void* logits, const int64_t* labels, float* logprobs, float* entropy,
                           float* lse, int64_t rows, int64_t vocab, void* stream);
int grrm_cuda_score_tokens_backward(int bf16, const void* logits, const int64_t* labels, const float* entropy,
                                    const float* lse, const float* g_logprob, const float* g_entropy,
                                    const float* g_lse, void* dlogits, int64_t rows, int64_t vocab, void* stream);

}  // extern "C"
