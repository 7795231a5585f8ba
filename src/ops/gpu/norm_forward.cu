// rms_norm, layer_norm, and both with a pending residual add: forward.
//
// Bytes an element: 2 storage sizes (x, y), with a pending add 4 (residual, delta, sum, y):
// [16384, 1536] bf16 is 101 or 201 MB, 24 or 48 us at 4.17 TB/s. A row is read once and stays in
// registers: one warp a row up to 256 vectors of 16 bytes, so that no barrier is needed, one block
// above. Widths and addresses that 16-byte accesses do not fit, and f64, go through a plain kernel.
#include "gpu/following.cuh"
#include "ops/gpu/norm.h"
#include "ops/gpu/rows.cuh"

namespace vitrine::gpu {
namespace {

constexpr int kRowsABlock = 4;  // of blocks with a row a warp

template <typename T>
struct Args {
  const T* x;      // the residual where an add is pending
  const T* delta;  // null: none
  const T* weight;
  const T* bias;
  T* sum;
  T* y;
  Wide<T>* mean;
  Wide<T>* rstd;
  int64_t rows;
  int width;
  Wide<T> eps;
};

template <bool kWarp, typename W>
__device__ __forceinline__ W row_sum(W x, W* shared) {
  if constexpr (kWarp) {
    return warp_sum(x);
  } else {
    return block_sum(x, shared);
  }
}

// kPieces vectors of a row a thread; a warp or a block a row.
template <typename T, int kPieces, bool kWarp, bool kPending, bool kCentred>
__global__ void __launch_bounds__(kWarp ? kRowsABlock* VITRINE_WARP : 1024)
    norm_kernel(const Args<T> a) {
  constexpr int kN = 16 / sizeof(T);
  __shared__ float shared[VITRINE_WARP];
  const int threads = kWarp ? VITRINE_WARP : blockDim.x;
  const int first = kWarp ? threadIdx.x % VITRINE_WARP : threadIdx.x;
  const int64_t row = kWarp ? static_cast<int64_t>(blockIdx.x) * (blockDim.x / VITRINE_WARP) +
                                  threadIdx.x / VITRINE_WARP
                            : static_cast<int64_t>(blockIdx.x);
  wait_for_previous();
  if (row >= a.rows) return;
  const int vectors = a.width / kN;
  const int64_t start = row * a.width;
  Vec<T, kN> x[kPieces];
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int i = p * threads + first;
    if (i < vectors) x[p] = load_once<kN>(a.x + start + i * kN);
  }
  if constexpr (kPending) {
    Vec<T, kN> delta[kPieces];
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int i = p * threads + first;
      if (i < vectors) delta[p] = load_once<kN>(a.delta + start + i * kN);
    }
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int i = p * threads + first;
      if (i >= vectors) continue;
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        x[p].v[j] = from_wide<T>(to_wide(x[p].v[j]) + to_wide(delta[p].v[j]));
      }
      store(a.sum + start + i * kN, x[p]);
    }
  }
  // On its way while the row is reduced.
  Vec<T, kN> weight[kPieces];
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int i = p * threads + first;
    if (kWarp && i < vectors) weight[p] = load<kN>(a.weight + i * kN);
  }
  let_next_begin();
  float mean = 0, square = 0;
  if constexpr (kCentred) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      if (p * threads + first >= vectors) continue;
#pragma unroll
      for (int j = 0; j < kN; ++j) mean += to_wide(x[p].v[j]);
    }
    mean = row_sum<kWarp>(mean, shared) / static_cast<float>(a.width);
  }
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    if (p * threads + first >= vectors) continue;
    stay_packed(x[p]);
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      const float centred = to_wide(x[p].v[j]) - mean;
      square += centred * centred;
    }
  }
  square = row_sum<kWarp>(square, shared) / static_cast<float>(a.width);
  const float rstd = 1 / sqrtf(square + a.eps);
  if (first == 0) {
    if (kCentred && a.mean) a.mean[row] = mean;
    if (a.rstd) a.rstd[row] = rstd;
  }
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int i = p * threads + first;
    if (i >= vectors) continue;
    stay_packed(x[p]);
    if constexpr (kWarp) {
      stay_packed(weight[p]);
    } else {
      weight[p] = load<kN>(a.weight + i * kN);
    }
    Vec<T, kN> bias;
    if constexpr (kCentred) bias = load<kN>(a.bias + i * kN);
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      float y = (to_wide(x[p].v[j]) - mean) * rstd * to_wide(weight[p].v[j]);
      if constexpr (kCentred) y += to_wide(bias.v[j]);
      x[p].v[j] = from_wide<T>(y);
    }
    store(a.y + start + i * kN, x[p]);
  }
}

