// Memory that starts on a whole cache line: how a BLAS rounds may depend on where its operands begin, and vectors that
// lie across two lines take twice as long.
#pragma once

#include <cstddef>
#include <new>
#include <vector>

namespace grrm {

template <typename T>
struct OnCacheLines {
  using value_type = T;
  static constexpr std::align_val_t kLine{64};
  OnCacheLines() = default;
  template <typename U>
  OnCacheLines(const OnCacheLines<U>&) {}
  T* allocate(size_t n) { return static_cast<T*>(::operator new(n * sizeof(T), kLine)); }
  void deallocate(T* memory, size_t) { ::operator delete(memory, kLine); }
  bool operator==(const OnCacheLines&) const { return true; }
  bool operator!=(const OnCacheLines&) const { return false; }
};
using Floats = std::vector<float, OnCacheLines<float>>;

}  // namespace grrm
