// Attention of packed rows: every token sees a prompt and its own segment, and nothing is computed for what it does
// not see. q [B, T, H, D]; k, v [B, T, K, D] with H a multiple of K: query head h reads key head h / (H / K).
//
// Token i of a row sees tokens prompt_begin[i] <= j < prompt_end[i] and own_begin[i] <= j <= i (two ranges that do not
// overlap; the first may be empty). A plain causal row has no prompt range and own_begin 0. own_begin[i] > i is padding:
// it sees nothing, its output and gradients are 0.
#pragma once

#include <cmath>
#include <vector>

#include "simd.h"

namespace grrm {

struct AttentionShape {
  int64_t length, heads, key_heads, width;
};

struct Visible {
  const int32_t* prompt_begin;
  const int32_t* prompt_end;
  const int32_t* own_begin;
};

constexpr int64_t kSlack = 4 * kLanes;  // products run over whole blocks, past the end of a range

GRRM_INLINE int64_t whole_lanes(int64_t n) { return (n + kLanes - 1) / kLanes * kLanes; }

// Queries that see the same tokens go through them together, so that each is fetched once for all of them.
constexpr int kQueries = 4;

// Buffers of one head: rows are [T, D] with D rounded up to whole lanes, columns are [D, T + slack]; weights and pulled
// hold such a row of tokens per query, the others a row of D.
struct HeadBuffers {
  int64_t width, columns_stride;
  std::vector<float> k_rows, k_columns, v_rows, v_columns, dk_rows, dv_rows, weights, pulled, query, grad, result;

  HeadBuffers(int64_t length, int64_t head_width, bool backward)
      : width(whole_lanes(head_width)), columns_stride(length + kSlack) {
    k_rows.resize(length * width);
    v_rows.resize(length * width);
    k_columns.resize(width * columns_stride);
    weights.resize(kQueries * columns_stride);
    query.resize(kQueries * width);
    result.resize(kQueries * width);
    if (backward) {
      v_columns.resize(width * columns_stride);
      dk_rows.resize(length * width);
      dv_rows.resize(length * width);
      pulled.resize(kQueries * columns_stride);
      grad.resize(kQueries * width);
    }
  }
};

GRRM_INLINE void gather_rows(const float* x, int64_t stride, int64_t length, int64_t n, int64_t width, float* rows) {
  for (int64_t t = 0; t < length; ++t)
    for (int64_t d = 0; d < n; ++d) rows[t * width + d] = x[t * stride + d];
}

GRRM_INLINE void transpose_rows(const float* rows, int64_t length, int64_t width, int64_t stride, float* columns) {
  for (int64_t t = 0; t < length; ++t)
    for (int64_t d = 0; d < width; ++d) columns[d * stride + t] = rows[t * width + d];
}

constexpr int64_t kColumns = 2 * kLanes;  // of which the products with a few queries fit into registers

// out[r][j] = scale * sum over d of q[r][d] * columns[d][j], for R queries and kColumns columns.
template <int R>
GRRM_INLINE void dot_block(const float* q, const float* columns, float scale, int64_t stride, int64_t width, float* out,
                           int64_t out_stride) {
  Lanes sums[R][2] = {};
  for (int64_t d = 0; d < width; ++d) {
    Lanes low, high;
    load(columns + d * stride, low);
    load(columns + d * stride + kLanes, high);
    for (int r = 0; r < R; ++r) {
      sums[r][0] += low * q[r * width + d];
      sums[r][1] += high * q[r * width + d];
    }
  }
  for (int r = 0; r < R; ++r) {
    store(sums[r][0] * scale, out + r * out_stride);
    store(sums[r][1] * scale, out + r * out_stride + kLanes);
  }
}

// The same for begin <= j < end, and up to a block further.
template <int R>
GRRM_INLINE void dot_columns(const float* q, const float* columns, float scale, int64_t stride, int64_t width,
                             int64_t begin, int64_t end, float* out) {
  for (int64_t j = begin; j < end; j += kColumns)
    dot_block<R>(q, columns + j, scale, stride, width, out + j, stride);
}

GRRM_INLINE float exponentials(float* x, int64_t begin, int64_t end, float shift) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = begin; j < end; ++j) {
    x[j] = exp_approx(x[j] - shift);
    sum += x[j];
  }
  return sum;
}

