// Enough of CUDA to run its kernels on a CPU, a block after the other and a thread of it after the other: each thread
// is a coroutine that goes on to the next barrier. A shuffle counts as a barrier of the block, so warps must meet in
// them as well. Threads of which some wait at a barrier while others shuffle or have left end the program.
#pragma once

#include <setjmp.h>
#include <ucontext.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <vector>

#define __device__
#define __global__
#define __shared__ static

struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

static dim3 threadIdx, blockIdx, blockDim, gridDim;

using cudaStream_t = void*;
enum { cudaSuccess = 0, cudaErrorInvalidValue = 1 };
static int cudaGetLastError() { return cudaSuccess; }

// The upper half of a float, rounded to the nearest, to even where two are as near.
class __nv_bfloat16 {
 public:
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float x) {
    uint32_t whole;
    std::memcpy(&whole, &x, sizeof whole);
    bits_ = static_cast<uint16_t>((whole + 0x7fff + (whole >> 16 & 1)) >> 16);
  }
  operator float() const {
    const uint32_t whole = static_cast<uint32_t>(bits_) << 16;
    float x;
    std::memcpy(&x, &whole, sizeof x);
    return x;
  }

 private:
  uint16_t bits_ = 0;
};

namespace cuda_on_cpu {

enum class State { kRuns, kAtBarrier, kShuffles, kDone };

// A thread begins in a context of its own and goes on by jumps, which need no call of the system.
struct Thread {
  ucontext_t context;
  jmp_buf place;
  std::vector<char> stack;
  State state = State::kRuns;
};

static jmp_buf scheduler;
static std::vector<Thread> threads;
static std::function<void()> body;

static void leave(State state) {
  Thread& thread = threads[threadIdx.x];
  thread.state = state;
  if (_setjmp(thread.place) == 0) _longjmp(scheduler, 1);
}

static void enter() {
  body();
  leave(State::kDone);
}

// Until the thread waits or is done.
static void resume(Thread& thread, bool begins) {
  if (_setjmp(scheduler) != 0) return;
  if (begins) setcontext(&thread.context);
  _longjmp(thread.place, 1);
}

static void run_block() {
  for (Thread& thread : threads) {
    getcontext(&thread.context);
    thread.context.uc_stack.ss_sp = thread.stack.data();
    thread.context.uc_stack.ss_size = thread.stack.size();
    makecontext(&thread.context, enter, 0);
  }
  for (bool begins = true; begins || threads[0].state != State::kDone; begins = false) {
    for (size_t i = 0; i < threads.size(); ++i) {
      threadIdx = dim3(static_cast<unsigned>(i));
      resume(threads[i], begins);
      if (threads[i].state == threads[0].state) continue;
      std::fprintf(stderr, "thread %zu is not where the first is\n", i);
      std::exit(1);
    }
  }
}

// What kernel<<<grid, n_threads>>>(...) does.
static void launch(dim3 grid, int64_t n_threads, std::function<void()> kernel) {
  body = std::move(kernel);
  gridDim = grid;
  blockDim = dim3(static_cast<unsigned>(n_threads));
  threads.resize(n_threads);
  for (Thread& thread : threads) thread.stack.resize(32 << 10);
  for (blockIdx.y = 0; blockIdx.y < grid.y; ++blockIdx.y)
    for (blockIdx.x = 0; blockIdx.x < grid.x; ++blockIdx.x) run_block();
}

}  // namespace cuda_on_cpu

#define GRRM_LAUNCH(kernel, grid, n_threads, stream, ...) \
  ((void)(stream), cuda_on_cpu::launch(grid, n_threads, [&] { kernel(__VA_ARGS__); }))

static void __syncthreads() { cuda_on_cpu::leave(cuda_on_cpu::State::kAtBarrier); }

template <typename V>
static V __shfl_xor_sync(unsigned, V value, unsigned distance) {
  static V of_threads[1024];
  const unsigned own = threadIdx.x;
  of_threads[own] = value;
  cuda_on_cpu::leave(cuda_on_cpu::State::kShuffles);
  const V other = of_threads[own ^ distance];
  cuda_on_cpu::leave(cuda_on_cpu::State::kShuffles);
  return other;
}

// Memory that kernels and the program see, and the wait for kernels.
template <typename T>
using Shared = std::vector<T>;

static void finish(int status) {
  if (status != cudaSuccess) std::exit(1);
}
