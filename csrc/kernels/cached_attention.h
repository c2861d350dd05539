// Attention of single tokens over a cache of keys and values: what prefill and decoding have in common.
#pragma once

#include <algorithm>
#include <cmath>
#include <memory>
#include <type_traits>

#include "attention.h"
#include "kv_cache.h"

namespace grrm {

constexpr int64_t kTogether = 32;  // queries of samples of one prompt that go through it together

// Calls run(R, i) for R queries from the i-th on, as many as possible at a time, until all n had their turn.
template <typename Run>
GRRM_INLINE void in_blocks(int64_t n, const Run& run) {
  int64_t i = 0;
  for (; i + kQueries <= n; i += kQueries) run(std::integral_constant<int, kQueries>(), i);
  if (n - i == 3) run(std::integral_constant<int, 3>(), i);
  if (n - i == 2) run(std::integral_constant<int, 2>(), i);
  if (n - i == 1) run(std::integral_constant<int, 1>(), i);
}

#define GRRM_BLOCK(...) [&](auto R, int64_t i) __attribute__((always_inline)) { __VA_ARGS__; }

// Room for some queries of one key head: [n, D] of them, and [n, stride], [n] and [n, W] on the way.
struct AttendBuffers {
  std::unique_ptr<float[]> queries, weights, sums, result;

  AttendBuffers(const CacheShape& s, int64_t n)
      : queries(new float[n * s.width]),
        weights(new float[n * s.stride()]),
        sums(new float[n]),
        result(new float[n * s.value_width()]) {}
};

// One key head of one slot.
struct CachedHead {
  const CacheLayer& cache;
  int64_t slot, head;
};

// weights [n, stride] = the scores of queries [n, D] at the positions from begin, a multiple of kColumns, to end. All
// queries meet a few keys before the next few, which are then fetched once.
GRRM_INLINE void score(const CacheShape& s, const float* query, int64_t n, CachedHead head, float scale, int64_t begin,
                       int64_t end, float* weights) {
  for (int64_t j = begin; j < end; j += kColumns) {
    const float* columns = head.cache.key_columns(head.slot, head.head, j);
    in_blocks(n, GRRM_BLOCK(dot_block<R>(query + i * s.width, columns, scale, kColumns, s.width,
                                         weights + i * s.stride() + j, s.stride())));
  }
}

// result [n, W] += the values of the positions from begin to end, times weights. All queries meet a block before the
// next.
GRRM_INLINE void add_values(const CacheShape& s, const float* weights, int64_t n, CachedHead head, int64_t begin,
                            int64_t end, float* result) {
  const int64_t W = s.value_width();
  for (int64_t first = begin / kCacheBlock * kCacheBlock; first < end; first += kCacheBlock) {
    const float* rows = head.cache.value_rows(head.slot, head.head, first);
    const int64_t from = std::max(begin - first, int64_t{0}), to = std::min(end - first, kCacheBlock);
    in_blocks(n, GRRM_BLOCK(add_weighted_rows<R>(weights + i * s.stride() + first, rows, s.stride(), W, from, to,
                                                 result + i * W)));
  }
}

// Scores of the first `seen` positions become exponentials, those behind, up to `end`, 0; returns the sum.
GRRM_INLINE float weigh(float* scores, int64_t seen, int64_t end) {
  const float sum = exponentials(scores, 0, seen, largest(scores, 0, seen, -3e38f));
  for (int64_t j = seen; j < end; ++j) scores[j] = 0.0f;
  return sum;
}

// What a thread computes of the attention of tokens; see cached_attention_tokens.
struct CachedAttention {
  const CacheLayer& cache;
  const float* q;
  const Places& places;
  int64_t heads, group;
  float scale;
  float* out;

  CachedHead head_of(int64_t slot, int64_t head) const { return {cache, slot, head}; }

  int64_t size() const { return group * cache.shape.width; }
  int64_t at(int64_t token, int64_t head) const { return (token * heads + head * group) * cache.shape.width; }

  // How many tokens from the i-th on, `limit` at most, follow one another in one slot.
  int64_t in_order(int64_t i, int64_t end, int64_t limit) const {
    int64_t n = 1;
    while (n < limit && i + n < end && places.slots[i + n] == places.slots[i] &&
           places.positions[i + n] == places.positions[i] + n)
      ++n;
    return n;
  }

  // How many tokens from the i-th on, `limit` at most, share their first positions.
  int64_t companions(int64_t i, int64_t end, int64_t limit) const {
    int64_t n = 1;
    while (n < limit && i + n < end && places.shared[i] > 0 && places.shared[i + n] == places.shared[i] &&
           places.owners[i + n] == places.owners[i])
      ++n;
    return n;
  }

