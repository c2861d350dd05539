// Times every CUDA kernel on the GPU at hand, beside a copy of as many bytes. Prints a line of JSON for each.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "../csrc/cuda/c_api.cu"

namespace {

void check(int status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(static_cast<cudaError_t>(status)));
  std::exit(1);
}

template <typename T = void>
T* room(int64_t bytes) {
  void* memory = nullptr;
  check(cudaMalloc(&memory, bytes));
  check(cudaMemset(memory, 0, bytes));
  return static_cast<T*>(memory);
}

// Median microseconds of one call, each of which reads and writes more than a cache holds.
double microseconds(const std::function<int()>& call) {
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin));
  check(cudaEventCreate(&end));
  for (int i = 0; i < 3; ++i) check(call());
  std::vector<float> found;
  for (int i = 0; i < 20; ++i) {
    check(cudaEventRecord(begin));
    check(call());
    check(cudaEventRecord(end));
    check(cudaEventSynchronize(end));
    float milliseconds = 0.0f;
    check(cudaEventElapsedTime(&milliseconds, begin, end));
    found.push_back(milliseconds * 1000.0f);
  }
  std::nth_element(found.begin(), found.begin() + 10, found.end());
  return found[10];
}

void report(const char* kernel, const char* type, int64_t rows, int64_t width, double bytes,
            const std::function<int()>& call) {
  const double time = microseconds(call);
  std::printf("{\"kernel\": \"%s\", \"type\": \"%s\", \"rows\": %lld, \"width\": %lld, ", kernel, type,
              static_cast<long long>(rows), static_cast<long long>(width));
  std::printf("\"us\": %.2f, \"gb_per_s\": %.1f}\n", time, bytes / time / 1e3);
}

void rows_of_a_vocabulary(int bf16, const char* type, int64_t rows, int64_t vocabulary) {
  const int64_t n = rows * vocabulary, size = bf16 ? 2 : 4;
  void *logits = room(n * size), *dlogits = room(n * size);
  auto* labels = room<int64_t>(rows * 8);
  auto *a = room<float>(rows * 4), *b = room<float>(rows * 4), *c = room<float>(rows * 4);
  report("score_tokens", type, rows, vocabulary, 1.0 * n * size,
         [&] { return grrm_cuda_score_tokens(bf16, logits, labels, a, b, c, rows, vocabulary, nullptr); });
  report("score_tokens_backward", type, rows, vocabulary, 2.0 * n * size, [&] {
    return grrm_cuda_score_tokens_backward(bf16, logits, labels, a, b, a, b, c, dlogits, rows, vocabulary, nullptr);
  });
  for (void* one : {logits, dlogits}) check(cudaFree(one));
  for (void* one :
       {static_cast<void*>(labels), static_cast<void*>(a), static_cast<void*>(b), static_cast<void*>(c)})
    check(cudaFree(one));
}

}  // namespace

int main() {
  const int64_t bytes = int64_t{1} << 30;
  void *from = room(bytes), *to = room(bytes);
  report("copy", "bytes", 1, bytes, 2.0 * bytes,
         [&] { return static_cast<int>(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice)); });
  check(cudaFree(from));
  check(cudaFree(to));
  for (int bf16 : {0, 1}) {
    const char* type = bf16 ? "bf16" : "fp32";
    rows_of_a_vocabulary(bf16, type, 512, 151936);
  }
  return 0;
}
