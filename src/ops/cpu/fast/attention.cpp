// Fast row of attention: tiles of queries by matrix products, or plain vector loops for short
// sequences.
#include <cmath>

#include "ops/cpu/fast/gemm.h"
#include "ops/cpu/fast/rows.h"
#include "ops/cpu/fast/vector_math.h"

namespace vitrine::fast::VITRINE_ISA {
namespace {

using Gradients = std::span<const GradView>;
using Views = std::span<const TensorView>;

constexpr int64_t kTile = 64;   // queries of a tile
constexpr int64_t kShort = 16;  // up to this length no matrix products are called

struct Geometry {
  int64_t heads, kv_heads, d, block;
  bool causal;
  AxisRows rows;
  float scale;

  Geometry(const Attrs& attrs, const Shape& qkv)
      : heads(attrs.integer("heads")),
        kv_heads(attrs.integer("kv_heads")),
        d(attrs.integer("head_dim")),
        block(attrs.integer("causal_block", 1)),
        causal(attrs.integer("causal") == 1),
        rows(qkv, attrs.integer("axis")),
        scale(static_cast<float>(1 / std::sqrt(static_cast<double>(d)))) {}

  int64_t length() const { return rows.length; }
  int64_t queries_per_key() const { return heads / kv_heads; }
  int64_t qkv_stride() const {
    return rows.inner * (heads + 2 * kv_heads) * d;
  }  // between positions
  int64_t out_stride() const { return rows.inner * heads * d; }
  int64_t query(int64_t g, int64_t h) const {
    return rows.row(g, 0) * (heads + 2 * kv_heads) * d + h * d;
  }
  int64_t key(int64_t g, int64_t kv) const { return query(g, heads + kv); }
  int64_t value(int64_t g, int64_t kv) const { return query(g, heads + kv_heads + kv); }
  int64_t out(int64_t g, int64_t h) const { return (rows.row(g, 0) * heads + h) * d; }
  int64_t lse(int64_t g, int64_t h) const { return (g * heads + h) * length(); }
  int64_t limit(int64_t i) const {
    return causal ? std::min(length(), (i / block + 1) * block) : length();
  }
};

// Vectors of one head: `count` rows of d, `stride` apart.
struct Rows {
  const float* data;
  int64_t stride;
};

// In place when f32, else widened into scratch.
Rows head_rows(const TensorView& view,
               int64_t offset,
               int64_t stride,
               int64_t count,
               int64_t d,
               Scratch where) {
  if (view.dtype == DType::kF32) return {view.as<float>() + offset, stride};
  float* copy = scratch(where, count * d);
  for (int64_t i = 0; i < count; ++i)
    widen(view.dtype, view.data, offset + i * stride, d, copy + i * d);
  return {copy, d};
}

// Where one head's results are computed: in place when f32, else in scratch until finish().
struct HeadTarget {
  GradView to;
  int64_t offset, place_stride, d;
  float* data;
  int64_t stride;

