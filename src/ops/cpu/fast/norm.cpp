// Fast rows of the normalisations: statistics with the row in cache, weight gradients by partial
// sums.
#include <cmath>

#include "ops/cpu/fast/rotary_table.h"
#include "ops/cpu/fast/rows.h"

namespace vitrine::fast::VITRINE_ISA {
namespace {

using Gradients = std::span<const GradView>;
using Views = std::span<const TensorView>;

struct Statistics {
  float mean, rstd;
};

template <bool Centred>
Statistics statistics_of(const float* x, int64_t width, float eps) {
  const float inverse = 1.0f / static_cast<float>(width);
  float mean = 0, square = 0;
  if constexpr (Centred) {
#pragma omp simd reduction(+ : mean)
    for (int64_t c = 0; c < width; ++c) mean += x[c];
    mean *= inverse;
  }
#pragma omp simd reduction(+ : square)
  for (int64_t c = 0; c < width; ++c) square += (x[c] - mean) * (x[c] - mean);
  return {mean, 1.0f / std::sqrt(square * inverse + eps)};
}

// dx = rstd (g - mean(g) - n mean(g n)) with n = (x - mean) rstd, g = dy weight; see the reference
// row. dx may be dy's or x's own row.
template <bool Centred>
void backward_row(const float* x,
                  const float* weight,
                  const float* dy,
                  Statistics s,
                  int64_t width,
                  float* dx,
                  float* dweight,
                  float* dbias) {
  const float inverse = 1.0f / static_cast<float>(width);
  float g_mean = 0, gn_mean = 0;
#pragma omp simd reduction(+ : g_mean, gn_mean)
  for (int64_t c = 0; c < width; ++c) {
    const float n = (x[c] - s.mean) * s.rstd, g = dy[c] * weight[c];
    if (Centred) g_mean += g;
    gn_mean += g * n;
  }
  g_mean *= inverse;
  gn_mean *= inverse;
#pragma omp simd
  for (int64_t c = 0; c < width; ++c) {
    const float n = (x[c] - s.mean) * s.rstd, d = dy[c];
    dweight[c] += d * n;
    if (Centred) dbias[c] += d;
    dx[c] = s.rstd * (d * weight[c] - g_mean - n * gn_mean);
  }
}

template <bool Pending, bool Centred>
void norm_forward(const OpCall& call) {
  constexpr size_t kWeight = Pending ? 2 : 1;
  const int64_t width = call.in[0].shape[-1], rows = call.in[0].shape.rows();
  const float eps = static_cast<float>(call.attrs->number("eps"));
  const float* weight = read_row(call.in[kWeight], 0, width, Scratch::kParameterA);
  const float* bias =
      Centred ? read_row(call.in[kWeight + 1], 0, width, Scratch::kParameterB) : nullptr;
  const TensorView y_view = call.out[Pending ? 1 : 0];
  float* mean = Centred ? call.saved[0].as<float>() : nullptr;
  float* rstd = call.saved[Centred ? 1 : 0].as<float>();
  parallel_for(rows, grain_rows(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t place = r * width;
      const float* x = read_row(call.in[0], place, width, Scratch::kRowA);
      if constexpr (Pending) {
        const float* delta = read_row(call.in[1], place, width, Scratch::kRowB);
        float* sum = begin_row(call.out[0], place, width, Scratch::kRowC);
#pragma omp simd
        for (int64_t c = 0; c < width; ++c) sum[c] = x[c] + delta[c];
        finish_row(call.out[0], place, width, sum);
        x = read_row(call.out[0], place, width, Scratch::kRowA);  // as it is kept
      }
      const Statistics s = statistics_of<Centred>(x, width, eps);
      float* y = begin_row(y_view, place, width, Scratch::kRowD);
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) {
        const float n = (x[c] - s.mean) * s.rstd * weight[c];
        y[c] = Centred ? n + bias[c] : n;
      }
      finish_row(y_view, place, width, y);
      if (Centred) mean[r] = s.mean;
      rstd[r] = s.rstd;
    }
  });
}