// Any width and address: a block a row, which is read again from the cache.
template <typename T, bool kPending, bool kCentred>
__global__ void plain_norm_kernel(const Args<T> a) {
  using W = Wide<T>;
  __shared__ W shared[VITRINE_WARP];
  const int64_t start = static_cast<int64_t>(blockIdx.x) * a.width;
  const T* x = (kPending ? a.sum : a.x) + start;
  const W width = static_cast<W>(a.width);
  W mean = 0, square = 0;
  for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
    if constexpr (kPending) {
      a.sum[start + i] = from_wide<T>(to_wide(a.x[start + i]) + to_wide(a.delta[start + i]));
    }
    if constexpr (kCentred) mean += to_wide(x[i]);
  }
  if constexpr (kCentred) mean = block_sum(mean, shared) / width;
  for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
    const W centred = to_wide(x[i]) - mean;
    square += centred * centred;
  }
  square = block_sum(square, shared) / width;
  const W rstd = 1 / sqrt(square + a.eps);
  if (threadIdx.x == 0) {
    if (kCentred && a.mean) a.mean[blockIdx.x] = mean;
    if (a.rstd) a.rstd[blockIdx.x] = rstd;
  }
  for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
    W y = (to_wide(x[i]) - mean) * rstd * to_wide(a.weight[i]);
    if constexpr (kCentred) y += to_wide(a.bias[i]);
    a.y[start + i] = from_wide<T>(y);
  }
}

template <typename T, int kPieces, bool kWarp, NormKind kKind>
void launch(const Args<T>& a, int64_t blocks, int threads) {
  launch_following("norm",
                   norm_kernel<T, kPieces, kWarp, norm_pending(kKind), norm_centred(kKind)>,
                   static_cast<unsigned>(blocks),
                   static_cast<unsigned>(threads),
                   a);
}

template <typename T, NormKind kKind>
void launch_any(const Args<T>& a, bool aligned) {
  constexpr int kN = 16 / sizeof(T);
  const int vectors = a.width / kN;
  const int block = ((vectors + 3) / 4 + VITRINE_WARP - 1) / VITRINE_WARP * VITRINE_WARP;
  if constexpr (sizeof(T) < 8) {
    const int64_t blocks = (a.rows + kRowsABlock - 1) / kRowsABlock;
    if (aligned && a.width % kN == 0) {
      const int threads = kRowsABlock * VITRINE_WARP;
      const int pieces = (vectors + VITRINE_WARP - 1) / VITRINE_WARP;
      if (pieces <= 2) return launch<T, 2, true, kKind>(a, blocks, threads);
      if (pieces <= 4) return launch<T, 4, true, kKind>(a, blocks, threads);
      if (pieces <= 6) return launch<T, 6, true, kKind>(a, blocks, threads);
      if (pieces <= 8) return launch<T, 8, true, kKind>(a, blocks, threads);
      if (block <= 1024) return launch<T, 4, false, kKind>(a, a.rows, block);
    }
  }
  plain_norm_kernel<T, norm_pending(kKind), norm_centred(kKind)>
      <<<static_cast<unsigned>(a.rows), 256, 0, stream()>>>(a);
  VITRINE_GPU_LAUNCHED("plain norm");
}

}  // namespace

template <NormKind kKind>
void norm_forward(const OpCall& call) {
  constexpr bool kPending = norm_pending(kKind), kCentred = norm_centred(kKind);
  constexpr size_t kParameters = kPending ? 2 : 1;
  const TensorView x = call.in[0];
  if (x.elements() == 0) return;
  const TensorView mean = kCentred ? operand(call.saved, 0) : TensorView{};
  const TensorView rstd = operand(call.saved, kCentred ? 1 : 0);
  dispatch_float(x.dtype, "norm", [&]<typename T>() {
    Args<T> a{};
    a.x = x.as<const T>();
    a.delta = kPending ? call.in[1].as<const T>() : nullptr;
    a.weight = call.in[kParameters].as<const T>();
    a.bias = kCentred ? call.in[kParameters + 1].as<const T>() : nullptr;
    a.sum = kPending ? call.out[0].as<T>() : nullptr;
    a.y = call.out[kPending ? 1 : 0].as<T>();
    a.mean = mean.as<Wide<T>>();
    a.rstd = rstd.as<Wide<T>>();
    a.rows = x.shape.rows();
    a.width = static_cast<int>(x.shape[-1]);
    a.eps = static_cast<Wide<T>>(call.attrs->number("eps"));
    launch_any<T, kKind>(a, aligned_to(16, {a.x, a.delta, a.weight, a.bias, a.sum, a.y}));
  });
}

template void norm_forward<NormKind::kRms>(const OpCall&);
template void norm_forward<NormKind::kAddRms>(const OpCall&);
template void norm_forward<NormKind::kLayer>(const OpCall&);
template void norm_forward<NormKind::kAddLayer>(const OpCall&);

}  // namespace vitrine::gpu
