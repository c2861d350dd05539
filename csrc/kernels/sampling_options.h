// What a draw is told, on a CPU and on a GPU.
#pragma once

#include <cstdint>

namespace grrm {

struct SamplingOptions {
  float temperature;  // 0 takes the largest
  int64_t top_k;      // 0 keeps all
  double top_p;       // 1 keeps all
  float repetition_penalty;
};

constexpr float kLargest = 3.4028235e38f;  // a finite logit is no larger

}  // namespace grrm