template <bool Pending, bool Centred>
void norm_backward(const OpCall& call, Views dout, Gradients din) {
  constexpr size_t kWeight = Pending ? 2 : 1;
  const TensorView x_view = Pending ? call.out[0] : call.in[0], dy_view = dout[Pending ? 1 : 0];
  const TensorView dsum_view = Pending ? dout[0] : TensorView{};
  const int64_t width = x_view.shape[-1], rows = x_view.shape.rows();
  const float* weight = read_row(call.in[kWeight], 0, width, Scratch::kParameterA);
  const float* mean = Centred ? call.saved[0].as<float>() : nullptr;
  const float* rstd = call.saved[Centred ? 1 : 0].as<float>();
  const GradView dx_view = operand(din, 0), ddelta = Pending ? operand(din, 1) : GradView{};
  const float* sums =
      sum_parts(rows, 2 * width, grain_rows(width), [&](int64_t begin, int64_t end, float* sum) {
        float* dx = scratch(Scratch::kRowC, width);
        for (int64_t r = begin; r < end; ++r) {
          const int64_t place = r * width;
          if (dy_view) {
            const float* x = read_row(x_view, place, width, Scratch::kRowA);
            const float* dy = read_row(dy_view, place, width, Scratch::kRowB);
            backward_row<Centred>(
                x, weight, dy, {Centred ? mean[r] : 0.0f, rstd[r]}, width, dx, sum, sum + width);
          } else {
            for (int64_t c = 0; c < width; ++c) dx[c] = 0;
          }
          if (dsum_view) {
            const float* dsum = read_row(dsum_view, place, width, Scratch::kRowD);
#pragma omp simd
            for (int64_t c = 0; c < width; ++c) dx[c] += dsum[c];
          }
          for (const GradView& to : {dx_view, ddelta}) {
            if (to) narrow(to.view.dtype, to.view.data, place, width, dx, to.accumulate);
          }
        }
      });
  store_sums(operand(din, kWeight), sums);
  if (Centred) store_sums(operand(din, kWeight + 1), sums + width);
}

struct QkHeads {
  int64_t heads, normed, d, width;
  explicit QkHeads(const Attrs& attrs)
      : heads(attrs.integer("heads")),
        normed(heads + attrs.integer("kv_heads")),
        d(attrs.integer("head_dim")),
        width((normed + attrs.integer("kv_heads")) * d) {}
};

// Turns the normed heads of rows to their positions, or back; nothing without a base.
class HeadTurn {
 public:
  HeadTurn(const Attrs& attrs, const Shape& shape, const QkHeads& heads) : h_(heads) {
    if (!attrs.has("base")) return;
    const AxisRows axis(shape, attrs.integer("axis"));
    inner_ = axis.inner;
    length_ = axis.length;
    table_ = rotary_table(axis.length, h_.d / 2, attrs.number("base"));
  }
  explicit operator bool() const { return table_.cosine != nullptr; }
  // `to` may be `from`.
  void operator()(const float* from, int64_t row, float sign, float* to) const {
    const int64_t half = h_.d / 2, position = row / inner_ % length_;
    const float* cosine = table_.cosine + position * half;
    const float* sine = table_.sine + position * half;
    for (int64_t i = 0; i < h_.normed; ++i) {
      const float *a = from + i * h_.d, *b = a + half;
      float *ya = to + i * h_.d, *yb = ya + half;
#pragma omp simd
      for (int64_t c = 0; c < half; ++c) {
        const float first = a[c], second = b[c], s = sign * sine[c];
        ya[c] = first * cosine[c] - second * s;
        yb[c] = second * cosine[c] + first * s;
      }
    }
  }

 private:
  QkHeads h_;
  int64_t inner_ = 1, length_ = 1;
  RotaryTable table_{};
};

