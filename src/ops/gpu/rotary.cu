// rotary: pairs (i, i + d/2) of the first heads turned by the angle of their position; the rest of
// a row copied. Backward turns back.
//
// Bytes an element: 2 storage sizes (accumulated: 3), [16384, 5120] bf16 335 MB, 80 us at 4.17
// TB/s; in place (out and in one array) only what is rotated. A thread turns the same pairs of up
// to four heads, so that cosines and sines (which stay in the caches) are read once for them.
#include <algorithm>

#include "ops/gpu/pointwise.h"
#include "ops/gpu/rotary_table.h"
#include "ops/gpu/rows.cuh"

namespace vitrine::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 4;  // heads, or vectors of the rest, a thread

// Sizes in vectors of kN elements.
struct Geometry {
  int64_t rows, length, inner;  // position of a row: row / inner % length
  int64_t width, half, heads;
  int64_t rest;                  // vectors to copy: behind heads * 2 * half
  int64_t rotated_items, items;  // threads' work a row
  double base;
  Divisor by_items, by_half, by_inner, by_length;
};

// Cosine and sine of kN angles: from the table, or in place for f64.
template <typename T, int kN>
__device__ __forceinline__ void angles(const Geometry& g,
                                       const RotaryTable& table,
                                       int64_t position,
                                       int64_t pair,
                                       Wide<T>* cosine,
                                       Wide<T>* sine) {
  if constexpr (sizeof(T) == 8) {
    const double frequency = pow(g.base, -static_cast<double>(pair) / static_cast<double>(g.half));
    sincos(static_cast<double>(position) * frequency, sine, cosine);
  } else {
    const int64_t at = (position * g.half + pair) * kN;
    const Vec<float, kN> c = load<kN>(table.cosine + at), s = load<kN>(table.sine + at);
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      cosine[j] = c.v[j];
      sine[j] = s.v[j];
    }
  }
}

// `in` and the destination may be one array: everything that a thread writes, it has read before.
template <typename T, int kN>
__global__ void __launch_bounds__(kThreads, sizeof(T) == 8 ? 1 : 3)
    rotary_kernel(const T* in, GradientTo<T> out, Geometry g, RotaryTable table, float sign) {
  using W = Wide<T>;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= g.rows * g.items) return;
  int64_t row, item;
  divide(i, g.by_items, row, item);
  const int64_t start = row * g.width * kN;
  Vec<T, kN> a[kAtOnce], b[kAtOnce];
  if (item >= g.rotated_items) {
    const int64_t apart = g.items - g.rotated_items;
    const int64_t behind = start + 2 * g.heads * g.half * kN;
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int64_t v = item - g.rotated_items + u * apart;
      if (v < g.rest) a[u] = load_once<kN>(in + behind + v * kN);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int64_t v = item - g.rotated_items + u * apart;
      if (v >= g.rest) continue;
      W same[kN];
#pragma unroll
      for (int j = 0; j < kN; ++j) same[j] = to_wide(a[u].v[j]);
      out.put(behind + v * kN, same);
    }
    return;
  }
  int64_t group, pair, unused, position;
  divide(item, g.by_half, group, pair);
  const int64_t from = start + (group * kAtOnce * 2 * g.half + pair) * kN;
  const int64_t half = g.half * kN;
  const int64_t heads = g.heads - group * kAtOnce;  // that are left, at least one
#pragma unroll
  for (int u = 0; u < kAtOnce; ++u) {
    if (u >= heads) continue;
    a[u] = load_once<kN>(in + from + u * 2 * half);
    b[u] = load_once<kN>(in + from + u * 2 * half + half);
  }
  divide(quotient(row, g.by_inner), g.by_length, unused, position);
  W cosine[kN], sine[kN];
  angles<T, kN>(g, table, position, pair, cosine, sine);
#pragma unroll
  for (int u = 0; u < kAtOnce; ++u) {
    if (u >= heads) continue;
    stay_packed(a[u]);
    stay_packed(b[u]);
    W first[kN], second[kN];
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      const W x = to_wide(a[u].v[j]), y = to_wide(b[u].v[j]), s = sign * sine[j];
      first[j] = x * cosine[j] - y * s;
      second[j] = y * cosine[j] + x * s;
    }
    out.put(from + u * 2 * half, first);
    out.put(from + u * 2 * half + half, second);
  }
}

template <typename T, int kN>
void launch(const TensorView& in, const GradView& out, Geometry g, RotaryTable table, float sign) {
  g.width /= kN;
  g.half /= kN;
  // In place, the rest is there already.
  g.rest = in.data == out.view.data ? 0 : g.width - 2 * g.heads * g.half;
  g.rotated_items = (g.heads + kAtOnce - 1) / kAtOnce * g.half;
  g.items = g.rotated_items + (g.rest + kAtOnce - 1) / kAtOnce;
  if (g.items == 0) return;
  g.by_items = g.items, g.by_half = std::max<int64_t>(g.half, 1), g.by_inner = g.inner,
  g.by_length = g.length;
  const int64_t blocks = (g.rows * g.items + kThreads - 1) / kThreads;
  rotary_kernel<T, kN><<<static_cast<unsigned>(blocks), kThreads, 0, stream()>>>(
      in.as<const T>(), gradient_to<T>(out, in.dtype, "rotary"), g, table, sign);
  VITRINE_GPU_LAUNCHED("rotary");
}

void rotate(const OpCall& call, const TensorView& in, const GradView& out, float sign) {
  if (in.elements() == 0) return;
  const AxisRows axis(in.shape, call.attrs->integer("axis"));
  Geometry g{};
  g.rows = in.shape.rows();
  g.length = axis.length;
  g.inner = axis.inner;
  g.width = in.shape[-1];
  g.heads = call.attrs->integer("heads");
  g.half = call.attrs->integer("head_dim") / 2;
  g.base = call.attrs->number("base");
  const RotaryTable table =
      in.dtype == DType::kF64 ? RotaryTable{} : rotary_table(g.length, g.half, g.base);
  dispatch_float(in.dtype, "rotary", [&]<typename T>() {
    // f64 computes its angles one by one.
    constexpr int kN = sizeof(T) == 8 ? 1 : 16 / sizeof(T);
    if (g.half % kN == 0 && g.width % kN == 0 &&
        aligned_to(16, {in.as<const char>(), out.view.as<const char>()})) {
      launch<T, kN>(in, out, g, table, sign);
    } else {
      launch<T, 1>(in, out, g, table, sign);
    }
  });
}

void rotary_forward(const OpCall& call) {
  rotate(call, call.in[0], GradView{call.out[0], false}, 1);
}

void rotary_backward(const OpCall& call,
                     std::span<const TensorView> dout,
                     std::span<const GradView> din) {
  rotate(call, dout[0], operand(din, 0), -1);
}

}  // namespace

OpKernels rotary_row() { return {rotary_forward, when_wanted<rotary_backward>}; }

}  // namespace vitrine::gpu
