// Fast rows of the element-by-element operations and of the mean losses.
#include <cmath>

#include "ops/cpu/fast/rows.h"
#include "ops/cpu/fast/vector_math.h"

namespace vitrine::fast::VITRINE_ISA {
namespace {

using Gradients = std::span<const GradView>;
using Views = std::span<const TensorView>;

constexpr int64_t kBlock =
    2048;  // elements worked on at a time: three f32 blocks stay in the first cache

// Calls body(offset, count) on blocks of [0, total), over the threads.
template <typename Body>
void for_blocks(int64_t total, const Body& body) {
  parallel_for((total + kBlock - 1) / kBlock, 16, [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) body(b * kBlock, std::min(kBlock, total - b * kBlock));
  });
}

void swiglu_forward(const OpCall& call) {
  const int64_t rows = call.in[0].shape.rows(), width = call.in[0].shape[-1] / 2;
  parallel_for(rows, grain_rows(3 * width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* gate = read_row(call.in[0], 2 * r * width, 2 * width, Scratch::kRowA);
      const float* up = gate + width;
      float* y = begin_row(call.out[0], r * width, width, Scratch::kRowB);
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) y[c] = gate[c] * vsigmoid(gate[c]) * up[c];
      finish_row(call.out[0], r * width, width, y);
    }
  });
}

void swiglu_backward(const OpCall& call, Views dout, Gradients din) {
  const int64_t rows = call.in[0].shape.rows(), width = call.in[0].shape[-1] / 2;
  parallel_for(rows, grain_rows(3 * width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* gate = read_row(call.in[0], 2 * r * width, 2 * width, Scratch::kRowA);
      const float* up = gate + width;
      const float* dy = read_row(dout[0], r * width, width, Scratch::kRowB);
      float* dgate = begin_row(din[0], 2 * r * width, 2 * width, Scratch::kRowC);
      float* dup = dgate + width;
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) {
        const float x = gate[c], s = vsigmoid(x), g = dy[c], u = up[c];
        dgate[c] = g * u * s * (1.0f + x * (1.0f - s));
        dup[c] = g * x * s;
      }
      finish_row(din[0], 2 * r * width, 2 * width, dgate);
    }
  });
}

constexpr float kTanhScale = 0.7978845608f, kTanhCubic = 0.044715f;  // sqrt(2 / pi)

// The share of x that passes; 0.5 (1 + tanh u) is sigmoid(2 u).
template <int Form>
float gelu_share(float x) {
  if constexpr (Form == 0) return 0.5f + 0.5f * verf(x * 0.7071067812f);
  if constexpr (Form == 1) return vsigmoid(2.0f * kTanhScale * (x + kTanhCubic * x * x * x));
  return vsigmoid(1.702f * x);
}

template <int Form>
float gelu_slope(float x) {
  const float share = gelu_share<Form>(x);
  if constexpr (Form == 0) return share + x * 0.3989422804f * vexp(-0.5f * x * x);
  if constexpr (Form == 1) {
    return share +
           x * share * (1.0f - share) * 2.0f * kTanhScale * (1.0f + 3.0f * kTanhCubic * x * x);
  }
  return share + x * 1.702f * share * (1.0f - share);
}

template <int Form>
void gelu_values(const OpCall& call) {
  for_blocks(call.in[0].elements(), [&](int64_t place, int64_t count) {
    const float* x = read_row(call.in[0], place, count, Scratch::kRowA);
    float* y = begin_row(call.out[0], place, count, Scratch::kRowB);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[i] = x[i] * gelu_share<Form>(x[i]);
    finish_row(call.out[0], place, count, y);
  });
}

template <int Form>
void gelu_gradients(const OpCall& call, const TensorView& dy_view, const GradView& to) {
  for_blocks(call.in[0].elements(), [&](int64_t place, int64_t count) {
    const float* x = read_row(call.in[0], place, count, Scratch::kRowA);
    const float* dy = read_row(dy_view, place, count, Scratch::kRowB);
    float* dx = begin_row(to, place, count, Scratch::kRowC);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) dx[i] = dy[i] * gelu_slope<Form>(x[i]);
    finish_row(to, place, count, dx);
  });
}

void gelu_forward(const OpCall& call) {
  const int64_t form = call.attrs->integer("form");
  (form == 0 ? gelu_values<0> : form == 1 ? gelu_values<1> : gelu_values<2>)(call);
}

void gelu_backward(const OpCall& call, Views dout, Gradients din) {
  const int64_t form = call.attrs->integer("form");
  (form == 0   ? gelu_gradients<0>
   : form == 1 ? gelu_gradients<1>
               : gelu_gradients<2>)(call, dout[0], din[0]);
}

void add_forward(const OpCall& call) {
  for_blocks(call.in[0].elements(), [&](int64_t place, int64_t count) {
    const float* a = read_row(call.in[0], place, count, Scratch::kRowA);
    const float* b = read_row(call.in[1], place, count, Scratch::kRowB);
    float* y = begin_row(call.out[0], place, count, Scratch::kRowC);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[i] = a[i] + b[i];
    finish_row(call.out[0], place, count, y);
  });
}

void add_backward(const OpCall&, Views dout, Gradients din) {
  for (const GradView& to : din) {
    if (!to) continue;
    for_blocks(dout[0].elements(), [&](int64_t place, int64_t count) {
      const float* dy = read_row(dout[0], place, count, Scratch::kRowA);
      narrow(to.view.dtype, to.view.data, place, count, dy, to.accumulate);
    });
  }
}

