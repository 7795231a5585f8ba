// qk_norm: rms_norm of each query and key head of packed qkv[rows, (H + 2 G) d], values copied;
// with rotary positions the normed heads are turned on the way. Bound by memory; the kernels for
// what models have are in qk_norm_vectors.cu, here is one for everything else.
#include <type_traits>

#include "ops/cpu/operands.h"
#include "ops/gpu/column_sums.cuh"
#include "ops/gpu/qk_norm.cuh"

namespace vitrine::gpu {
namespace {

template <typename T>
struct Angle {
  Wide<T> cosine = 1, sine = 0;
};

template <typename T>
__device__ Angle<T> angle_of(const QkNorm<T>& a, int64_t position, int pair) {
  Angle<T> angle;
  const int half = a.d / 2;
  if constexpr (sizeof(T) == 8) {
    const double frequency = pow(a.base, -static_cast<double>(pair) / static_cast<double>(half));
    sincos(static_cast<double>(position) * frequency, &angle.sine, &angle.cosine);
  } else {
    angle.cosine = a.table.cosine[position * half + pair];
    angle.sine = a.table.sine[position * half + pair];
  }
  return angle;
}

// Element c of values(0 ... d - 1) turned by their angles, or turned back.
template <bool kBack, typename T, typename Values>
__device__ Wide<T> turned(const QkNorm<T>& a, int64_t position, int c, const Values& values) {
  const int half = a.d / 2;
  const bool low = c < half;
  const Angle<T> angle = angle_of(a, position, low ? c : c - half);
  const Wide<T> other = values(low ? c + half : c - half);
  return values(c) * angle.cosine + (low == kBack ? other : -other) * angle.sine;
}

// Any head size and address, a warp a head; partial sums go straight to memory, each column to its
// own lane.
template <typename T, bool kBackward>
__global__ void __launch_bounds__(VITRINE_WARP)
    plain_qk_norm_kernel(const QkNorm<T> a, const Divisor row_heads) {
  using W = Wide<T>;
  W* partial =
      kBackward && a.partial ? a.partial + static_cast<int64_t>(blockIdx.x) * 2 * a.d : nullptr;
  if (partial) {
    for (int c = threadIdx.x; c < a.d; c += VITRINE_WARP) partial[c] = partial[a.d + c] = 0;
  }
  const W d = static_cast<W>(a.d);
  const int64_t heads = a.rows * row_heads.value;
  for (int64_t i = blockIdx.x; i < heads; i += gridDim.x) {
    int64_t row, head;
    divide(i, row_heads, row, head);
    const bool normed = head < a.normed(), query = head < a.queries;
    const int64_t statistic = row * a.normed() + head, start = i * a.d;
    const int64_t position = a.turned ? a.position(row) : 0;
    const T* w = query ? a.wq : a.wk;
    W rstd = 1, mean = 0;
    const auto gradient = [&](int c) { return to_wide(a.dy[start + c]); };
    const auto turned_back = [&](int c) {
      return a.turned ? turned<true>(a, position, c, gradient) : gradient(c);
    };
    if (normed && !kBackward) {
      for (int c = threadIdx.x; c < a.d; c += VITRINE_WARP) {
        mean += to_wide(a.x[start + c]) * to_wide(a.x[start + c]);
      }
      rstd = 1 / sqrt(warp_sum(mean) / d + a.eps);
      if (threadIdx.x == 0 && a.rstd) a.rstd[statistic] = rstd;
    }
    if (normed && kBackward) {
      rstd = a.rstd[statistic];
      for (int c = threadIdx.x; c < a.d; c += VITRINE_WARP) {
        const W n = to_wide(a.x[start + c]) * rstd, dy = turned_back(c);
        mean += dy * to_wide(w[c]) * n;
        if (partial) partial[(query ? 0 : a.d) + c] += dy * n;
      }
      mean = warp_sum(mean) / d;
    }
    const auto normal = [&](int c) { return to_wide(a.x[start + c]) * rstd * to_wide(w[c]); };
    for (int c = threadIdx.x; c < a.d; c += VITRINE_WARP) {
      if constexpr (kBackward) {
        W dx[1] = {
            normed ? rstd * (turned_back(c) * to_wide(w[c]) - to_wide(a.x[start + c]) * rstd * mean)
                   : gradient(c)};
        a.dx.put(start + c, dx);
      } else if (normed) {
        a.y[start + c] = from_wide<T>(a.turned ? turned<false>(a, position, c, normal) : normal(c));
      } else {
        a.y[start + c] = a.x[start + c];
      }
    }
  }
}

template <typename T>
QkNorm<T> operands_of(const OpCall& call, const TensorView& rstd) {
  const Attrs& attrs = *call.attrs;
  const TensorView& x = call.in[0];
  QkNorm<T> a{};
  a.x = x.as<const T>();
  a.wq = call.in[1].as<const T>();
  a.wk = call.in[2].as<const T>();
  a.rstd = rstd.as<Wide<T>>();
  a.rows = x.shape.rows();
  a.queries = static_cast<int>(attrs.integer("heads"));
  a.keys = static_cast<int>(attrs.integer("kv_heads"));
  a.d = static_cast<int>(attrs.integer("head_dim"));
  a.eps = static_cast<Wide<T>>(attrs.number("eps"));
  a.turned = attrs.has("base");
  if (a.turned) {
    const AxisRows axis(x.shape, attrs.integer("axis"));
    a.base = attrs.number("base");
    a.by_inner = axis.inner;
    a.by_length = axis.length;
    if constexpr (sizeof(T) < 8) a.table = rotary_table(axis.length, a.d / 2, a.base);
  }
  return a;
}

template <typename T, bool kBackward>
void launch_plain(const QkNorm<T>& a, int64_t blocks) {
  plain_qk_norm_kernel<T, kBackward>
      <<<static_cast<unsigned>(blocks), VITRINE_WARP, 0, stream()>>>(a, a.row_heads());
  VITRINE_GPU_LAUNCHED("plain qk_norm");
}

template <typename T>
int64_t plain_blocks(const QkNorm<T>& a) {
  return blocks_for(a.rows * a.row_heads(), 1, 16);
}

}  // namespace

void qk_norm_forward(const OpCall& call) {
  if (call.in[0].elements() == 0) return;
  const TensorView rstd = operand(call.saved, 0), y = call.out[0];
  dispatch_float(y.dtype, "qk_norm", [&]<typename T>() {
    QkNorm<T> a = operands_of<T>(call, rstd);
    a.y = y.as<T>();
    if constexpr (sizeof(T) < 8) {
      if (qk_norm_vectors(a, aligned_to(16, {a.x, a.wq, a.wk, a.y}))) return;
    }
    launch_plain<T, false>(a, plain_blocks(a));
  });
}

void qk_norm_backward(const OpCall& call,
                      std::span<const TensorView> dout,
                      std::span<const GradView> din) {
  const TensorView dy = dout[0];
  if (dy.elements() == 0) return clear_gradients(din);
  const GradView dx = operand(din, 0), dwq = operand(din, 1), dwk = operand(din, 2);
  dispatch_float(dy.dtype, "qk_norm", [&]<typename T>() {
    QkNorm<T> a = operands_of<T>(call, call.saved[0]);
    a.dy = dy.as<const T>();
    a.dx = gradient_to<T>(dx, dy.dtype, "qk_norm");
    const bool parameters = dwq || dwk;
    int64_t blocks = 0;
    if constexpr (sizeof(T) < 8) {
      const bool aligned = aligned_to(16, {a.x, a.wq, a.wk, a.dy, dx.view.as<const T>()});
      if (!qk_norm_vectors_backward(a, aligned, parameters, blocks)) blocks = 0;
    }
    if (blocks == 0) {
      blocks = plain_blocks(a);
      if (parameters) {
        a.partial = static_cast<Wide<T>*>(
            workspace(static_cast<size_t>(blocks * 2 * a.d) * sizeof(Wide<T>)));
      }
      launch_plain<T, true>(a, blocks);
    }
    if (!parameters) return;
    sum_columns<T>(a.partial,
                   blocks,
                   a.d,
                   gradient_to<T>(dwq, dy.dtype, "qk_norm"),
                   gradient_to<T>(dwk, dy.dtype, "qk_norm"),
                   true);
  });
}

}  // namespace vitrine::gpu
