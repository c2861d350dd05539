// C functions that launch the kernels on a stream: what a binding of any framework, or ctypes, calls. Pointers are to
// the device's memory; `bf16` says what T is. Each answers with a cudaError_t, without waiting for the kernel.

// Where kernels are launched from: nvcc's syntax, behind a name that other compilers can give another meaning.
#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_runtime.h>

#define GRRM_LAUNCH(kernel, grid, threads, stream, ...) kernel<<<grid, threads, 0, stream>>>(__VA_ARGS__)
#endif

#include "c_api.h"
#include "token_scores.cuh"

namespace {

constexpr int64_t kVocabularyThreads = 512;
constexpr int64_t kMostBlocks = 0x7fffffff;  // of a grid

// Calls launch(pointer to T) for the type of the numbers, where there is work and a grid can hold the blocks.
template <typename Launch>
int with_type(int bf16, int64_t blocks, Launch launch) {
  if (blocks == 0) return cudaSuccess;
  if (blocks < 0 || blocks > kMostBlocks) return cudaErrorInvalidValue;
  if (bf16) {
    launch(static_cast<const __nv_bfloat16*>(nullptr));
  } else {
    launch(static_cast<const float*>(nullptr));
  }
  return static_cast<int>(cudaGetLastError());
}

template <typename T>
const T* in(const T*, const void* x) {
  return static_cast<const T*>(x);
}

template <typename T>
T* out(const T*, void* x) {
  return static_cast<T*>(x);
}

dim3 grid_of(int64_t blocks) { return dim3(static_cast<unsigned>(blocks)); }

cudaStream_t stream_at(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

extern "C" {

int grrm_cuda_score_tokens(int bf16, const void* logits, const int64_t* labels, float* logprobs, float* entropy,
                           float* lse, int64_t rows, int64_t vocab, void* stream) {
  return with_type(bf16, rows, [&](auto* t) {
    GRRM_LAUNCH(grrm_cuda::score_tokens, grid_of(rows), kVocabularyThreads, stream_at(stream), in(t, logits), labels,
                logprobs, entropy, lse, vocab);
  });
}

int grrm_cuda_score_tokens_backward(int bf16, const void* logits, const int64_t* labels, const float* entropy,
                                    const float* lse, const float* g_logprob, const float* g_entropy,
                                    const float* g_lse, void* dlogits, int64_t rows, int64_t vocab, void* stream) {
  return with_type(bf16, rows, [&](auto* t) {
    GRRM_LAUNCH(grrm_cuda::score_tokens_backward, grid_of(rows), kVocabularyThreads, stream_at(stream), in(t, logits),
                labels, entropy, lse, g_logprob, g_entropy, g_lse, out(t, dlogits), vocab);
  });
}

}  // extern "C"