  GRRM_INLINE void gather(const CachedAttention& a, int64_t i, int64_t n, int64_t head, float* queries) {
    for (int64_t t = 0; t < n; ++t) std::copy_n(a.q + a.at(i + t, head), a.size(), queries + t * a.size());
  }

  // Results, divided by the sums of their weights.
  GRRM_INLINE void scatter(const CachedAttention& a, int64_t i, int64_t n, int64_t head, const AttendBuffers& b) {
    const int64_t D = a.cache.shape.width, W = a.cache.shape.value_width();
    for (int64_t t = 0; t < n; ++t)
      for (int64_t r = 0; r < a.group; ++r) {
        const float *result = b.result.get() + (t * a.group + r) * W, sum = b.sums[t * a.group + r];
        float* out = a.out + a.at(i + t, head) + r * D;
        for (int64_t d = 0; d < D; ++d) out[d] = result[d] / sum;
      }
  }

  // Tokens i to i + n of one slot, one after the other.
  GRRM_INLINE void run_in_order(const CachedAttention& a, int64_t i, int64_t n, int64_t head, const AttendBuffers& b) {
    const CacheShape& s = a.cache.shape;
    const int64_t W = s.value_width(), stride = s.stride(), all = n * a.group;
    const int64_t first = a.places.positions[i] + 1, end = first + n - 1;
    const CachedHead cached = a.head_of(a.places.slots[i], head);
    float *queries = b.queries.get(), *weights = b.weights.get(), *result = b.result.get();
    gather(a, i, n, head, queries);
    score(s, queries, all, cached, a.scale, 0, end, weights);
    for (int64_t r = 0; r < all; ++r) b.sums[r] = weigh(weights + r * stride, first + r / a.group, end);
    std::fill_n(result, all * W, 0.0f);
    add_values(s, weights, all, cached, 0, end, result);
    scatter(a, i, n, head, b);
  }

  // Tokens i to i + n, of which all read what they share from its owner, and what follows each from its own slot.
  GRRM_INLINE void run_companions(const CachedAttention& a, int64_t i, int64_t n, int64_t head,
                                  const AttendBuffers& b) {
    const CacheShape& s = a.cache.shape;
    const Places& places = a.places;
    const int64_t W = s.value_width(), stride = s.stride(), all = n * a.group;
    const int64_t shared = places.shared[i] / kColumns * kColumns;
    const CachedHead owner = a.head_of(places.owners[i], head);
    float *queries = b.queries.get(), *weights = b.weights.get(), *result = b.result.get();
    gather(a, i, n, head, queries);
    score(s, queries, all, owner, a.scale, 0, shared, weights);
    for (int64_t t = 0, first = 0; t < n; ++t, first += a.group) {
      const int64_t seen = places.positions[i + t] + 1;
      score(s, queries + first * s.width, a.group, a.head_of(places.slots[i + t], head), a.scale, shared, seen,
            weights + first * stride);
      for (int64_t r = first; r < first + a.group; ++r) b.sums[r] = weigh(weights + r * stride, seen, seen);
    }
    std::fill_n(result, all * W, 0.0f);
    add_values(s, weights, all, owner, 0, shared, result);
    for (int64_t t = 0, first = 0; t < n; ++t, first += a.group)
      add_values(s, weights + first * stride, a.group, a.head_of(places.slots[i + t], head), shared,
                 places.positions[i + t] + 1, result + first * W);
    scatter(a, i, n, head, b);
  }
};

// Tokens [begin, end) of q and out [N, heads, D]; each sees positions 0 to its own of its slot. Query heads of
// neighbouring tokens go through a key head together where the tokens follow one another in a slot, or share what they
// see first. The bits of a token's result are the same alone.
GRRM_CLONES
static void cached_attention_tokens(const CacheLayer& cache, const float* q, const Places& places, int64_t heads,
                                    int64_t begin, int64_t end, float* out) {
  const int64_t group = heads / cache.shape.key_heads;
  const float scale = 1.0f / std::sqrt(static_cast<float>(cache.shape.width));
  const CachedAttention attention{cache, q, places, heads, group, scale, out};
  const int64_t limit = std::max<int64_t>(1, kTogether / group);
  const AttendBuffers buffers(cache.shape, limit * group);
  int64_t n = 1;
  for (int64_t i = begin; i < end; i += n) {
    n = attention.companions(i, end, limit);
    const bool share = n > 1;
    if (!share) n = attention.in_order(i, end, limit);
    for (int64_t head = 0; head < cache.shape.key_heads; ++head) {
      if (share)
        CachedAttention::run_companions(attention, i, n, head, buffers);
      else
        CachedAttention::run_in_order(attention, i, n, head, buffers);
    }
  }
}

#undef GRRM_BLOCK

}  // namespace grrm
