// qk_norm: rms_norm of each query and key head of packed qkv[rows, (H + 2 G) d]; values copied.
//
// Bytes an element: 2 storage sizes forward, 3 backward (values 2: x is not read):
// [16384, 5120] bf16 335 MB and 470 MB, 80 and 113 us at 4.17 TB/s. A group of 8, 16 or 32 lanes
// takes a head, a vector of 16 bytes a lane, several heads in flight. Blocks stay, so that each
// ends with one row of partial sums of both weights' gradients.
#include <algorithm>

#include "ops/gpu/column_sums.cuh"
#include "ops/gpu/norm.h"
#include "ops/gpu/rows.cuh"

namespace vitrine::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kHeadsAtOnce = 4;  // of a group of lanes, forward

template <typename T>
struct Args {
  const T* x;
  const T* wq;
  const T* wk;
  const T* dy;
  T* y;
  Wide<T>* rstd;  // [rows, normed]
  GradientTo<T> dx;
  Wide<T>* partial;      // [blocks, 2, d]; null: not wanted
  int64_t heads_in_all;  // rows * row_heads
  Divisor row_heads;
  int64_t normed, queries;
  int d;
  Wide<T> eps;
};

// Which head of all: its place among a row's heads, and where its rstd is.
struct Head {
  int64_t index, statistic;
  bool normed, query;
};

template <typename T>
__device__ __forceinline__ Head head_of(const Args<T>& a, int64_t i) {
  int64_t row;
  Head head;
  divide(i, a.row_heads, row, head.index);
  head.statistic = row * a.normed + head.index;
  head.normed = head.index < a.normed;
  head.query = head.index < a.queries;
  return head;
}

template <int kLanes>
__device__ __forceinline__ float group_sum(float x) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(VITRINE_FULL_MASK, x, offset);
  }
  return x;
}

template <typename T, int kLanes>
__global__ void __launch_bounds__(kThreads) qk_norm_kernel(const Args<T> a) {
  constexpr int kN = 16 / sizeof(T);
  const int lane = threadIdx.x % kLanes;
  const bool inside = lane * kN < a.d;
  constexpr int kGroups = kThreads / kLanes;
  const int64_t base = static_cast<int64_t>(blockIdx.x) * (kGroups * kHeadsAtOnce);
  const int own = threadIdx.x / kLanes;
  Vec<T, kN> wq{}, wk{};
  if (inside) {
    wq = load<kN>(a.wq + lane * kN);
    wk = load<kN>(a.wk + lane * kN);
  }
  Vec<T, kN> x[kHeadsAtOnce];
#pragma unroll
  for (int u = 0; u < kHeadsAtOnce; ++u) {
    const int64_t i = base + u * kGroups + own;
    x[u] = inside && i < a.heads_in_all ? load_once<kN>(a.x + i * a.d + lane * kN) : Vec<T, kN>{};
  }
#pragma unroll
  for (int u = 0; u < kHeadsAtOnce; ++u) {
    const int64_t i = base + u * kGroups + own;
    float square = 0;
#pragma unroll
    for (int j = 0; j < kN; ++j) square += to_wide(x[u].v[j]) * to_wide(x[u].v[j]);
    square = group_sum<kLanes>(square);
    if (i >= a.heads_in_all) continue;
    const Head head = head_of(a, i);
    if (head.normed) {
      const float rstd = 1 / sqrtf(square / static_cast<float>(a.d) + a.eps);
      if (lane == 0 && a.rstd) a.rstd[head.statistic] = rstd;
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const float weight = to_wide(head.query ? wq.v[j] : wk.v[j]);
        x[u].v[j] = from_wide<T>(to_wide(x[u].v[j]) * rstd * weight);
      }
    }
    if (inside) store(a.y + i * a.d + lane * kN, x[u]);
  }
}

