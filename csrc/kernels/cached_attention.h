// Attention of single tokens over a cache of keys and values: what prefill and decoding have in common.
//
// A cache holds, for each slot and key head, the keys as columns [D, stride] and the values as rows [length, W]: scores
// of neighbouring positions are then neighbouring products, and no sum runs across a register. W is D rounded up to
// whole lanes, stride the length rounded up to two of them; what lies beyond is never read into a result.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "attention.h"
#include "extent.h"

namespace grrm {

struct CacheShape {
  int64_t slots, key_heads, width, length;

  int64_t stride() const { return (length + 2 * kLanes - 1) / (2 * kLanes) * (2 * kLanes); }
  int64_t value_width() const { return whole_lanes(width); }
  int64_t keys_per_layer() const { return slots * key_heads * width * stride(); }
  int64_t values_per_layer() const { return slots * key_heads * length * value_width(); }
};

// One layer's part of the cache.
struct CacheLayer {
  const CacheShape& shape;
  float* keys;
  float* values;

  float* key_columns(int64_t slot, int64_t head) const {
    return keys + (slot * shape.key_heads + head) * shape.width * shape.stride();
  }
  float* value_rows(int64_t slot, int64_t head) const {
    return values + (slot * shape.key_heads + head) * shape.length * shape.value_width();
  }
};

// Puts key and value [K, D] of one token into its slot.
GRRM_CLONES
static void cache_token(const CacheLayer& cache, const float* key, const float* value, int64_t slot, int64_t position) {
  const CacheShape& s = cache.shape;
  const int64_t stride = s.stride(), W = s.value_width();
  for (int64_t head = 0; head < s.key_heads; ++head) {
    float* column = cache.key_columns(slot, head) + position;
    float* row = cache.value_rows(slot, head) + position * W;
    for (int64_t d = 0; d < s.width; ++d) column[d * stride] = key[head * s.width + d];
    for (int64_t d = 0; d < s.width; ++d) row[d] = value[head * s.width + d];
    for (int64_t d = s.width; d < W; ++d) row[d] = 0.0f;
  }
}

// The first `count` positions of one slot over all heads, copied to another: a prompt that several sequences share.
GRRM_CLONES
static void copy_slot(const CacheLayer& cache, int64_t from, int64_t to, int64_t count) {
  const CacheShape& s = cache.shape;
  const int64_t stride = s.stride();
  for (int64_t head = 0; head < s.key_heads; ++head) {
    const float* columns = cache.key_columns(from, head);
    float* target = cache.key_columns(to, head);
    for (int64_t d = 0; d < s.width; ++d)
      std::memcpy(target + d * stride, columns + d * stride, count * sizeof(float));
    std::memcpy(cache.value_rows(to, head), cache.value_rows(from, head), count * s.value_width() * sizeof(float));
  }
}

// R queries [R, D] of one key head, of which the r-th sees the positions before `seen[r]`, each no fewer than the one
// before; `weights` has room for R strides, `result` for R x W.
template <int R>
GRRM_INLINE void attend_cached(const CacheShape& s, const float* query, const float* columns, const float* values,
                               const int64_t* seen, float scale, float* weights, float* result, float* out) {
  const int64_t stride = s.stride(), W = s.value_width(), D = s.width, end = seen[R - 1];
  dot_columns<R>(query, columns, scale, stride, D, 0, end, weights);
  float sums[R];
  for (int r = 0; r < R; ++r) {
    float* w = weights + r * stride;
    sums[r] = exponentials(w, 0, seen[r], largest(w, 0, seen[r], -3e38f));
    for (int64_t j = seen[r]; j < end; ++j) w[j] = 0.0f;
  }
  for (int64_t d = 0; d < R * W; ++d) result[d] = 0.0f;
  add_weighted_rows<R>(weights, values, stride, W, 0, end, result);
  for (int r = 0; r < R; ++r)
    for (int64_t d = 0; d < D; ++d) out[r * D + d] = result[r * W + d] / sums[r];
}

struct AttendBuffers {
  std::vector<float> weights, result, queries, out;

  explicit AttendBuffers(const CacheShape& s)
      : weights(kQueries * s.stride()),
        result(kQueries * s.value_width()),
        queries(kQueries * s.width),
        out(kQueries * s.width) {}
};

// As many as possible of the queries [n, D] of a key head at a time.
GRRM_INLINE void attend_queries(const CacheShape& s, const float* query, int64_t n, const float* columns,
                                const float* values, const int64_t* seen, float scale, AttendBuffers& b, float* out) {
  const int64_t D = s.width;
  float *weights = b.weights.data(), *result = b.result.data();
  int64_t i = 0;
  for (; i + 4 <= n; i += 4)
    attend_cached<4>(s, query + i * D, columns, values, seen + i, scale, weights, result, out + i * D);
  if (i + 3 == n)
    return attend_cached<3>(s, query + i * D, columns, values, seen + i, scale, weights, result, out + i * D);
  if (i + 2 == n)
    return attend_cached<2>(s, query + i * D, columns, values, seen + i, scale, weights, result, out + i * D);
  if (i < n) attend_cached<1>(s, query + i * D, columns, values, seen + i, scale, weights, result, out + i * D);
}

// How many tokens from the i-th on, `limit` at most, follow one another in one slot.
inline int64_t tokens_in_order(const int64_t* slots, const int64_t* positions, int64_t i, int64_t end, int64_t limit) {
  int64_t n = 1;
  while (n < limit && i + n < end && slots[i + n] == slots[i] && positions[i + n] == positions[i] + n) ++n;
  return n;
}

// Tokens [begin, end) of q and out [N, heads, D]; each sees positions 0 to its own of its slot. Query heads of other
// key heads than `read` are left as they are. Where few queries share a key head, those of neighbouring tokens go
// through it together.
GRRM_CLONES
static void cached_attention_tokens(const CacheLayer& cache, const float* q, const int64_t* slots,
                                    const int64_t* positions, int64_t heads, Span read, int64_t begin, int64_t end,
                                    float* out) {
  const CacheShape& s = cache.shape;
  const int64_t group = heads / s.key_heads, D = s.width, together = std::max<int64_t>(1, kQueries / group);
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  AttendBuffers buffers(s);
  std::vector<int64_t> seen(std::max<int64_t>(kQueries, group));
  int64_t n = 1;
  for (int64_t i = begin; i < end; i += n) {
    n = tokens_in_order(slots, positions, i, end, together);
    for (int64_t j = 0; j < n * group; ++j) seen[j] = positions[i + j / group] + 1;
    for (int64_t head = read.begin; head < read.end; ++head) {
      const float *columns = cache.key_columns(slots[i], head), *values = cache.value_rows(slots[i], head);
      const int64_t first = (i * heads + head * group) * D, row = heads * D, size = group * D;
      if (n == 1) {
        attend_queries(s, q + first, group, columns, values, seen.data(), scale, buffers, out + first);
        continue;
      }
      for (int64_t t = 0; t < n; ++t) std::copy_n(q + first + t * row, size, buffers.queries.data() + t * size);
      attend_queries(s, buffers.queries.data(), n * group, columns, values, seen.data(), scale, buffers,
                     buffers.out.data());
      for (int64_t t = 0; t < n; ++t) std::copy_n(buffers.out.data() + t * size, size, out + first + t * row);
    }
  }
}

}  // namespace grrm
