// C functions that launch the kernels on a stream: what a binding of any framework, or ctypes, calls. Pointers are to
// the device's memory; `bf16` says what T is. Each answers with a cudaError_t, without waiting for the kernel.

#include "launch.cuh"

#include "c_api.h"
#include "elementwise.cuh"
#include "rms_norm.cuh"
#include "token_scores.cuh"

namespace {

constexpr int64_t kRowThreads = 256, kVocabularyThreads = 512;
constexpr int64_t kMostBlocks = 0x7fffffff, kMostBlocksDown = 65535;  // of a grid in its first and second dimension

int64_t blocks_of(int64_t n) { return (n + kRowThreads - 1) / kRowThreads; }

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

dim3 grid_of(int64_t blocks, int64_t down = 1) {
  return dim3(static_cast<unsigned>(blocks), static_cast<unsigned>(down));
}

cudaStream_t stream_at(void* stream) { return static_cast<cudaStream_t>(stream); }

}  // namespace

extern "C" {

int grrm_cuda_rms_norm(int bf16, const void* x, const void* w, void* y, float* inverse, int64_t rows, int64_t width,
                       float epsilon, void* stream) {
  return with_type(bf16, rows, [&](auto* t) {
    GRRM_LAUNCH(grrm_cuda::rms_norm, grid_of(rows), kRowThreads, stream_at(stream), in(t, x), in(t, w), out(t, y),
                inverse, width, epsilon);
  });
}

// `parts` [n_parts, width] is room for sums; n_parts may be up to 65535.
int grrm_cuda_rms_norm_backward(int bf16, const void* x, const void* w, const float* inverse, const void* g, void* dx,
                                void* dw, float* parts, int64_t n_parts, int64_t rows, int64_t width, void* stream) {
  if (n_parts < 1 || n_parts > kMostBlocksDown) return cudaErrorInvalidValue;
  const int status = with_type(bf16, rows, [&](auto* t) {
    GRRM_LAUNCH(grrm_cuda::rms_norm_backward, grid_of(rows), kRowThreads, stream_at(stream), in(t, x), in(t, w),
                inverse, in(t, g), out(t, dx), width);
  });
  if (status != cudaSuccess) return status;
  return with_type(bf16, blocks_of(width), [&](auto* t) {
    GRRM_LAUNCH(grrm_cuda::rms_norm_weight_parts, grid_of(blocks_of(width), n_parts), kRowThreads, stream_at(stream),
                in(t, x), inverse, in(t, g), parts, rows, width);
    GRRM_LAUNCH(grrm_cuda::rms_norm_weight, grid_of(blocks_of(width)), kRowThreads, stream_at(stream), parts,
                out(t, dw), n_parts, width);
  });
}

int grrm_cuda_swiglu(int bf16, const void* gate, const void* up, void* y, int64_t n, void* stream) {
  return with_type(bf16, blocks_of(n), [&](auto* t) {
    GRRM_LAUNCH(grrm_cuda::swiglu, grid_of(blocks_of(n)), kRowThreads, stream_at(stream), in(t, gate), in(t, up),
                out(t, y), n);
  });
}

int grrm_cuda_swiglu_backward(int bf16, const void* gate, const void* up, const void* g, void* dgate, void* dup,
                              int64_t n, void* stream) {
  return with_type(bf16, blocks_of(n), [&](auto* t) {
    GRRM_LAUNCH(grrm_cuda::swiglu_backward, grid_of(blocks_of(n)), kRowThreads, stream_at(stream), in(t, gate),
                in(t, up), in(t, g), out(t, dgate), out(t, dup), n);
  });
}

int grrm_cuda_rotate(int bf16, const void* x, const float* cos, const float* sin, const int64_t* positions, void* y,
                     int64_t rows, int64_t heads, int64_t width, float direction, void* stream) {
  const int64_t blocks = blocks_of(rows * heads * (width / 2));
  return with_type(bf16, blocks, [&](auto* t) {
    GRRM_LAUNCH(grrm_cuda::rotate, grid_of(blocks), kRowThreads, stream_at(stream), in(t, x), cos, sin, positions,
                out(t, y), rows, heads, width, direction);
  });
}

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
