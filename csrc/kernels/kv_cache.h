// A cache of keys and values of sequences that grow by a token at a time.
//
// It holds, for each slot and key head, the keys as columns, [D, kColumns] of them one block after the other, and the
// values as rows [length, W]: scores of neighbouring positions are then neighbouring products, no sum runs across a
// register, and memory is read in the order in which it lies. W is D rounded up to whole lanes, stride the length rounded
// up to whole blocks; what lies beyond is never read into a result.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "attention.h"
#include "simd.h"

namespace grrm {

struct CacheShape {
  int64_t slots, key_heads, width, length;

  int64_t stride() const { return (length + kColumns - 1) / kColumns * kColumns; }
  int64_t value_width() const { return whole_lanes(width); }
  int64_t keys_per_layer() const { return slots * key_heads * width * stride(); }
  int64_t values_per_layer() const { return slots * key_heads * length * value_width(); }
};

// One layer's part of the cache.
struct CacheLayer {
  const CacheShape& shape;
  float* keys;
  float* values;

  // The block of columns that begins with `position`, a multiple of kColumns.
  float* key_columns(int64_t slot, int64_t head, int64_t position = 0) const {
    return keys + ((slot * shape.key_heads + head) * shape.stride() + position) * shape.width;
  }
  float* value_rows(int64_t slot, int64_t head) const {
    return values + (slot * shape.key_heads + head) * shape.length * shape.value_width();
  }
};

// Puts key and value [K, D] of one token into its slot.
GRRM_CLONES
static void cache_token(const CacheLayer& cache, const float* key, const float* value, int64_t slot, int64_t position) {
  const CacheShape& s = cache.shape;
  const int64_t W = s.value_width(), within = position % kColumns;
  for (int64_t head = 0; head < s.key_heads; ++head) {
    float* column = cache.key_columns(slot, head, position - within) + within;
    float* row = cache.value_rows(slot, head) + position * W;
    for (int64_t d = 0; d < s.width; ++d) column[d * kColumns] = key[head * s.width + d];
    for (int64_t d = 0; d < s.width; ++d) row[d] = value[head * s.width + d];
    for (int64_t d = s.width; d < W; ++d) row[d] = 0.0f;
  }
}

// The first `count` positions of one slot over all heads, copied to another: a prompt that several sequences share.
GRRM_CLONES
static void copy_slot(const CacheLayer& cache, int64_t from, int64_t to, int64_t count) {
  const CacheShape& s = cache.shape;
  const int64_t whole = (count + kColumns - 1) / kColumns * kColumns;
  for (int64_t head = 0; head < s.key_heads; ++head) {
    std::memcpy(cache.key_columns(to, head), cache.key_columns(from, head), whole * s.width * sizeof(float));
    std::memcpy(cache.value_rows(to, head), cache.value_rows(from, head), count * s.value_width() * sizeof(float));
  }
}

// Where tokens are: their slot and position, and a slot, `owner`, whose first `shared` positions hold the same as
// theirs. Tokens that share them stand together; a token that shares nothing has itself as the owner of 0 positions.
struct Places {
  std::vector<int64_t> slots, positions, owners, shared;

  Places(const int64_t* slots_at, const int64_t* positions_at, const int64_t* owners_at, const int64_t* shared_at,
         int64_t n)
      : slots(slots_at, slots_at + n), positions(positions_at, positions_at + n), owners(slots), shared(n, 0) {
    if (owners_at != nullptr) owners.assign(owners_at, owners_at + n);
    if (shared_at != nullptr) shared.assign(shared_at, shared_at + n);
  }

  void keep(const int64_t* wanted, int64_t n) {
    for (std::vector<int64_t>* all : {&slots, &positions, &owners, &shared}) {
      const std::vector<int64_t> before = *all;
      all->resize(n);
      for (int64_t i = 0; i < n; ++i) (*all)[i] = before[wanted[i]];
    }
  }
};

}  // namespace grrm