// out[r][d] += sum over begin <= j < end of weights[r][j] * rows[j][d], for R queries and N blocks of lanes.
template <int R, int N>
GRRM_INLINE void add_weighted_block(const float* weights, const float* rows, int64_t stride, int64_t width,
                                    int64_t begin, int64_t end, float* out) {
  Lanes sums[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) load(out + r * width + n * kLanes, sums[r][n]);
  for (int64_t j = begin; j < end; ++j) {
    Lanes row[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) load(rows + j * width + n * kLanes, row[n]);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) sums[r][n] += row[n] * weights[r * stride + j];
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r)
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) store(sums[r][n], out + r * width + n * kLanes);
}

template <int R>
GRRM_INLINE void add_weighted_rows(const float* weights, const float* rows, int64_t stride, int64_t width,
                                   int64_t begin, int64_t end, float* out) {
  int64_t d = 0;
  for (; d + 4 * kLanes <= width; d += 4 * kLanes)
    add_weighted_block<R, 4>(weights, rows + d, stride, width, begin, end, out + d);
  for (; d < width; d += kLanes) add_weighted_block<R, 1>(weights, rows + d, stride, width, begin, end, out + d);
}

// rows[j][d] += sum over r of weights[r][j] * x[r][d] for begin <= j < end, for R queries and N blocks of lanes.
template <int R, int N>
GRRM_INLINE void add_outer_block(const float* weights, const float* x, int64_t stride, int64_t width, int64_t begin,
                                 int64_t end, float* rows) {
  Lanes kept[R][N];
  for (int r = 0; r < R; ++r)
    for (int n = 0; n < N; ++n) load(x + r * width + n * kLanes, kept[r][n]);
  for (int64_t j = begin; j < end; ++j) {
    for (int n = 0; n < N; ++n) {
      Lanes row;
      float* place = rows + j * width + n * kLanes;
      load(place, row);
      for (int r = 0; r < R; ++r) row += kept[r][n] * weights[r * stride + j];
      store(row, place);
    }
  }
}

template <int R>
GRRM_INLINE void add_outer(const float* weights, const float* x, int64_t stride, int64_t width, int64_t begin,
                           int64_t end, float* rows) {
  int64_t d = 0;
  for (; d + 3 * kLanes <= width; d += 3 * kLanes)
    add_outer_block<R, 3>(weights, x + d, stride, width, begin, end, rows + d);
  for (; d < width; d += kLanes) add_outer_block<R, 1>(weights, x + d, stride, width, begin, end, rows + d);
}

// What query i of a row sees; R queries from i on see the same but for their own ends.
struct Ranges {
  int64_t prompt_begin, prompt_end, own_begin;

  Ranges(const Visible& visible, int64_t token)
      : prompt_begin(visible.prompt_begin[token]),
        prompt_end(visible.prompt_end[token]),
        own_begin(visible.own_begin[token]) {}

  bool operator==(const Ranges& other) const {
    return prompt_begin == other.prompt_begin && prompt_end == other.prompt_end && own_begin == other.own_begin;
  }
};

GRRM_INLINE bool block_at(const Visible& visible, int64_t row_start, int64_t i, int64_t length) {
  if (i + kQueries > length) return false;
  const Ranges first(visible, row_start + i);
  for (int r = 1; r < kQueries; ++r)
    if (!(Ranges(visible, row_start + i + r) == first)) return false;
  return first.own_begin <= i;
}

GRRM_INLINE void copy_queries(const float* from, int64_t step, int64_t n, int64_t width, int count, float* to) {
  for (int r = 0; r < count; ++r)
    for (int64_t d = 0; d < n; ++d) to[r * width + d] = from[r * step + d];
}

