// Reference rows of the normalisations.
#include <cmath>

#include "ops/cpu/reference/values.h"

namespace vitrine::reference {
namespace {

using Gradients = std::span<const GradView>;
using Views = std::span<const TensorView>;

// y = (x - mean) rstd weight + bias over `width` values; rms_norm has mean 0 and no bias.
struct Statistics {
  double mean, rstd;
};

Statistics statistics_of(const double* x, int64_t width, double eps, bool centred) {
  double mean = 0, square = 0;
  if (centred) {
    for (int64_t c = 0; c < width; ++c) mean += x[c] / static_cast<double>(width);
  }
  for (int64_t c = 0; c < width; ++c)
    square += (x[c] - mean) * (x[c] - mean) / static_cast<double>(width);
  return {mean, 1 / std::sqrt(square + eps)};
}

void normalise(const double* x, const double* weight, Statistics s, int64_t width, double* y) {
  for (int64_t c = 0; c < width; ++c) y[c] = (x[c] - s.mean) * s.rstd * weight[c];
}

// With n = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - n mean(g n)), mean(g) only
// when centred.
void normalise_backward(const double* x,
                        const double* weight,
                        const double* dy,
                        Statistics s,
                        int64_t width,
                        bool centred,
                        double* dx,
                        double* dweight) {
  double g_mean = 0, gn_mean = 0;
  for (int64_t c = 0; c < width; ++c) {
    const double n = (x[c] - s.mean) * s.rstd, g = dy[c] * weight[c];
    dweight[c] += dy[c] * n;
    if (centred) g_mean += g / static_cast<double>(width);
    gn_mean += g * n / static_cast<double>(width);
  }
  for (int64_t c = 0; c < width; ++c) {
    const double n = (x[c] - s.mean) * s.rstd;
    dx[c] = s.rstd * (dy[c] * weight[c] - g_mean - n * gn_mean);
  }
}

// The four norms of whole rows. With `Pending` inputs are residual and delta, outputs their sum and
// y.
template <bool Pending, bool Centred>
void norm_forward(const OpCall& call) {
  const size_t parameters = Pending ? 2 : 1;
  const int64_t width = call.in[0].shape[-1], rows = call.in[0].shape.rows();
  const double eps = call.attrs->number("eps");
  Values x = load(call.in[0]);
  if (Pending) {
    const Values delta = load(call.in[1]);
    for (size_t i = 0; i < x.size(); ++i) x[i] += delta[i];
    store(call.out[0], x);
    x = load(call.out[0]);  // the norm sees the sum as it is kept
  }
  const Values weight = load(call.in[parameters]);
  const Values bias = Centred ? load(call.in[parameters + 1]) : zeros(width);
  Values y(x.size()), mean = zeros(rows), rstd = zeros(rows);
  for (int64_t r = 0; r < rows; ++r) {
    const Statistics s = statistics_of(&x[at(r * width)], width, eps, Centred);
    mean[at(r)] = s.mean;
    rstd[at(r)] = s.rstd;
    normalise(&x[at(r * width)], weight.data(), s, width, &y[at(r * width)]);
    for (int64_t c = 0; c < width; ++c) y[at(r * width + c)] += bias[at(c)];
  }
  store(call.out[Pending ? 1 : 0], y);
  if (Centred) store(call.saved[0], mean);
  store(call.saved[Centred ? 1 : 0], rstd);
}

template <bool Pending, bool Centred>
void norm_backward(const OpCall& call, Views dout, Gradients din) {
  const size_t parameters = Pending ? 2 : 1;
  const TensorView x_view = Pending ? call.out[0] : call.in[0];
  const int64_t width = x_view.shape[-1], rows = x_view.shape.rows(), count = rows * width;
  const Values x = load(x_view), weight = load(call.in[parameters]);
  const Values dy = load_or_zero(dout[Pending ? 1 : 0], count);
  const Values mean = Centred ? load(call.saved[0]) : zeros(rows);
  const Values rstd = load(call.saved[Centred ? 1 : 0]);
  Values dx = zeros(count), dweight = zeros(width), dbias = zeros(width);
  for (int64_t r = 0; r < rows; ++r) {
    const size_t row = at(r * width);
    normalise_backward(&x[row],
                       weight.data(),
                       &dy[row],
                       {mean[at(r)], rstd[at(r)]},
                       width,
                       Centred,
                       &dx[row],
                       dweight.data());
    for (int64_t c = 0; c < width; ++c) dbias[at(c)] += dy[row + at(c)];
  }
  if (Pending) {
    const Values dsum = load_or_zero(dout[0], count);
    for (size_t i = 0; i < dx.size(); ++i) dx[i] += dsum[i];
    store_gradient(operand(din, 1), dx);
  }
  store_gradient(operand(din, 0), dx);
  store_gradient(operand(din, parameters), dweight);
  if (Centred) store_gradient(operand(din, parameters + 1), dbias);
}

// Query and key heads turned to their positions, or back; the same where there are none.
Values turn_heads(const Values& x, const Shape& shape, const Attrs& attrs, double sign) {
  if (!attrs.has("base")) return x;
  return turned(x,
                shape,
                attrs.integer("axis"),
                attrs.integer("heads") + attrs.integer("kv_heads"),
                attrs.integer("head_dim"),
                attrs.number("base"),
                sign);
}

// qkv[rows, (H + 2 G) d]: query heads by wq, key heads by wk, values copied.
void qk_norm_forward(const OpCall& call) {
  const int64_t heads = call.attrs->integer("heads"), kv_heads = call.attrs->integer("kv_heads");
  const int64_t d = call.attrs->integer("head_dim"), rows = call.in[0].shape.rows();
  const int64_t row_heads = heads + 2 * kv_heads, normed = heads + kv_heads;
  const double eps = call.attrs->number("eps");
  const Values x = load(call.in[0]), wq = load(call.in[1]), wk = load(call.in[2]);
  Values y = x, rstd = zeros(rows * normed);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < normed; ++h) {
      const size_t head = at((r * row_heads + h) * d);
      const Statistics s = statistics_of(&x[head], d, eps, false);
      rstd[at(r * normed + h)] = s.rstd;
      normalise(&x[head], h < heads ? wq.data() : wk.data(), s, d, &y[head]);
    }
  }
  store(call.out[0], turn_heads(y, call.in[0].shape, *call.attrs, 1));
  store(call.saved[0], rstd);
}