  HeadTarget(const GradView& gradient,
             int64_t offset_,
             int64_t stride_,
             int64_t count,
             int64_t d_,
             Scratch where)
      : to(gradient), offset(offset_), place_stride(stride_), d(d_) {
    const bool direct = gradient.view.dtype == DType::kF32;
    data = direct ? gradient.view.as<float>() + offset : scratch(where, count * d);
    stride = direct ? place_stride : d;
  }
  bool direct() const { return to.view.dtype == DType::kF32; }
  // The factor of what is there already at the first product.
  float first_beta() const { return direct() && to.accumulate ? 1.0f : 0.0f; }
  void finish(int64_t count) const {
    if (direct()) return;
    for (int64_t i = 0; i < count; ++i) {
      narrow(
          to.view.dtype, to.view.data, offset + i * place_stride, d, data + i * d, to.accumulate);
    }
  }
};

float dot(const float* a, const float* b, int64_t d) {
  float sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t c = 0; c < d; ++c) sum += a[c] * b[c];
  return sum;
}

void add_scaled(float* y, float factor, const float* x, int64_t d) {
#pragma omp simd
  for (int64_t c = 0; c < d; ++c) y[c] += factor * x[c];
}

// A row of scores becomes exp(score - max), 0 beyond `limit`; gives the sum and lse.
float exponentiate(float* score, int64_t limit, int64_t width, float* lse) {
  float highest = score[0], sum = 0;
#pragma omp simd reduction(max : highest)
  for (int64_t j = 0; j < limit; ++j) highest = score[j] > highest ? score[j] : highest;
#pragma omp simd reduction(+ : sum)
  for (int64_t j = 0; j < limit; ++j) {
    score[j] = vexp(score[j] - highest);
    sum += score[j];
  }
  for (int64_t j = limit; j < width; ++j) score[j] = 0;
  *lse = highest + std::log(sum);
  return sum;
}

void forward_tiles(const Geometry& at, const OpCall& call, int64_t g, int64_t h) {
  const int64_t length = at.length(), d = at.d, kv = h / at.queries_per_key(),
                stride = at.qkv_stride();
  const Rows k = head_rows(call.in[0], at.key(g, kv), stride, length, d, Scratch::kTileA);
  const Rows v = head_rows(call.in[0], at.value(g, kv), stride, length, d, Scratch::kTileB);
  float* lse = call.saved[0].as<float>() + at.lse(g, h);
  for (int64_t first = 0; first < length; first += kTile) {
    const int64_t count = std::min(kTile, length - first), width = at.limit(first + count - 1);
    const Rows q =
        head_rows(call.in[0], at.query(g, h) + first * stride, stride, count, d, Scratch::kTileC);
    float* score = scratch(Scratch::kTileD, count * width);
    sgemm(false,
          true,
          count,
          width,
          d,
          at.scale,
          q.data,
          q.stride,
          k.data,
          k.stride,
          0,
          score,
          width);
    float sums[kTile];
    for (int64_t i = 0; i < count; ++i) {
      sums[i] = exponentiate(score + i * width, at.limit(first + i), width, lse + first + i);
    }
    const HeadTarget out({call.out[0], false},
                         at.out(g, h) + first * at.out_stride(),
                         at.out_stride(),
                         count,
                         d,
                         Scratch::kTileE);
    sgemm(
        false, false, count, d, width, 1, score, width, v.data, v.stride, 0, out.data, out.stride);
    for (int64_t i = 0; i < count; ++i) {
      float* row = out.data + i * out.stride;
      const float inverse = 1 / sums[i];
#pragma omp simd
      for (int64_t c = 0; c < d; ++c) row[c] *= inverse;
    }
    out.finish(count);
  }
}

void forward_short(const Geometry& at, const OpCall& call, int64_t g, int64_t h) {
  const int64_t length = at.length(), d = at.d, kv = h / at.queries_per_key(),
                stride = at.qkv_stride();
  const Rows q = head_rows(call.in[0], at.query(g, h), stride, length, d, Scratch::kTileC);
  const Rows k = head_rows(call.in[0], at.key(g, kv), stride, length, d, Scratch::kTileA);
  const Rows v = head_rows(call.in[0], at.value(g, kv), stride, length, d, Scratch::kTileB);
  const HeadTarget out(
      {call.out[0], false}, at.out(g, h), at.out_stride(), length, d, Scratch::kTileE);
  float* lse = call.saved[0].as<float>() + at.lse(g, h);
  for (int64_t i = 0; i < length; ++i) {
    float score[kShort];
    const int64_t limit = at.limit(i);
    for (int64_t j = 0; j < limit; ++j)
      score[j] = at.scale * dot(q.data + i * q.stride, k.data + j * k.stride, d);
    const float inverse = 1 / exponentiate(score, limit, limit, lse + i);
    float* row = out.data + i * out.stride;
    for (int64_t c = 0; c < d; ++c) row[c] = 0;
    for (int64_t j = 0; j < limit; ++j)
      add_scaled(row, score[j] * inverse, v.data + j * v.stride, d);
  }
  out.finish(length);
}

void attention_forward(const OpCall& call) {
  const Geometry at(*call.attrs, call.in[0].shape);
  const bool is_short = at.length() <= kShort;
  const int64_t work = at.length() * at.length() * at.d;
  parallel_for(
      at.rows.groups() * at.heads, 1 + 65536 / (work + 1), [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          (is_short ? forward_short : forward_tiles)(at, call, task / at.heads, task % at.heads);
        }
      });
}

