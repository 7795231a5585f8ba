// Reference rows of attention over packed heads and of rotary positions.
#include <algorithm>
#include <cmath>

#include "ops/cpu/reference/values.h"

namespace vitrine::reference {
namespace {

using Gradients = std::span<const GradView>;
using Views = std::span<const TensorView>;

// Where each head's vectors lie in qkv[..., (H + 2 G) d] and out[..., H d], and what each query
// sees.
struct Geometry {
  int64_t heads, kv_heads, d, block;
  bool causal;
  AxisRows rows;

  Geometry(const Attrs& attrs, const Shape& qkv)
      : heads(attrs.integer("heads")),
        kv_heads(attrs.integer("kv_heads")),
        d(attrs.integer("head_dim")),
        block(attrs.integer("causal_block", 1)),
        causal(attrs.integer("causal") == 1),
        rows(qkv, attrs.integer("axis")) {}

  int64_t width() const { return (heads + 2 * kv_heads) * d; }
  size_t query(int64_t g, int64_t h, int64_t i) const {
    return at(rows.row(g, i) * width() + h * d);
  }
  size_t key(int64_t g, int64_t h, int64_t i) const {
    return at(rows.row(g, i) * width() + (heads + h / (heads / kv_heads)) * d);
  }
  size_t value(int64_t g, int64_t h, int64_t i) const { return key(g, h, i) + at(kv_heads * d); }
  size_t out(int64_t g, int64_t h, int64_t i) const { return at((rows.row(g, i) * heads + h) * d); }
  size_t lse(int64_t g, int64_t h, int64_t i) const {
    return at((g * heads + h) * rows.length + i);
  }
  // Keys [0, limit) are seen by query i.
  int64_t limit(int64_t i) const {
    return causal ? std::min(rows.length, (i / block + 1) * block) : rows.length;
  }
  double scale() const { return 1 / std::sqrt(static_cast<double>(d)); }
};

double dot(const Values& a, size_t i, const Values& b, size_t j, int64_t d) {
  double sum = 0;
  for (size_t c = 0; c < at(d); ++c) sum += a[i + c] * b[j + c];
  return sum;
}

void attention_forward(const OpCall& call) {
  const Geometry geometry(*call.attrs, call.in[0].shape);
  const Values x = load(call.in[0]);
  Values out = zeros(call.out[0].elements()), lse = zeros(call.saved[0].elements());
  Values score = zeros(geometry.rows.length);
  for (int64_t g = 0; g < geometry.rows.groups(); ++g) {
    for (int64_t h = 0; h < geometry.heads; ++h) {
      for (int64_t i = 0; i < geometry.rows.length; ++i) {
        const int64_t limit = geometry.limit(i);
        double highest = -INFINITY, sum = 0;
        for (int64_t j = 0; j < limit; ++j) {
          score[at(j)] = geometry.scale() *
                         dot(x, geometry.query(g, h, i), x, geometry.key(g, h, j), geometry.d);
          highest = std::max(highest, score[at(j)]);
        }
        for (int64_t j = 0; j < limit; ++j) sum += std::exp(score[at(j)] - highest);
        lse[geometry.lse(g, h, i)] = highest + std::log(sum);
        for (int64_t j = 0; j < limit; ++j) {
          const double p = std::exp(score[at(j)] - highest) / sum;
          for (size_t c = 0; c < at(geometry.d); ++c)
            out[geometry.out(g, h, i) + c] += p * x[geometry.value(g, h, j) + c];
        }
      }
    }
  }
  store(call.out[0], out);
  store(call.saved[0], lse);
}

// p = exp(score - lse), dp = dO v, ds = p (dp - sum dO O).
void attention_backward(const OpCall& call, Views dout, Gradients din) {
  const Geometry geometry(*call.attrs, call.in[0].shape);
  const Values x = load(call.in[0]), out = load(call.out[0]), lse = load(call.saved[0]),
               dy = load(dout[0]);
  Values dx = zeros(call.in[0].elements());
  for (int64_t g = 0; g < geometry.rows.groups(); ++g) {
    for (int64_t h = 0; h < geometry.heads; ++h) {
      for (int64_t i = 0; i < geometry.rows.length; ++i) {
        const size_t q = geometry.query(g, h, i), o = geometry.out(g, h, i);
        const double row_sum = dot(dy, o, out, o, geometry.d);
        for (int64_t j = 0; j < geometry.limit(i); ++j) {
          const size_t k = geometry.key(g, h, j), v = geometry.value(g, h, j);
          const double p =
              std::exp(geometry.scale() * dot(x, q, x, k, geometry.d) - lse[geometry.lse(g, h, i)]);
          const double ds = geometry.scale() * p * (dot(dy, o, x, v, geometry.d) - row_sum);
          for (size_t c = 0; c < at(geometry.d); ++c) {
            dx[q + c] += ds * x[k + c];
            dx[k + c] += ds * x[q + c];
            dx[v + c] += p * dy[o + c];
          }
        }
      }
    }
  }
  store_gradient(operand(din, 0), dx);
}

Values rotate(const Values& x, const Shape& shape, const Attrs& attrs, double sign) {
  return turned(x,
                shape,
                attrs.integer("axis"),
                attrs.integer("heads"),
                attrs.integer("head_dim"),
                attrs.number("base"),
                sign);
}

void rotary_forward(const OpCall& call) {
  store(call.out[0], rotate(load(call.in[0]), call.in[0].shape, *call.attrs, 1));
}

// A rotation's transpose is the rotation back.
void rotary_backward(const OpCall& call, Views dout, Gradients din) {
  store_gradient(operand(din, 0), rotate(load(dout[0]), dout[0].shape, *call.attrs, -1));
}

}  // namespace

Values turned(const Values& x,
              const Shape& shape,
              int64_t axis,
              int64_t heads,
              int64_t head_dim,
              double base,
              double sign) {
  const int64_t half = head_dim / 2, width = shape[-1];
  const AxisRows rows(shape, axis);
  Values y = x;
  for (int64_t p = 0; p < rows.length; ++p) {
    for (int64_t c = 0; c < half; ++c) {
      const double frequency = std::pow(base, -static_cast<double>(c) / static_cast<double>(half));
      const double cosine = std::cos(static_cast<double>(p) * frequency);
      const double sine = sign * std::sin(static_cast<double>(p) * frequency);
      for (int64_t g = 0; g < rows.groups(); ++g) {
        for (int64_t h = 0; h < heads; ++h) {
          const size_t first = at(rows.row(g, p) * width + h * 2 * half + c),
                       second = first + at(half);
          y[first] = x[first] * cosine - x[second] * sine;
          y[second] = x[second] * cosine + x[first] * sine;
        }
      }
    }
  }
  return y;
}

void add_attention(Backend& backend) {
  backend.add("attention", {attention_forward, guarded<attention_backward>});
  backend.add("rotary", {rotary_forward, guarded<rotary_backward>});
}

}  // namespace vitrine::reference
