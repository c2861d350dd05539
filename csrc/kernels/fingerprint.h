// Whether numbers are still what they were: reading them is several times as fast as laying them out for a BLAS.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "simd.h"
#include "threads.h"

namespace grrm {

typedef uint32_t Words __attribute__((vector_size(64)));

inline uint64_t mixed(uint64_t state, uint64_t word) {
  state = (state ^ word) * 0x9E3779B97F4A7C15ull;
  return state ^ (state >> 32);
}

// Every lane of `state` takes in a number by a step that can be undone, so one that changes alone is always seen.
GRRM_CLONES
static uint64_t fingerprint_range(const float* x, int64_t begin, int64_t end) {
  constexpr int kStates = 4;
  constexpr int64_t kBlock = kStates * kLanes;
  Words states[kStates] = {};
  int64_t i = begin;
  for (; i + kBlock <= end; i += kBlock)
    for (int s = 0; s < kStates; ++s) {
      Words words;
      std::memcpy(&words, x + i + s * kLanes, sizeof words);
      states[s] = (states[s] ^ words) * 0x9E3779B1u;
      states[s] ^= states[s] >> 15;
    }
  uint64_t all = static_cast<uint64_t>(end - begin);
  for (int s = 0; s < kStates; ++s)
    for (int lane = 0; lane < kLanes; ++lane) all = mixed(all, states[s][lane]);
  for (; i < end; ++i) {
    uint32_t word;
    std::memcpy(&word, x + i, sizeof word);
    all = mixed(all, word);
  }
  return all;
}

// Of n numbers, continuing `before`; it changes with the number of threads as well.
inline uint64_t fingerprint(const float* x, int64_t n, uint64_t before) {
  std::vector<uint64_t> of_parts(n_threads(), 0);
  over_ranges(n, [&](int64_t part, int64_t begin, int64_t end) { of_parts[part] = fingerprint_range(x, begin, end); });
  for (const uint64_t one : of_parts) before = mixed(before, one);
  return before;
}

}  // namespace grrm
