// Reference rows of the element-by-element operations.
#include <cmath>

#include "ops/cpu/reference/values.h"

namespace vitrine::reference {
namespace {

using Gradients = std::span<const GradView>;
using Views = std::span<const TensorView>;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

void swiglu_forward(const OpCall& call) {
  const Values x = load(call.in[0]);
  const int64_t rows = call.in[0].shape.rows(), width = call.in[0].shape[-1] / 2;
  Values y = zeros(rows * width);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < width; ++c) {
      const double gate = x[at(r * 2 * width + c)], up = x[at(r * 2 * width + width + c)];
      y[at(r * width + c)] = gate * sigmoid(gate) * up;
    }
  }
  store(call.out[0], y);
}

void swiglu_backward(const OpCall& call, Views dout, Gradients din) {
  const Values x = load(call.in[0]), dy = load(dout[0]);
  const int64_t rows = call.in[0].shape.rows(), width = call.in[0].shape[-1] / 2;
  Values dx = zeros(rows * 2 * width);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < width; ++c) {
      const size_t gate_at = at(r * 2 * width + c), up_at = gate_at + at(width);
      const double gate = x[gate_at], s = sigmoid(gate), g = dy[at(r * width + c)];
      dx[gate_at] = g * x[up_at] * s * (1 + gate * (1 - s));
      dx[up_at] = g * gate * s;
    }
  }
  store_gradient(operand(din, 0), dx);
}

// gelu(x) = x phi(x), with phi the normal distribution (form 0) or an approximation of it.
struct Phi {
  double value, slope;
};

Phi phi(double x, int64_t form) {
  if (form == 0) {
    return {0.5 * (1 + std::erf(x / std::sqrt(2.0))), std::exp(-0.5 * x * x) / std::sqrt(2 * M_PI)};
  }
  if (form == 1) {
    const double k = std::sqrt(2 / M_PI), t = std::tanh(k * (x + 0.044715 * x * x * x));
    return {0.5 * (1 + t), 0.5 * (1 - t * t) * k * (1 + 3 * 0.044715 * x * x)};
  }
  const double s = sigmoid(1.702 * x);
  return {s, 1.702 * s * (1 - s)};
}

void gelu_forward(const OpCall& call) {
  Values x = load(call.in[0]);
  for (double& value : x) value *= phi(value, call.attrs->integer("form")).value;
  store(call.out[0], x);
}

void gelu_backward(const OpCall& call, Views dout, Gradients din) {
  Values x = load(call.in[0]);
  const Values dy = load(dout[0]);
  for (size_t i = 0; i < x.size(); ++i) {
    const Phi p = phi(x[i], call.attrs->integer("form"));
    x[i] = dy[i] * (p.value + x[i] * p.slope);
  }
  store_gradient(operand(din, 0), x);
}

void add_forward(const OpCall& call) {
  Values a = load(call.in[0]);
  const Values b = load(call.in[1]);
  for (size_t i = 0; i < a.size(); ++i) a[i] += b[i];
  store(call.out[0], a);
}

void add_backward(const OpCall&, Views dout, Gradients din) {
  const Values dy = load(dout[0]);
  store_gradient(operand(din, 0), dy);
  store_gradient(operand(din, 1), dy);
}

// Place in y of each element of x: the index over the dimensions that y has.
std::vector<size_t> broadcast_places(const Shape& x, int64_t dims) {
  std::vector<size_t> places(at(x.elements()));
  for (int64_t i = 0; i < x.elements(); ++i) {
    int64_t rest = i, place = 0, stride = 1;
    for (int dimension = x.rank() - 1; dimension >= 0; --dimension) {
      const int64_t index = rest % x[dimension];
      rest /= x[dimension];
      if (dims >> dimension & 1) {
        place += index * stride;
        stride *= x[dimension];
      }
    }
    places[at(i)] = at(place);
  }
  return places;
}

void add_broadcast_forward(const OpCall& call) {
  Values x = load(call.in[0]);
  const Values y = load(call.in[1]);
  const auto places = broadcast_places(call.in[0].shape, call.attrs->integer("dims"));
  for (size_t i = 0; i < x.size(); ++i) x[i] += y[places[i]];
  store(call.out[0], x);
}

void add_broadcast_backward(const OpCall& call, Views dout, Gradients din) {
  const Values g = load(dout[0]);
  store_gradient(operand(din, 0), g);
  const GradView gradient = operand(din, 1);
  if (!gradient) return;
  const auto places = broadcast_places(dout[0].shape, call.attrs->integer("dims"));
  Values dy = zeros(gradient.view.elements());
  for (size_t i = 0; i < g.size(); ++i) dy[places[i]] += g[i];
  store_gradient(gradient, dy);
}

void scale_forward(const OpCall& call) {
  Values x = load(call.in[0]);
  for (double& value : x) value *= call.attrs->number("factor");
  store(call.out[0], x);
}

void scale_backward(const OpCall& call, Views dout, Gradients din) {
  Values g = load(dout[0]);
  for (double& value : g) value *= call.attrs->number("factor");
  store_gradient(operand(din, 0), g);
}

void gated_sigmoid_forward(const OpCall& call) {
  Values z = load(call.in[0]);
  const Values gain = load(call.in[1]), offset = load(call.in[2]);
  for (size_t i = 0; i < z.size(); ++i) {
    const size_t c = i % gain.size();
    z[i] = sigmoid(gain[c] * (z[i] - 0.5) + offset[c]);
  }
  store(call.out[0], z);
}

void gated_sigmoid_backward(const OpCall& call, Views dout, Gradients din) {
  const Values z = load(call.in[0]), gain = load(call.in[1]), y = load(call.out[0]),
               dy = load(dout[0]);
  Values dz(z.size()), dgain(gain.size()), doffset(gain.size());
  for (size_t i = 0; i < z.size(); ++i) {
    const size_t c = i % gain.size();
    const double slope = dy[i] * y[i] * (1 - y[i]);
    dz[i] = slope * gain[c];
    dgain[c] += slope * (z[i] - 0.5);
    doffset[c] += slope;
  }
  store_gradient(operand(din, 0), dz);
  store_gradient(operand(din, 1), dgain);
  store_gradient(operand(din, 2), doffset);
}

}  // namespace

void add_pointwise(Backend& backend) {
  backend.add("swiglu", {swiglu_forward, guarded<swiglu_backward>});
  backend.add("gelu", {gelu_forward, guarded<gelu_backward>});
  backend.add("add", {add_forward, guarded<add_backward>});
  backend.add("add_broadcast", {add_broadcast_forward, guarded<add_broadcast_backward>});
  backend.add("scale", {scale_forward, guarded<scale_backward>});
  backend.add("gated_sigmoid", {gated_sigmoid_forward, guarded<gated_sigmoid_backward>});
}

}  // namespace vitrine::reference