// What the backward of one (group, key head) reads and writes.
struct HeadGradients {
  const OpCall& call;
  const TensorView& dy;
  const GradView& dqkv;
};

// Tiles go from the last to the first: the last one sees every key, so its products write dk and dv
// whole.
void backward_tiles(const Geometry& at, const HeadGradients& of, int64_t g, int64_t kv) {
  const int64_t length = at.length(), d = at.d, stride = at.qkv_stride(),
                out_stride = at.out_stride();
  const TensorView& qkv = of.call.in[0];
  const Rows k = head_rows(qkv, at.key(g, kv), stride, length, d, Scratch::kTileA);
  const Rows v = head_rows(qkv, at.value(g, kv), stride, length, d, Scratch::kTileB);
  const HeadTarget dk(of.dqkv, at.key(g, kv), stride, length, d, Scratch::kTileF);
  const HeadTarget dv(of.dqkv, at.value(g, kv), stride, length, d, Scratch::kTileG);
  float beta = dk.first_beta();
  const int64_t first_head = kv * at.queries_per_key();
  for (int64_t h = first_head; h < first_head + at.queries_per_key(); ++h) {
    const float* lse = of.call.saved[0].as<float>() + at.lse(g, h);
    for (int64_t first = (length - 1) / kTile * kTile; first >= 0; first -= kTile) {
      const int64_t count = std::min(kTile, length - first), width = at.limit(first + count - 1);
      const int64_t query = at.query(g, h) + first * stride,
                    out = at.out(g, h) + first * out_stride;
      const Rows q = head_rows(qkv, query, stride, count, d, Scratch::kTileC);
      const Rows dy = head_rows(of.dy, out, out_stride, count, d, Scratch::kTileD);
      const Rows o = head_rows(of.call.out[0], out, out_stride, count, d, Scratch::kTileE);
      float* p = scratch(Scratch::kTileH, 2 * count * width);
      float* ds = p + count * width;
      sgemm(
          false, true, count, width, d, at.scale, q.data, q.stride, k.data, k.stride, 0, p, width);
      sgemm(false, true, count, width, d, 1, dy.data, dy.stride, v.data, v.stride, 0, ds, width);
      for (int64_t i = 0; i < count; ++i) {
        const float row_sum = dot(dy.data + i * dy.stride, o.data + i * o.stride, d),
                    row_lse = lse[first + i];
        const int64_t limit = at.limit(first + i);
        float *p_row = p + i * width, *ds_row = ds + i * width;
#pragma omp simd
        for (int64_t j = 0; j < limit; ++j) {
          p_row[j] = vexp(p_row[j] - row_lse);
          ds_row[j] = at.scale * p_row[j] * (ds_row[j] - row_sum);
        }
        for (int64_t j = limit; j < width; ++j) p_row[j] = ds_row[j] = 0;
      }
      sgemm(
          true, false, width, d, count, 1, p, width, dy.data, dy.stride, beta, dv.data, dv.stride);
      sgemm(true, false, width, d, count, 1, ds, width, q.data, q.stride, beta, dk.data, dk.stride);
      beta = 1;
      const HeadTarget dq(of.dqkv, query, stride, count, d, Scratch::kTileE);
      sgemm(false,
            false,
            count,
            d,
            width,
            1,
            ds,
            width,
            k.data,
            k.stride,
            dq.first_beta(),
            dq.data,
            dq.stride);
      dq.finish(count);
    }
  }
  dk.finish(length);
  dv.finish(length);
}

