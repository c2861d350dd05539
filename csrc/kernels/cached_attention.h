// Attention of single tokens over a cache of keys and values: what prefill and decoding have in common.
//
// A cache holds, for each slot and key head, the keys as columns [D, stride] and the values as rows [length, W]: scores
// of neighbouring positions are then neighbouring products, and no sum runs across a register. W is D rounded up to
// whole lanes, stride the length rounded up to two of them; what lies beyond is never read into a result.
#pragma once

#include <cmath>
#include <cstring>
#include <vector>

#include "attention.h"

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

// R queries [R, D] of one key head over positions 0 to `end`; `weights` has room for R strides, `result` for R x W.
template <int R>
GRRM_INLINE void attend_cached(const CacheShape& s, const float* query, const float* columns, const float* values,
                               int64_t end, float scale, float* weights, float* result, float* out) {
  const int64_t stride = s.stride(), W = s.value_width(), D = s.width;
  dot_columns<R>(query, columns, scale, stride, D, 0, end, weights);
  float sums[R];
  for (int r = 0; r < R; ++r) {
    float* w = weights + r * stride;
    sums[r] = exponentials(w, 0, end, largest(w, 0, end, -3e38f));
  }
  for (int64_t d = 0; d < R * W; ++d) result[d] = 0.0f;
  add_weighted_rows<R>(weights, values, stride, W, 0, end, result);
  for (int r = 0; r < R; ++r)
    for (int64_t d = 0; d < D; ++d) out[r * D + d] = result[r * W + d] / sums[r];
}

// Tokens [begin, end) of q and out [N, heads, D]; each sees positions 0 to its own of its slot.
GRRM_CLONES
static void cached_attention_tokens(const CacheLayer& cache, const float* q, const int64_t* slots,
                                    const int64_t* positions, int64_t heads, int64_t begin, int64_t end, float* out) {
  const CacheShape& s = cache.shape;
  const int64_t group = heads / s.key_heads, D = s.width;
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  std::vector<float> weights(kQueries * s.stride()), result(kQueries * s.value_width());
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t head = 0; head < s.key_heads; ++head) {
      const float* columns = cache.key_columns(slots[i], head);
      const float* values = cache.value_rows(slots[i], head);
      const float* query = q + (i * heads + head * group) * D;
      float* target = out + (i * heads + head * group) * D;
      const int64_t seen = positions[i] + 1;
      int64_t g = 0;
      for (; g + 4 <= group; g += 4)
        attend_cached<4>(s, query + g * D, columns, values, seen, scale, weights.data(), result.data(), target + g * D);
      for (; g + 2 <= group; g += 2)
        attend_cached<2>(s, query + g * D, columns, values, seen, scale, weights.data(), result.data(), target + g * D);
      if (g < group)
        attend_cached<1>(s, query + g * D, columns, values, seen, scale, weights.data(), result.data(), target + g * D);
    }
  }
}

}  // namespace grrm
