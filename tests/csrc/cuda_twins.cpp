// Runs every CUDA kernel beside its twin in kernels/ on the same numbers, in both precisions, through the functions
// that launch them: on a GPU where nvcc compiles this, else thread by thread on the CPU.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#ifdef __CUDACC__
#include "cuda_on_gpu.h"
#else
#include "cuda_on_cpu.h"
#endif

#include "../../csrc/cuda/c_api.cu"

// The twins, from csrc/bindings/c_api.cpp.
extern "C" {
void grrm_score_tokens(const float*, const int64_t*, float*, float*, float*, int64_t, int64_t);
void grrm_score_tokens_backward(const float*, const int64_t*, const float*, const float*, const float*, const float*,
                                const float*, float*, int64_t, int64_t);
}

namespace {

using Floats = Shared<float>;
int failures = 0;

void expect(bool holds, const std::string& what) {
  if (holds) return;
  std::printf("%s\n", what.c_str());
  ++failures;
}

void expect_close(const Floats& got, const Floats& wanted, float tolerance, const std::string& what) {
  float error = 0.0f, size = 0.0f;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const float difference = std::fabs(got[i] - wanted[i]);
    error = std::max(error, std::isfinite(difference) ? difference : INFINITY);
    size = std::max(size, std::fabs(wanted[i]));
  }
  expect(error <= tolerance * (1.0f + size), what + " is off by " + std::to_string(error));
  expect(size > 0.0f, what + " is nothing but zeros");
}

Floats numbers(int64_t n, float scale = 1.0f) {
  static uint32_t state = 12345;
  Floats made(n);
  for (auto& x : made) {
    state = state * 1664525u + 1013904223u;
    x = scale * (static_cast<float>(state >> 8) / (1 << 23) - 1.0f);
  }
  return made;
}

constexpr float kExact = 3e-6f;

// Numbers as a kernel has them in memory, and the same as floats.
template <typename T>
struct Array {
  Shared<T> stored;

  explicit Array(int64_t n) : stored(n) {}
  explicit Array(const Floats& from) : stored(from.size()) {
    for (size_t i = 0; i < from.size(); ++i) stored[i] = static_cast<T>(from[i]);
  }
  static Array random(int64_t n, float scale = 1.0f) { return Array(numbers(n, scale)); }
  Floats floats() const {
    Floats made(stored.size());
    for (size_t i = 0; i < made.size(); ++i) made[i] = static_cast<float>(stored[i]);
    return made;
  }
  T* at() { return stored.data(); }
};

template <typename T>
struct Checks {
  static constexpr int kBf16 = sizeof(T) == 2;
  static constexpr float kRounded = kBf16 ? 5e-3f : kExact;  // of what is stored as T

  static void scores(int64_t rows, int64_t vocab, bool masked) {
    const std::string of = " of a row of " + std::to_string(vocab);
    Floats drawn = numbers(rows * vocab, 9.0f);
    for (int64_t i = 0; i + 1 < rows * vocab && masked; i += 3) drawn[i] = -INFINITY;
    Array<T> logits(drawn);
    const Floats z = logits.floats(), g1 = numbers(rows), g2 = numbers(rows), g3 = numbers(rows);
    Shared<int64_t> labels(rows);
    for (int64_t row = 0; row < rows; ++row)  // the last that is not masked
      for (int64_t i = 0; i < vocab; ++i) labels[row] = std::isfinite(z[row * vocab + i]) ? i : labels[row];
    Floats logprobs(rows), entropy(rows), lse(rows), dlogits(rows * vocab);
    Floats logprobs2(rows), entropy2(rows), lse2(rows);
    grrm_score_tokens(z.data(), labels.data(), logprobs.data(), entropy.data(), lse.data(), rows, vocab);
    grrm_score_tokens_backward(z.data(), labels.data(), entropy.data(), lse.data(), g1.data(), g2.data(), g3.data(),
                               dlogits.data(), rows, vocab);
    finish(grrm_cuda_score_tokens(kBf16, logits.at(), labels.data(), logprobs2.data(), entropy2.data(), lse2.data(),
                                  rows, vocab, nullptr));
    expect_close(lse2, lse, kExact, "the normaliser" + of);
    if (vocab > 1) expect_close(logprobs2, logprobs, kExact, "the log-probability" + of);
    if (vocab > 1) expect_close(entropy2, entropy, kExact, "the entropy" + of);
    finish(grrm_cuda_score_tokens_backward(kBf16, logits.at(), labels.data(), entropy.data(), lse.data(), g1.data(),
                                           g2.data(), g3.data(), logits.at(), rows, vocab, nullptr));
    expect_close(logits.floats(), dlogits, kRounded, "the gradient" + of);
  }

  // A model that diverged has no scores: a number made up from the rest of the row would hide it.
  static void no_number(float wrong) {
    constexpr int64_t kVocab = 600;
    Floats drawn = numbers(kVocab, 9.0f);
    drawn[7] = wrong;
    Array<T> logits(drawn);
    Shared<int64_t> label(1);
    Floats logprob(1), entropy(1), lse(1);
    finish(grrm_cuda_score_tokens(kBf16, logits.at(), label.data(), logprob.data(), entropy.data(), lse.data(), 1,
                                  kVocab, nullptr));
    const bool hidden = std::isfinite(logprob[0]) || std::isfinite(entropy[0]) || std::isfinite(lse[0]);
    expect(!hidden, "a row with a logit of " + std::to_string(wrong) + " has scores");
  }

  static void all() {
    no_number(NAN);
    no_number(INFINITY);
    for (int64_t vocab : {1, 50, 512, 3000})
      for (bool masked : {false, true}) scores(3, vocab, masked && vocab > 1);
  }
};

void limits() {
  const auto score = [](int64_t rows) {
    return grrm_cuda_score_tokens(0, nullptr, nullptr, nullptr, nullptr, nullptr, rows, 1, nullptr);
  };
  expect(score(0) == cudaSuccess, "no rows are an error");
  expect(score(int64_t{1} << 60) == cudaErrorInvalidValue, "more rows than a grid holds are no error");
}

}  // namespace

int main() {
  Checks<float>::all();
  Checks<__nv_bfloat16>::all();
  limits();
  if (failures == 0) std::puts("equal");
  return failures != 0;
}