void clear_unless_added(const HeadTarget& target, int64_t count) {
  if (target.first_beta() == 1.0f) return;
  for (int64_t i = 0; i < count; ++i) {
    for (int64_t c = 0; c < target.d; ++c) target.data[i * target.stride + c] = 0;
  }
}

void backward_short(const Geometry& at, const HeadGradients& of, int64_t g, int64_t kv) {
  const int64_t length = at.length(), d = at.d, stride = at.qkv_stride(),
                out_stride = at.out_stride();
  const TensorView& qkv = of.call.in[0];
  const Rows k = head_rows(qkv, at.key(g, kv), stride, length, d, Scratch::kTileA);
  const Rows v = head_rows(qkv, at.value(g, kv), stride, length, d, Scratch::kTileB);
  const HeadTarget dk(of.dqkv, at.key(g, kv), stride, length, d, Scratch::kTileF);
  const HeadTarget dv(of.dqkv, at.value(g, kv), stride, length, d, Scratch::kTileG);
  clear_unless_added(dk, length);
  clear_unless_added(dv, length);
  const int64_t first_head = kv * at.queries_per_key();
  for (int64_t h = first_head; h < first_head + at.queries_per_key(); ++h) {
    const float* lse = of.call.saved[0].as<float>() + at.lse(g, h);
    const Rows q = head_rows(qkv, at.query(g, h), stride, length, d, Scratch::kTileC);
    const Rows dy = head_rows(of.dy, at.out(g, h), out_stride, length, d, Scratch::kTileD);
    const Rows o = head_rows(of.call.out[0], at.out(g, h), out_stride, length, d, Scratch::kTileE);
    const HeadTarget dq(of.dqkv, at.query(g, h), stride, length, d, Scratch::kTileH);
    clear_unless_added(dq, length);
    for (int64_t i = 0; i < length; ++i) {
      const float *qi = q.data + i * q.stride, *dyi = dy.data + i * dy.stride;
      const float row_sum = dot(dyi, o.data + i * o.stride, d);
      const int64_t limit = at.limit(i);
      float p[kShort], ds[kShort];
      for (int64_t j = 0; j < limit; ++j) {
        p[j] = at.scale * dot(qi, k.data + j * k.stride, d) - lse[i];
        ds[j] = dot(dyi, v.data + j * v.stride, d) - row_sum;
      }
#pragma omp simd
      for (int64_t j = 0; j < limit; ++j) {
        p[j] = vexp(p[j]);
        ds[j] *= at.scale * p[j];
      }
      for (int64_t j = 0; j < limit; ++j) {
        add_scaled(dq.data + i * dq.stride, ds[j], k.data + j * k.stride, d);
        add_scaled(dk.data + j * dk.stride, ds[j], qi, d);
        add_scaled(dv.data + j * dv.stride, p[j], dyi, d);
      }
    }
    dq.finish(length);
  }
  dk.finish(length);
  dv.finish(length);
}

void attention_backward(const OpCall& call, Views dout, Gradients din) {
  const Geometry at(*call.attrs, call.in[0].shape);
  const HeadGradients of{call, dout[0], din[0]};
  const bool is_short = at.length() <= kShort;
  const int64_t work = at.length() * at.length() * at.d * at.queries_per_key();
  parallel_for(
      at.rows.groups() * at.kv_heads, 1 + 32768 / (work + 1), [&](int64_t begin, int64_t end) {
        for (int64_t task = begin; task < end; ++task) {
          (is_short ? backward_short : backward_tiles)(
              at, of, task / at.kv_heads, task % at.kv_heads);
        }
      });
}

}  // namespace

void add_attention(Backend& backend) {
  FastRow<attention_forward, attention_backward>::add(backend, "attention");
}

}  // namespace vitrine::fast::VITRINE_ISA
