// A cache of keys and values of sequences that grow by a token at a time, in blocks of kCacheBlock positions.
//
// A table says for each slot which blocks hold its positions; slots that begin alike may have blocks in common. A block
// holds, for each key head, the keys as columns, [D, kColumns] of them one after the other, and the values as rows
// [kCacheBlock, W]: scores of neighbouring positions are then neighbouring products, no sum runs across a register, and
// memory is read in the order in which it lies. W is D rounded up to whole lanes; what lies beyond is never read into a
// result.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "attention.h"
#include "simd.h"

namespace grrm {

constexpr int64_t kCacheBlock = 64;
static_assert(kCacheBlock % kColumns == 0, "columns of a block are whole");

// `row` blocks at most hold a slot's positions.
struct CacheShape {
  int64_t blocks, key_heads, width, row;

  int64_t stride() const { return row * kCacheBlock; }
  int64_t value_width() const { return whole_lanes(width); }
  int64_t keys_per_block() const { return key_heads * width * kCacheBlock; }
  int64_t values_per_block() const { return key_heads * kCacheBlock * value_width(); }
  int64_t keys_per_layer() const { return blocks * keys_per_block(); }
  int64_t values_per_layer() const { return blocks * values_per_block(); }
};

// One layer's part of the cache; `table` [slots, row] are numbers of blocks.
struct CacheLayer {
  const CacheShape& shape;
  const int32_t* table;
  float* keys;
  float* values;

  int64_t block(int64_t slot, int64_t position) const { return table[slot * shape.row + position / kCacheBlock]; }

  // The columns that begin with `position`, a multiple of kColumns.
  float* key_columns(int64_t slot, int64_t head, int64_t position) const {
    const int64_t within = head * kCacheBlock + position % kCacheBlock;
    return keys + block(slot, position) * shape.keys_per_block() + within * shape.width;
  }
  // The rows of the block that `position` is in.
  float* value_rows(int64_t slot, int64_t head, int64_t position) const {
    return values + block(slot, position) * shape.values_per_block() + head * kCacheBlock * shape.value_width();
  }
};

// Puts key and value [K, D] of one token into its slot.
GRRM_CLONES
static void cache_token(const CacheLayer& cache, const float* key, const float* value, int64_t slot, int64_t position) {
  const CacheShape& s = cache.shape;
  const int64_t W = s.value_width(), within = position % kColumns;
  for (int64_t head = 0; head < s.key_heads; ++head) {
    float* column = cache.key_columns(slot, head, position - within) + within;
    float* row = cache.value_rows(slot, head, position) + position % kCacheBlock * W;
    for (int64_t d = 0; d < s.width; ++d) column[d * kColumns] = key[head * s.width + d];
    for (int64_t d = 0; d < s.width; ++d) row[d] = value[head * s.width + d];
    for (int64_t d = s.width; d < W; ++d) row[d] = 0.0f;
  }
}

// One layer's block `from`, copied to another.
inline void copy_block(const CacheLayer& cache, int64_t from, int64_t to) {
  const int64_t n_keys = cache.shape.keys_per_block(), n_values = cache.shape.values_per_block();
  std::memcpy(cache.keys + to * n_keys, cache.keys + from * n_keys, n_keys * sizeof(float));
  std::memcpy(cache.values + to * n_values, cache.values + from * n_values, n_values * sizeof(float));
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