void qk_norm_backward(const OpCall& call, Views dout, Gradients din) {
  const int64_t heads = call.attrs->integer("heads"), kv_heads = call.attrs->integer("kv_heads");
  const int64_t d = call.attrs->integer("head_dim"), rows = call.in[0].shape.rows();
  const int64_t row_heads = heads + 2 * kv_heads, normed = heads + kv_heads;
  const Values x = load(call.in[0]), wq = load(call.in[1]), wk = load(call.in[2]);
  const Values dy = turn_heads(load(dout[0]), call.in[0].shape, *call.attrs, -1);
  const Values rstd = load(call.saved[0]);
  Values dx = dy, dwq = zeros(d), dwk = zeros(d);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t h = 0; h < normed; ++h) {
      const size_t head = at((r * row_heads + h) * d);
      const bool query = h < heads;
      normalise_backward(&x[head],
                         query ? wq.data() : wk.data(),
                         &dy[head],
                         {0, rstd[at(r * normed + h)]},
                         d,
                         false,
                         &dx[head],
                         query ? dwq.data() : dwk.data());
    }
  }
  store_gradient(operand(din, 0), dx);
  store_gradient(operand(din, 1), dwq);
  store_gradient(operand(din, 2), dwk);
}

}  // namespace

void add_norm(Backend& backend) {
  backend.add("rms_norm", {norm_forward<false, false>, guarded<norm_backward<false, false>>});
  backend.add("add_rms_norm", {norm_forward<true, false>, guarded<norm_backward<true, false>>});
  backend.add("layer_norm", {norm_forward<false, true>, guarded<norm_backward<false, true>>});
  backend.add("add_layer_norm", {norm_forward<true, true>, guarded<norm_backward<true, true>>});
  backend.add("qk_norm", {qk_norm_forward, guarded<qk_norm_backward>});
}

}  // namespace vitrine::reference