void qk_norm_forward(const OpCall& call) {
  const QkHeads h(*call.attrs);
  const float eps = static_cast<float>(call.attrs->number("eps"));
  const float* wq = read_row(call.in[1], 0, h.d, Scratch::kParameterA);
  const float* wk = read_row(call.in[2], 0, h.d, Scratch::kParameterB);
  float* rstd = call.saved[0].as<float>();
  const HeadTurn turn(*call.attrs, call.in[0].shape, h);
  parallel_for(call.in[0].shape.rows(), grain_rows(h.width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* x = read_row(call.in[0], r * h.width, h.width, Scratch::kRowA);
      float* y = begin_row(call.out[0], r * h.width, h.width, Scratch::kRowB);
      for (int64_t i = 0; i < h.normed; ++i) {
        const float *head = x + i * h.d, *weight = i < h.heads ? wq : wk;
        const float scale = statistics_of<false>(head, h.d, eps).rstd;
#pragma omp simd
        for (int64_t c = 0; c < h.d; ++c) y[i * h.d + c] = head[c] * scale * weight[c];
        rstd[r * h.normed + i] = scale;
      }
      if (turn) turn(y, r, 1, y);
      for (int64_t c = h.normed * h.d; c < h.width; ++c) y[c] = x[c];
      finish_row(call.out[0], r * h.width, h.width, y);
    }
  });
}

void qk_norm_backward(const OpCall& call, Views dout, Gradients din) {
  const QkHeads h(*call.attrs);
  const float* wq = read_row(call.in[1], 0, h.d, Scratch::kParameterA);
  const float* wk = read_row(call.in[2], 0, h.d, Scratch::kParameterB);
  const float* rstd = call.saved[0].as<float>();
  const GradView to = operand(din, 0);
  const HeadTurn turn(*call.attrs, call.in[0].shape, h);
  const float* sums =
      sum_parts(call.in[0].shape.rows(),
                2 * h.d,
                grain_rows(h.width),
                [&](int64_t begin, int64_t end, float* sum) {
                  float* dx = scratch(Scratch::kRowC, h.width);
                  for (int64_t r = begin; r < end; ++r) {
                    const float* x = read_row(call.in[0], r * h.width, h.width, Scratch::kRowA);
                    const float* dy = read_row(dout[0], r * h.width, h.width, Scratch::kRowB);
                    // Values have no turn; backward_row() takes dy in dx's place.
                    const float* back = dy;
                    if (turn) {
                      turn(dy, r, -1, dx);
                      back = dx;
                    }
                    for (int64_t i = 0; i < h.normed; ++i) {
                      const bool query = i < h.heads;
                      const int64_t head = i * h.d;
                      backward_row<false>(x + head,
                                          query ? wq : wk,
                                          back + head,
                                          {0, rstd[r * h.normed + i]},
                                          h.d,
                                          dx + head,
                                          query ? sum : sum + h.d,
                                          nullptr);
                    }
                    for (int64_t c = h.normed * h.d; c < h.width; ++c) dx[c] = dy[c];
                    if (to)
                      narrow(to.view.dtype, to.view.data, r * h.width, h.width, dx, to.accumulate);
                  }
                });
  store_sums(operand(din, 1), sums);
  store_sums(operand(din, 2), sums + h.d);
}

}  // namespace

void add_norm(Backend& backend) {
  FastRow<norm_forward<false, false>, norm_backward<false, false>>::add(backend, "rms_norm");
  FastRow<norm_forward<true, false>, norm_backward<true, false>>::add(backend, "add_rms_norm");
  FastRow<norm_forward<false, true>, norm_backward<false, true>>::add(backend, "layer_norm");
  FastRow<norm_forward<true, true>, norm_backward<true, true>>::add(backend, "add_layer_norm");
  FastRow<qk_norm_forward, qk_norm_backward>::add(backend, "qk_norm");
}

}  // namespace vitrine::fast::VITRINE_ISA
