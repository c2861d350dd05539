// Where a matrix is not zero. Models grown from smaller ones have whole rows and columns of zeros; products and heads
// of attention that would only add zeros are left out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace grrm {

struct Span {
  int64_t begin, end;

  int64_t size() const { return end - begin; }
};

// Rows and columns outside of these are zero. The second span of two lies behind the first, or is empty.
struct Extent {
  Span rows[2], columns[2];
};

constexpr int64_t kGap = 16;  // a gap of fewer costs less than one more product

// From the first mark to the last, without the longest gap between marks.
inline void put_spans(const std::vector<char>& marks, Span* spans) {
  Span gap{0, 0}, all{0, 0};
  int64_t last = -1;
  for (int64_t i = 0; i < static_cast<int64_t>(marks.size()); ++i) {
    if (!marks[i]) continue;
    if (last < 0) all.begin = i;
    if (last >= 0 && i - last - 1 > gap.size()) gap = {last + 1, i};
    last = i;
  }
  all.end = last + 1;
  if (gap.size() < kGap) gap = {all.end, all.end};
  spans[0] = {all.begin, gap.begin};
  spans[1] = {gap.end, all.end};
}

// Of a matrix [rows, columns]. Reads little more than a row and a column of one without zeros.
inline Extent extent_of(const float* matrix, int64_t rows, int64_t columns) {
  std::vector<char> in_row(rows, 0), in_column(columns, 0);
  std::vector<int64_t> empty(columns);
  for (int64_t i = 0; i < columns; ++i) empty[i] = i;
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = matrix + r * columns;
    in_row[r] = std::any_of(row, row + columns, [](float x) { return x != 0.0f; });
    if (!in_row[r]) continue;
    const auto filled = [&](int64_t c) { return in_column[c] = row[c] != 0.0f; };
    empty.erase(std::remove_if(empty.begin(), empty.end(), filled), empty.end());
  }
  Extent found;
  put_spans(in_row, found.rows);
  put_spans(in_column, found.columns);
  return found;
}

}  // namespace grrm
