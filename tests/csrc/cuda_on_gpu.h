// What cuda_on_cpu.h offers to the program, where there is a GPU.
#pragma once

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <vector>

inline void check(int status) {
  if (status == cudaSuccess) return;
  std::fprintf(stderr, "%s\n", cudaGetErrorString(static_cast<cudaError_t>(status)));
  std::exit(1);
}

template <typename T>
struct Managed {
  using value_type = T;
  Managed() = default;
  template <typename U>
  Managed(const Managed<U>&) {}
  T* allocate(size_t n) {
    void* memory = nullptr;
    check(cudaMallocManaged(&memory, n * sizeof(T)));
    return static_cast<T*>(memory);
  }
  void deallocate(T* memory, size_t) { check(cudaFree(memory)); }
  bool operator==(const Managed&) const { return true; }
  bool operator!=(const Managed&) const { return false; }
};

template <typename T>
using Shared = std::vector<T, Managed<T>>;

inline void finish(int status) {
  check(status);
  check(cudaDeviceSynchronize());
}