template <typename T, int kLanes>
__global__ void __launch_bounds__(kThreads, 3) qk_norm_backward_kernel(const Args<T> a) {
  constexpr int kN = 16 / sizeof(T), kAtOnce = 2, kGroups = kThreads / kLanes;
  const int lane = threadIdx.x % kLanes, own = threadIdx.x / kLanes;
  const bool inside = lane * kN < a.d;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kGroups;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kGroups;
  Vec<T, kN> wq{}, wk{};
  if (inside) {
    wq = load<kN>(a.wq + lane * kN);
    wk = load<kN>(a.wk + lane * kN);
  }
  float dwq[kN] = {}, dwk[kN] = {};
  for (int64_t base = first; base < a.heads_in_all; base += kAtOnce * stride) {
    Vec<T, kN> x[kAtOnce], dy[kAtOnce];
    Head head[kAtOnce];
    float rstd[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int64_t i = base + u * stride + own;
      x[u] = dy[u] = Vec<T, kN>{};
      head[u] = head_of(a, i < a.heads_in_all ? i : 0);
      rstd[u] = head[u].normed && i < a.heads_in_all ? a.rstd[head[u].statistic] : 0.0f;
      if (!inside || i >= a.heads_in_all) continue;
      dy[u] = load_once<kN>(a.dy + i * a.d + lane * kN);
      if (head[u].normed) x[u] = load_once<kN>(a.x + i * a.d + lane * kN);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int64_t i = base + u * stride + own;
      float gn_sum = 0, out[kN];
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const float n = to_wide(x[u].v[j]) * rstd[u], d = to_wide(dy[u].v[j]);
        const float weight = to_wide(head[u].query ? wq.v[j] : wk.v[j]);
        gn_sum += d * weight * n;
        if (head[u].query) dwq[j] += d * n;
        if (head[u].normed && !head[u].query) dwk[j] += d * n;
        out[j] = d;
      }
      const float gn_mean = group_sum<kLanes>(gn_sum) / static_cast<float>(a.d);
      stay_packed(x[u]);
      if (!inside || i >= a.heads_in_all) continue;
      if (head[u].normed) {
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          const float n = to_wide(x[u].v[j]) * rstd[u];
          const float weight = to_wide(head[u].query ? wq.v[j] : wk.v[j]);
          out[j] = rstd[u] * (out[j] * weight - n * gn_mean);
        }
      }
      a.dx.put(i * a.d + lane * kN, out);
    }
  }
  if (a.partial == nullptr) return;
  __shared__ float sums[kGroups][kLanes * kN];
  for (int which = 0; which < 2; ++which) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < kN; ++j) sums[own][lane * kN + j] = which == 0 ? dwq[j] : dwk[j];
    __syncthreads();
    for (int c = threadIdx.x; c < a.d; c += kThreads) {
      float sum = 0;
      for (int g = 0; g < kGroups; ++g) sum += sums[g][c];
      a.partial[(static_cast<int64_t>(blockIdx.x) * 2 + which) * a.d + c] = sum;
    }
  }
}

// Any head size and address, a warp a head; partial sums go straight to memory, each column to its
// own lane.
template <typename T, bool kBackward>
__global__ void __launch_bounds__(VITRINE_WARP) plain_qk_norm_kernel(const Args<T> a) {
  using W = Wide<T>;
  W* partial =
      kBackward && a.partial ? a.partial + static_cast<int64_t>(blockIdx.x) * 2 * a.d : nullptr;
  if (partial) {
    for (int c = threadIdx.x; c < a.d; c += VITRINE_WARP) partial[c] = partial[a.d + c] = 0;
  }
  const W d = static_cast<W>(a.d);
  for (int64_t i = blockIdx.x; i < a.heads_in_all; i += gridDim.x) {
    const Head head = head_of(a, i);
    const T* w = head.query ? a.wq : a.wk;
    const int64_t start = i * a.d;
    W rstd = 1, mean = 0;
    if (head.normed && !kBackward) {
      for (int c = threadIdx.x; c < a.d; c += VITRINE_WARP) {
        mean += to_wide(a.x[start + c]) * to_wide(a.x[start + c]);
      }
      rstd = 1 / sqrt(warp_sum(mean) / d + a.eps);
      if (threadIdx.x == 0 && a.rstd) a.rstd[head.statistic] = rstd;
    }
    if (head.normed && kBackward) {
      rstd = a.rstd[head.statistic];
      for (int c = threadIdx.x; c < a.d; c += VITRINE_WARP) {
        const W n = to_wide(a.x[start + c]) * rstd, dy = to_wide(a.dy[start + c]);
        mean += dy * to_wide(w[c]) * n;
        if (partial) partial[(head.query ? 0 : a.d) + c] += dy * n;
      }
      mean = warp_sum(mean) / d;
    }
    for (int c = threadIdx.x; c < a.d; c += VITRINE_WARP) {
      if constexpr (kBackward) {
        W dx[1] = {to_wide(a.dy[start + c])};
        if (head.normed)
          dx[0] = rstd * (dx[0] * to_wide(w[c]) - to_wide(a.x[start + c]) * rstd * mean);
        a.dx.put(start + c, dx);
      } else {
        const T x = a.x[start + c];
        a.y[start + c] = head.normed ? from_wide<T>(to_wide(x) * rstd * to_wide(w[c])) : x;
      }
    }
  }
}