template <int R>
GRRM_INLINE void attend(const AttentionShape& s, const Ranges& see, const float* q, float* out, float* lse, int64_t b,
                        int64_t h, int64_t i, float scale, HeadBuffers& head) {
  const int64_t T = s.length, D = s.width, W = head.width, stride = head.columns_stride, step = s.heads * D;
  const int64_t place = ((b * T + i) * s.heads + h) * D, end = i + R;
  float *weights = head.weights.data(), *query = head.query.data(), *result = head.result.data();
  copy_queries(q + place, step, D, W, R, query);
  // The own range last: a block of the first may reach into it.
  dot_columns<R>(query, head.k_columns.data(), scale, stride, W, see.prompt_begin, see.prompt_end, weights);
  dot_columns<R>(query, head.k_columns.data(), scale, stride, W, see.own_begin, end, weights);
  float sums[R];
  for (int r = 0; r < R; ++r) {
    float* w = weights + r * stride;
    const int64_t own_end = i + r + 1;
    const float top = largest(w, see.own_begin, own_end, largest(w, see.prompt_begin, see.prompt_end, -3e38f));
    sums[r] = exponentials(w, see.prompt_begin, see.prompt_end, top) + exponentials(w, see.own_begin, own_end, top);
    for (int64_t j = own_end; j < end; ++j) w[j] = 0.0f;
    lse[(b * s.heads + h) * T + i + r] = top + std::log(sums[r]);
  }
  for (int64_t d = 0; d < R * W; ++d) result[d] = 0.0f;
  add_weighted_rows<R>(weights, head.v_rows.data(), stride, W, see.prompt_begin, see.prompt_end, result);
  add_weighted_rows<R>(weights, head.v_rows.data(), stride, W, see.own_begin, end, result);
  for (int r = 0; r < R; ++r)
    for (int64_t d = 0; d < D; ++d) out[place + r * step + d] = result[r * W + d] / sums[r];
}

// All query heads of one key head of one row. `lse` [B, H, T] is kept for the backward pass.
GRRM_CLONES
static void attention_head(const AttentionShape& s, const Visible& visible, const float* q, const float* k,
                           const float* v, float* out, float* lse, int64_t b, int64_t key_head, HeadBuffers& head) {
  const int64_t T = s.length, D = s.width, W = head.width, group = s.heads / s.key_heads;
  const int64_t first = (b * T * s.key_heads + key_head) * D, stride = s.key_heads * D;
  gather_rows(k + first, stride, T, D, W, head.k_rows.data());
  gather_rows(v + first, stride, T, D, W, head.v_rows.data());
  transpose_rows(head.k_rows.data(), T, W, head.columns_stride, head.k_columns.data());
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  for (int64_t h = key_head * group; h < (key_head + 1) * group; ++h) {
    for (int64_t i = 0; i < T;) {
      const Ranges see(visible, b * T + i);
      if (block_at(visible, b * T, i, T)) {
        attend<kQueries>(s, see, q, out, lse, b, h, i, scale, head);
        i += kQueries;
        continue;
      }
      if (see.own_begin <= i) {
        attend<1>(s, see, q, out, lse, b, h, i, scale, head);
      } else {
        for (int64_t d = 0; d < D; ++d) out[((b * T + i) * s.heads + h) * D + d] = 0.0f;
        lse[(b * s.heads + h) * T + i] = 0.0f;
      }
      ++i;
    }
  }
}