void scale_into(const TensorView& from, float factor, const GradView& to) {
  for_blocks(from.elements(), [&](int64_t place, int64_t count) {
    const float* x = read_row(from, place, count, Scratch::kRowA);
    float* y = begin_row(to, place, count, Scratch::kRowB);
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) y[i] = factor * x[i];
    finish_row(to, place, count, y);
  });
}

void scale_forward(const OpCall& call) {
  scale_into(call.in[0], static_cast<float>(call.attrs->number("factor")), {call.out[0], false});
}

void scale_backward(const OpCall& call, Views dout, Gradients din) {
  scale_into(dout[0], static_cast<float>(call.attrs->number("factor")), din[0]);
}

void gated_sigmoid_forward(const OpCall& call) {
  const int64_t width = call.in[0].shape[-1], rows = call.in[0].shape.rows();
  const float* gain = read_row(call.in[1], 0, width, Scratch::kParameterA);
  const float* offset = read_row(call.in[2], 0, width, Scratch::kParameterB);
  parallel_for(rows, grain_rows(2 * width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* z = read_row(call.in[0], r * width, width, Scratch::kRowA);
      float* y = begin_row(call.out[0], r * width, width, Scratch::kRowB);
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) y[c] = vsigmoid(gain[c] * (z[c] - 0.5f) + offset[c]);
      finish_row(call.out[0], r * width, width, y);
    }
  });
}

void gated_sigmoid_backward(const OpCall& call, Views dout, Gradients din) {
  const int64_t width = call.in[0].shape[-1], rows = call.in[0].shape.rows();
  const float* gain = read_row(call.in[1], 0, width, Scratch::kParameterA);
  const GradView to = operand(din, 0);
  const float* sums = sum_parts(
      rows, 2 * width, grain_rows(2 * width), [&](int64_t begin, int64_t end, float* dgain) {
        float *doffset = dgain + width, *dz = scratch(Scratch::kRowD, width);
        for (int64_t r = begin; r < end; ++r) {
          const float* z = read_row(call.in[0], r * width, width, Scratch::kRowA);
          const float* y = read_row(call.out[0], r * width, width, Scratch::kRowB);
          const float* dy = read_row(dout[0], r * width, width, Scratch::kRowC);
#pragma omp simd
          for (int64_t c = 0; c < width; ++c) {
            const float slope = dy[c] * y[c] * (1.0f - y[c]);
            dz[c] = slope * gain[c];
            dgain[c] += slope * (z[c] - 0.5f);
            doffset[c] += slope;
          }
          if (to) narrow(to.view.dtype, to.view.data, r * width, width, dz, to.accumulate);
        }
      });
  store_sums(operand(din, 1), sums);
  store_sums(operand(din, 2), sums + width);
}

// Blocks are summed in f32, and the blocks' sums in double in their order.
template <bool Squared>
void loss_forward(const OpCall& call) {
  const int64_t total = call.in[0].elements();
  float* block_sum = scratch(Scratch::kRowLoss, (total + kBlock - 1) / kBlock);
  for_blocks(total, [&](int64_t place, int64_t count) {
    const float* prediction = read_row(call.in[0], place, count, Scratch::kRowA);
    const float* target = read_row(call.in[1], place, count, Scratch::kRowB);
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (int64_t i = 0; i < count; ++i) {
      const float difference = prediction[i] - target[i];
      sum += Squared ? difference * difference : std::fabs(difference);
    }
    block_sum[place / kBlock] = sum;
  });
  double sum = 0;
  for (int64_t b = 0; b * kBlock < total; ++b) sum += static_cast<double>(block_sum[b]);
  *call.out[0].as<float>() = static_cast<float>(sum / static_cast<double>(total));
}

template <bool Squared>
void loss_backward(const OpCall& call, Views dout, Gradients din) {
  const int64_t total = call.in[0].elements();
  const float scale = *dout[0].as<float>() / static_cast<float>(total);
  for (size_t side = 0; side < 2; ++side) {
    const GradView to = operand(din, side);
    if (!to) continue;
    const float factor = side == 0 ? scale : -scale;
    for_blocks(total, [&](int64_t place, int64_t count) {
      const float* prediction = read_row(call.in[0], place, count, Scratch::kRowA);
      const float* target = read_row(call.in[1], place, count, Scratch::kRowB);
      float* gradient = begin_row(to, place, count, Scratch::kRowC);
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) {
        const float difference = prediction[i] - target[i];
        const float sign = (difference > 0 ? 1.0f : 0.0f) - (difference < 0 ? 1.0f : 0.0f);
        gradient[i] = factor * (Squared ? 2.0f * difference : sign);
      }
      finish_row(to, place, count, gradient);
    });
  }
}

}  // namespace

void add_pointwise(Backend& backend) {
  FastRow<swiglu_forward, swiglu_backward>::add(backend, "swiglu");
  FastRow<gelu_forward, gelu_backward>::add(backend, "gelu");
  FastRow<add_forward, add_backward>::add(backend, "add");
  FastRow<scale_forward, scale_backward>::add(backend, "scale");
  FastRow<gated_sigmoid_forward, gated_sigmoid_backward>::add(backend, "gated_sigmoid");
  FastRow<loss_forward<true>, loss_backward<true>>::add(backend, "mse");
  FastRow<loss_forward<false>, loss_backward<false>>::add(backend, "l1");
}

}  // namespace vitrine::fast::VITRINE_ISA