template <typename T>
Args<T> args_of(const OpCall& call, const TensorView& rstd) {
  const Attrs& attrs = *call.attrs;
  const int64_t heads = attrs.integer("heads"), kv_heads = attrs.integer("kv_heads");
  Args<T> a{};
  a.x = call.in[0].as<const T>();
  a.wq = call.in[1].as<const T>();
  a.wk = call.in[2].as<const T>();
  a.rstd = rstd.as<Wide<T>>();
  a.row_heads = heads + 2 * kv_heads;
  a.normed = heads + kv_heads;
  a.queries = heads;
  a.d = static_cast<int>(attrs.integer("head_dim"));
  a.heads_in_all = call.in[0].elements() / a.d;
  a.eps = static_cast<Wide<T>>(attrs.number("eps"));
  return a;
}

// Lanes for a head of d, or 0 when the plain kernel must do it.
template <typename T>
int lanes_for(int d, bool aligned) {
  constexpr int kN = 16 / sizeof(T);
  if (sizeof(T) == 8 || !aligned || d % kN != 0 || d / kN > 32) return 0;
  return d / kN <= 8 ? 8 : d / kN <= 16 ? 16 : 32;
}

template <typename T, bool kBackward>
void launch(const Args<T>& a, int lanes, unsigned blocks) {
  if constexpr (sizeof(T) < 8) {
    const auto fast = [&]<int kLanes>() {
      if constexpr (kBackward) {
        qk_norm_backward_kernel<T, kLanes><<<blocks, kThreads, 0, stream()>>>(a);
      } else {
        qk_norm_kernel<T, kLanes><<<blocks, kThreads, 0, stream()>>>(a);
      }
    };
    if (lanes == 8) fast.template operator()<8>();
    if (lanes == 16) fast.template operator()<16>();
    if (lanes == 32) fast.template operator()<32>();
  }
  if (lanes == 0) plain_qk_norm_kernel<T, kBackward><<<blocks, VITRINE_WARP, 0, stream()>>>(a);
  VITRINE_GPU_LAUNCHED("qk_norm");
}

// Enough for the memory pipes; each block leaves a row of partial sums.
unsigned blocks_of(int64_t heads, int lanes) {
  return lanes == 0 ? blocks_for(heads, 1, 16) : blocks_for(heads, kThreads / lanes, 3);
}

}  // namespace

void qk_norm_forward(const OpCall& call) {
  if (call.in[0].elements() == 0) return;
  const TensorView rstd = operand(call.saved, 0), y = call.out[0];
  dispatch_float(y.dtype, "qk_norm", [&]<typename T>() {
    Args<T> a = args_of<T>(call, rstd);
    a.y = y.as<T>();
    const int lanes = lanes_for<T>(a.d, aligned_to(16, {a.x, a.wq, a.wk, a.y}));
    const int64_t at_once = lanes == 0 ? 1 : kThreads / lanes * kHeadsAtOnce;
    const int64_t blocks = (a.heads_in_all + at_once - 1) / at_once;
    launch<T, false>(a, lanes, lanes == 0 ? blocks_of(blocks, 0) : static_cast<unsigned>(blocks));
  });
}

void qk_norm_backward(const OpCall& call,
                      std::span<const TensorView> dout,
                      std::span<const GradView> din) {
  const TensorView dy = dout[0];
  if (dy.elements() == 0) return clear_gradients(din);
  const GradView dx = operand(din, 0), dwq = operand(din, 1), dwk = operand(din, 2);
  dispatch_float(dy.dtype, "qk_norm", [&]<typename T>() {
    Args<T> a = args_of<T>(call, call.saved[0]);
    a.dy = dy.as<const T>();
    a.dx = gradient_to<T>(dx, dy.dtype, "qk_norm");
    const bool parameters = dwq || dwk;
    const int lanes =
        lanes_for<T>(a.d, aligned_to(16, {a.x, a.wq, a.wk, a.dy, dx.view.as<const T>()}));
    const unsigned blocks = blocks_of(a.heads_in_all, lanes);
    if (parameters) {
      a.partial = static_cast<Wide<T>*>(
          workspace(static_cast<size_t>(blocks) * 2 * static_cast<size_t>(a.d) * sizeof(Wide<T>)));
    }
    launch<T, true>(a, lanes, blocks);
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