template <int R>
GRRM_INLINE void pull_back(const AttentionShape& s, const Ranges& see, const float* q, const float* out,
                           const float* lse, const float* grad, float* dq, int64_t b, int64_t h, int64_t i, float scale,
                           HeadBuffers& head) {
  const int64_t T = s.length, D = s.width, W = head.width, stride = head.columns_stride, step = s.heads * D;
  const int64_t place = ((b * T + i) * s.heads + h) * D;
  float *weights = head.weights.data(), *pulled = head.pulled.data(), *query = head.query.data();
  float *pull = head.grad.data(), *result = head.result.data();
  copy_queries(q + place, step, D, W, R, query);
  copy_queries(grad + place, step, D, W, R, pull);
  float delta[R];
  for (int r = 0; r < R; ++r) {
    delta[r] = 0.0f;
    for (int64_t d = 0; d < D; ++d) delta[r] += pull[r * W + d] * out[place + r * step + d];
  }
  for (int64_t d = 0; d < R * W; ++d) result[d] = 0.0f;
  for (int part = 0; part < 2; ++part) {
    const int64_t begin = part ? see.own_begin : see.prompt_begin, end = part ? i + R : see.prompt_end;
    dot_columns<R>(query, head.k_columns.data(), scale, stride, W, begin, end, weights);
    dot_columns<R>(pull, head.v_columns.data(), 1.0f, stride, W, begin, end, pulled);
    for (int r = 0; r < R; ++r) {
      const int64_t last = part ? i + r + 1 : end;
      exponentials(weights + r * stride, begin, last, lse[(b * s.heads + h) * T + i + r]);
      for (int64_t j = last; j < end; ++j) weights[r * stride + j] = 0.0f;
    }
    add_outer<R>(weights, pull, stride, W, begin, end, head.dv_rows.data());
    for (int r = 0; r < R; ++r) {
      float *w = weights + r * stride, *p = pulled + r * stride;
#pragma omp simd
      for (int64_t j = begin; j < end; ++j) w[j] *= (p[j] - delta[r]) * scale;
    }
    add_outer<R>(weights, query, stride, W, begin, end, head.dk_rows.data());
    add_weighted_rows<R>(weights, head.k_rows.data(), stride, W, begin, end, result);
  }
  for (int r = 0; r < R; ++r)
    for (int64_t d = 0; d < D; ++d) dq[place + r * step + d] = result[r * W + d];
}

// With p the weights and g the gradient of the output: dv = p^T g; ds = p * (g v^T - sum(g * out)); dq = ds k / sqrt(D);
// dk = ds^T q / sqrt(D).
GRRM_CLONES
static void attention_backward_head(const AttentionShape& s, const Visible& visible, const float* q, const float* k,
                                    const float* v, const float* out, const float* lse, const float* grad, float* dq,
                                    float* dk, float* dv, int64_t b, int64_t key_head, HeadBuffers& head) {
  const int64_t T = s.length, D = s.width, W = head.width, group = s.heads / s.key_heads;
  const int64_t first = (b * T * s.key_heads + key_head) * D, stride = s.key_heads * D;
  gather_rows(k + first, stride, T, D, W, head.k_rows.data());
  gather_rows(v + first, stride, T, D, W, head.v_rows.data());
  transpose_rows(head.k_rows.data(), T, W, head.columns_stride, head.k_columns.data());
  transpose_rows(head.v_rows.data(), T, W, head.columns_stride, head.v_columns.data());
  float *dk_rows = head.dk_rows.data(), *dv_rows = head.dv_rows.data();
  for (int64_t i = 0; i < T * W; ++i) dk_rows[i] = dv_rows[i] = 0.0f;
  const float scale = 1.0f / std::sqrt(static_cast<float>(D));
  for (int64_t h = key_head * group; h < (key_head + 1) * group; ++h) {
    for (int64_t i = 0; i < T;) {
      const Ranges see(visible, b * T + i);
      if (block_at(visible, b * T, i, T)) {
        pull_back<kQueries>(s, see, q, out, lse, grad, dq, b, h, i, scale, head);
        i += kQueries;
        continue;
      }
      if (see.own_begin <= i) {
        pull_back<1>(s, see, q, out, lse, grad, dq, b, h, i, scale, head);
      } else {
        for (int64_t d = 0; d < D; ++d) dq[((b * T + i) * s.heads + h) * D + d] = 0.0f;
      }
      ++i;
    }
  }
  for (int64_t t = 0; t < T; ++t) {
    const int64_t place = first + t * stride;
    for (int64_t d = 0; d < D; ++d) {
      dk[place + d] = dk_rows[t * W + d];
      dv[place + d] = dv_rows[t * W + d];
    }
  }
}

}  // namespace grrm
