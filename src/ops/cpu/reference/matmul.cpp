// Reference rows of linear, linear_cross_entropy and embedding.
#include <algorithm>
#include <cmath>

#include "ops/cpu/ids.h"
#include "ops/cpu/reference/values.h"
#include "ops/fp8.h"

namespace vitrine::reference {
namespace {

using Gradients = std::span<const GradView>;
using Views = std::span<const TensorView>;

// An operand of a product, rounded to `format` and back where the call is in fp8.
Values operand_of(const OpCall& call, const TensorView& view, Fp8 format) {
  Values values = load(view);
  if (!linear_in_fp8(*call.attrs, call.in[0].shape, call.in[1].shape, view.dtype)) return values;
  std::vector<float> narrow(values.begin(), values.end());
  const auto count = static_cast<int64_t>(narrow.size());
  through_fp8(
      narrow.data(), count, fp8_scale(largest_magnitude(narrow.data(), count), format), format);
  return Values(narrow.begin(), narrow.end());
}

void linear_forward(const OpCall& call) {
  const Values x = operand_of(call, call.in[0], Fp8::kE4M3),
               w = operand_of(call, call.in[1], Fp8::kE4M3);
  const TensorView bias_view = operand(call.in, 2);
  const int64_t m = call.in[0].shape.rows(), k = call.in[1].shape[1], n = call.in[1].shape[0];
  const Values bias = load_or_zero(bias_view, n);
  Values y = zeros(m * n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = bias[at(j)];
      for (int64_t c = 0; c < k; ++c) sum += x[at(i * k + c)] * w[at(j * k + c)];
      y[at(i * n + j)] = sum;
    }
  }
  store(call.out[0], y);
}

void linear_backward(const OpCall& call, Views dout, Gradients din) {
  const Values x = operand_of(call, call.in[0], Fp8::kE4M3),
               w = operand_of(call, call.in[1], Fp8::kE4M3),
               dy = operand_of(call, dout[0], Fp8::kE5M2), whole_dy = load(dout[0]);
  const int64_t m = call.in[0].shape.rows(), k = call.in[1].shape[1], n = call.in[1].shape[0];
  Values dx = zeros(m * k), dw = zeros(n * k), dbias = zeros(n);
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      const double g = dy[at(i * n + j)];
      dbias[at(j)] += whole_dy[at(i * n + j)];
      for (int64_t c = 0; c < k; ++c) {
        dx[at(i * k + c)] += g * w[at(j * k + c)];
        dw[at(j * k + c)] += g * x[at(i * k + c)];
      }
    }
  }
  store_gradient(operand(din, 0), dx);
  store_gradient(operand(din, 1), dw);
  store_gradient(operand(din, 2), dbias);
}

// logits[rows, V] = x wᵀ rounded to x's dtype, kept or made again: so chunks change no result.
Values logits_of(const OpCall& call) {
  const int64_t rows = call.in[0].shape.rows(), vocabulary = call.in[1].shape[0];
  const int64_t depth = call.in[1].shape[1];
  const Values x = load(call.in[0]), w = load(call.in[1]);
  Values logits = zeros(rows * vocabulary);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t v = 0; v < vocabulary; ++v) {
      double sum = 0;
      for (int64_t c = 0; c < depth; ++c) sum += x[at(i * depth + c)] * w[at(v * depth + c)];
      logits[at(i * vocabulary + v)] = sum;
    }
  }
  return rounded(logits, call.in[0].dtype);
}

// dx[rows, D] and dw[V, D] of scale times the sum of the rows' losses.
struct HeadGradients {
  Values dx, dw;
};
HeadGradients head_gradients(const OpCall& call,
                             const Values& logits,
                             const Values& lse,
                             double scale) {
  const int64_t rows = call.in[0].shape.rows(), depth = call.in[1].shape[1],
                vocabulary = call.in[1].shape[0];
  const int32_t* target = call.in[2].as<int32_t>();
  const Values x = load(call.in[0]), w = load(call.in[1]);
  HeadGradients gradients{zeros(rows * depth), zeros(vocabulary * depth)};
  for (int64_t i = 0; i < rows; ++i) {
    if (target[i] < 0) continue;
    for (int64_t v = 0; v < vocabulary; ++v) {
      const double p = std::exp(logits[at(i * vocabulary + v)] - lse[at(i)]);
      const double g = scale * (p - (v == target[i] ? 1.0 : 0.0));
      for (int64_t c = 0; c < depth; ++c) {
        gradients.dx[at(i * depth + c)] += g * w[at(v * depth + c)];
        gradients.dw[at(v * depth + c)] += g * x[at(i * depth + c)];
      }
    }
  }
  return gradients;
}

