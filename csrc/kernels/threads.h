// Dividing rows among OpenMP threads. No sum is shared by two threads, so results do not depend on their timing.
#pragma once

#include <cstdint>

#ifdef _OPENMP
#include <omp.h>
#endif

namespace grrm {

inline int64_t n_threads() {
#ifdef _OPENMP
  return omp_get_max_threads();
#else
  return 1;
#endif
}

// Calls run(part, begin, end) for one range per thread.
template <typename Run>
void over_ranges(int64_t n, Run run) {
  const int64_t parts = n_threads();
#pragma omp parallel for schedule(static, 1) if (parts > 1)
  for (int64_t part = 0; part < parts; ++part) run(part, n * part / parts, n * (part + 1) / parts);
}

}  // namespace grrm