bool gradient_in_forward(const OpCall& call) {
  return call.attrs->integer("gradient_in_forward", 0) != 0;
}

void linear_cross_entropy_forward(const OpCall& call) {
  const int64_t rows = call.in[0].shape.rows(), vocabulary = call.in[1].shape[0];
  check_ids("linear_cross_entropy", call.in[2], vocabulary, true);
  const int32_t* target = call.in[2].as<int32_t>();
  const Values logits = logits_of(call);
  const TensorView saved = operand(call.saved, 2);
  if (saved && !gradient_in_forward(call)) store(saved, logits);
  Values lse = zeros(rows);
  double loss = 0, count = 0;
  for (int64_t i = 0; i < rows; ++i) {
    const double* row = &logits[at(i * vocabulary)];
    const double highest = *std::max_element(row, row + vocabulary);
    double sum = 0;
    for (int64_t v = 0; v < vocabulary; ++v) sum += std::exp(row[v] - highest);
    lse[at(i)] = highest + std::log(sum);
    if (target[i] < 0) continue;
    loss += lse[at(i)] - row[target[i]];
    count += 1;
  }
  store(call.saved[0], lse);
  store(call.saved[1], {count});
  store(call.out[0], {count > 0 ? loss / count : 0.0});
  if (!gradient_in_forward(call) || !call.saved[3]) return;
  const HeadGradients gradients = head_gradients(call, logits, lse, 1);
  store(call.saved[2], gradients.dx);
  store(call.saved[3], gradients.dw);
}

void linear_cross_entropy_backward(const OpCall& call, Views dout, Gradients din) {
  const double count = load(call.saved[1])[0];
  const double scale = count > 0 ? load(dout[0])[0] / count : 0.0;
  HeadGradients gradients;
  if (gradient_in_forward(call)) {
    gradients = {load(call.saved[2]), load(call.saved[3])};
    for (double& value : gradients.dx) value *= scale;
    for (double& value : gradients.dw) value *= scale;
  } else {
    const TensorView saved = operand(call.saved, 2);
    const Values logits = saved ? load(saved) : logits_of(call);
    gradients = head_gradients(call, logits, load(call.saved[0]), scale);
  }
  store_gradient(operand(din, 0), gradients.dx);
  store_gradient(operand(din, 1), gradients.dw);
}

void embedding_forward(const OpCall& call) {
  const int64_t vocabulary = call.in[1].shape[0], depth = call.in[1].shape[1];
  check_ids("embedding", call.in[0], vocabulary, false);
  const int32_t* id = call.in[0].as<int32_t>();
  const Values table = load(call.in[1]);
  const int64_t rows = call.in[0].elements();
  Values y = zeros(rows * depth);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t c = 0; c < depth; ++c) y[at(i * depth + c)] = table[at(id[i] * depth + c)];
  }
  store(call.out[0], y);
}

void embedding_backward(const OpCall& call, Views dout, Gradients din) {
  const GradView gradient = operand(din, 1);
  if (!gradient) return;
  const int32_t* id = call.in[0].as<int32_t>();
  const int64_t rows = call.in[0].elements(), depth = gradient.view.shape[1];
  const Values dy = load(dout[0]);
  Values dtable = zeros(gradient.view.elements());
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t c = 0; c < depth; ++c) dtable[at(id[i] * depth + c)] += dy[at(i * depth + c)];
  }
  store_gradient(gradient, dtable);
}

}  // namespace

void add_matmul(Backend& backend) {
  backend.add("linear", {linear_forward, guarded<linear_backward>});
  backend.add("linear_cross_entropy",
              {linear_cross_entropy_forward, guarded<linear_cross_entropy_backward>});
  backend.add("embedding", {embedding_forward, guarded<embedding_backward>});
}

}  // namespace vitrine::reference
