// rms_norm, layer_norm, and both with a pending residual add: backward.
//
// With n = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - n mean(g n)) + d sum,
// d weight = sum over rows of dy n, d bias = sum of dy; mean(g) only where centred.
//
// Bytes an element: 3 storage sizes (x, dy, dx), with a pending add 4 or 5 (d sum, and both
// d residual and d delta where both are wanted): [16384, 1536] bf16 with d sum is 201 MB, 48 us at
// 4.17 TB/s. Blocks stay and take row after row, so that each ends with one row of partial sums of
// the parameters' gradients (a megabyte in all, in L2). Up to 192 vectors of 16 bytes a warp takes
// a row, sums in registers; above that a block does, sums in shared memory where each thread
// touches its own places only, and the next row is on its way while this one is reduced.
#include <algorithm>

#include "ops/gpu/column_sums.cuh"
#include "ops/gpu/norm.h"

namespace vitrine::gpu {
namespace {

// Of a block with a row: what the registers of a multiprocessor allow without spilling.
constexpr int most_threads(int pieces) { return pieces == 2 ? 640 : 512; }
constexpr int kPlainThreads = 256;

template <typename T>
struct Args {
  const T* x;
  const T* weight;
  const T* dy;    // null: zero
  const T* dsum;  // null: zero
  const Wide<T>* mean;
  const Wide<T>* rstd;
  GradientTo<T> dx, dx_again;  // equal values: d residual and d delta
  Wide<T>* partial;            // [blocks, d weight then d bias where centred]; null: not wanted
  int64_t rows;
  int width;
};

template <typename T, int kPieces>
struct Row {
  Vec<T, 16 / sizeof(T)> x[kPieces], dy[kPieces], dsum[kPieces];
  float mean = 0, rstd = 0;
};

template <int kPieces, bool kPending, bool kCentred, typename T>
__device__ __forceinline__ void fetch(
    const Args<T>& a, int64_t row, int first, int threads, Row<T, kPieces>& to) {
  constexpr int kN = 16 / sizeof(T);
  const int vectors = a.width / kN;
  const int64_t start = row * a.width;
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int i = p * threads + first;
    if (i >= vectors) continue;
    to.x[p] = load_once<kN>(a.x + start + i * kN);
    to.dy[p] = a.dy ? load_once<kN>(a.dy + start + i * kN) : Vec<T, kN>{};
    if constexpr (kPending) {
      to.dsum[p] = a.dsum ? load_once<kN>(a.dsum + start + i * kN) : Vec<T, kN>{};
    }
  }
  if constexpr (kCentred) to.mean = a.mean[row];
  to.rstd = a.rstd[row];
}

// Both sums over the threads of a row. One barrier a row: `shared` has two halves that take turns.
__device__ __forceinline__ void row_sums(float& a,
                                         float& b,
                                         float2 (*shared)[VITRINE_WARP],
                                         int turn) {
  a = warp_sum(a);
  b = warp_sum(b);
  const int lane = threadIdx.x % VITRINE_WARP, warp = threadIdx.x / VITRINE_WARP;
  const int warps = blockDim.x / VITRINE_WARP;
  if (lane == 0) shared[turn][warp] = make_float2(a, b);
  __syncthreads();
  a = b = 0;
  for (int w = 0; w < warps; ++w) {
    const float2 part = shared[turn][w];
    a += part.x;
    b += part.y;
  }
}

// Where quad q of piece p of sum `which` (0 weight, 1 bias) of thread t lies: threads of a warp are
// 16 bytes apart.
template <int kPieces, int kQuads>
__device__ __forceinline__ int place(int which, int p, int q, int t) {
  return (((which * kPieces + p) * kQuads + q) * static_cast<int>(blockDim.x) + t) * 4;
}

template <typename T, int kPieces, bool kPending, bool kCentred>
__global__ void __launch_bounds__(most_threads(kPieces), kPieces == 1 ? 2 : 1)
    norm_backward_kernel(const Args<T> a) {
  constexpr int kN = 16 / sizeof(T), kQuads = kN / 4;
  constexpr bool kAhead = kPieces == 1;  // registers for the next row
  extern __shared__ float4 raw[];
  float* sums = reinterpret_cast<float*>(raw);
  __shared__ float2 shared[2][VITRINE_WARP];
  const int threads = blockDim.x, first = threadIdx.x;
  const int64_t stride = gridDim.x;
  const int vectors = a.width / kN;
  if (a.partial) {
#pragma unroll
    for (int k = 0; k < (kCentred ? 2 : 1) * kPieces * kQuads; ++k) {
      store(sums + (k * static_cast<int>(blockDim.x) + threadIdx.x) * 4, Vec<float, 4>{});
    }
  }
  // Kept for all rows where registers allow it.
  constexpr int kKept = kPieces <= 2 ? kPieces : 1;
  Vec<T, kN> kept[kKept];
#pragma unroll
  for (int p = 0; p < kKept; ++p) {
    const int i = p * threads + first;
    if (i < vectors) kept[p] = load<kN>(a.weight + i * kN);
  }
  int64_t row = blockIdx.x;
  Row<T, kPieces> next;
  if (kAhead && row < a.rows) {
    fetch<kPieces, kPending, kCentred>(a, row, first, threads, next);
  }
  for (int turn = 0; row < a.rows; row += stride, turn ^= 1) {
    if constexpr (!kAhead) fetch<kPieces, kPending, kCentred>(a, row, first, threads, next);
    Row<T, kPieces> r = next;
    if (kAhead && row + stride < a.rows) {
      fetch<kPieces, kPending, kCentred>(a, row + stride, first, threads, next);
    }
    float g_sum = 0, gn_sum = 0;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int i = p * threads + first;
      if (i >= vectors) continue;
      const Vec<T, kN> weight = p < kKept ? kept[p < kKept ? p : 0] : load<kN>(a.weight + i * kN);
#pragma unroll
      for (int q = 0; q < kQuads; ++q) {
        Vec<float, 4> dweight, dbias;
        if (a.partial) {
          dweight = load<4>(sums + place<kPieces, kQuads>(0, p, q, threadIdx.x));
          if (kCentred) dbias = load<4>(sums + place<kPieces, kQuads>(1, p, q, threadIdx.x));
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const int j = q * 4 + k;
          const float n = (to_wide(r.x[p].v[j]) - r.mean) * r.rstd, dy = to_wide(r.dy[p].v[j]);
          const float g = dy * to_wide(weight.v[j]);
          if (kCentred) g_sum += g;
          gn_sum += g * n;
          dweight.v[k] += dy * n;
          if (kCentred) dbias.v[k] += dy;
        }
        if (a.partial) {
          store(sums + place<kPieces, kQuads>(0, p, q, threadIdx.x), dweight);
          if (kCentred) store(sums + place<kPieces, kQuads>(1, p, q, threadIdx.x), dbias);
        }
      }
    }
    row_sums(g_sum, gn_sum, shared, turn);
    const float g_mean = g_sum / static_cast<float>(a.width);
    const float gn_mean = gn_sum / static_cast<float>(a.width);
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int i = p * threads + first;
      if (i >= vectors) continue;
      stay_packed(r.x[p]);
      stay_packed(r.dy[p]);
      const Vec<T, kN> weight = p < kKept ? kept[p < kKept ? p : 0] : load<kN>(a.weight + i * kN);
      float dx[kN];
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const float n = (to_wide(r.x[p].v[j]) - r.mean) * r.rstd;
        const float g = to_wide(r.dy[p].v[j]) * to_wide(weight.v[j]);
        dx[j] = r.rstd * (g - g_mean - n * gn_mean);
        if constexpr (kPending) dx[j] += to_wide(r.dsum[p].v[j]);
      }
      const int64_t at = row * a.width + i * kN;
      a.dx.put(at, dx);
      if constexpr (kPending) a.dx_again.put(at, dx);
    }
  }
  if (a.partial == nullptr) return;
  constexpr int kSums = kCentred ? 2 : 1;
  float* out = a.partial + static_cast<int64_t>(blockIdx.x) * kSums * a.width;
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int i = p * threads + first;
    if (i >= vectors) continue;
#pragma unroll
    for (int k = 0; k < kSums * kQuads; ++k) {
      const int which = k / kQuads, q = k % kQuads;
      const int from = place<kPieces, kQuads>(which, p, q, first);
      store(out + which * a.width + i * kN + q * 4, load<4>(sums + from));
    }
  }
}

// One row a warp, which nothing then makes wait for another: x, dy and d sum of a row in registers,
// and with them the sums of the parameters' gradients. Blocks stay; each ends with one row of them.
// Threads are multiples of 128, so that the four schedulers share the registers evenly.
constexpr int warp_row_threads(int pieces, bool pending, bool centred) {
  return pieces > 4 && (pending || centred) ? 256 : 384;
}

template <typename T, int kPieces, bool kPending, bool kCentred>
__global__ void __launch_bounds__(warp_row_threads(kPieces, kPending, kCentred), 1)
    warp_row_kernel(const Args<T> a) {
  constexpr int kN = 16 / sizeof(T), kSums = kCentred ? 2 : 1;
  constexpr int kWarps = warp_row_threads(kPieces, kPending, kCentred) / VITRINE_WARP;
  const int lane = threadIdx.x % VITRINE_WARP, warp = threadIdx.x / VITRINE_WARP;
  const int vectors = a.width / kN;
  const float count = static_cast<float>(a.width);
  float sums[kSums][kPieces][kN] = {};
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarps;
  for (int64_t row = static_cast<int64_t>(blockIdx.x) * kWarps + warp; row < a.rows;
       row += stride) {
    Row<T, kPieces> r;
    fetch<kPieces, kPending, kCentred>(a, row, lane, VITRINE_WARP, r);
    float g_mean = 0, gn_mean = 0;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int i = p * VITRINE_WARP + lane;
      if (i >= vectors) continue;
      const Vec<T, kN> weight = load<kN>(a.weight + i * kN);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const float n = (to_wide(r.x[p].v[j]) - r.mean) * r.rstd, dy = to_wide(r.dy[p].v[j]);
        const float g = dy * to_wide(weight.v[j]);
        if constexpr (kCentred) g_mean += g;
        gn_mean += g * n;
        sums[0][p][j] += dy * n;
        if constexpr (kCentred) sums[kSums - 1][p][j] += dy;
      }
    }
    if constexpr (kCentred) g_mean = warp_sum(g_mean) / count;
    gn_mean = warp_sum(gn_mean) / count;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int i = p * VITRINE_WARP + lane;
      if (i >= vectors) continue;
      stay_packed(r.x[p]);
      stay_packed(r.dy[p]);
      const Vec<T, kN> weight = load<kN>(a.weight + i * kN);
      float dx[kN];
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const float n = (to_wide(r.x[p].v[j]) - r.mean) * r.rstd;
        const float g = to_wide(r.dy[p].v[j]) * to_wide(weight.v[j]);
        dx[j] = r.rstd * (g - g_mean - n * gn_mean);
        if constexpr (kPending) dx[j] += to_wide(r.dsum[p].v[j]);
      }
      const int64_t at = row * a.width + i * kN;
      a.dx.put(at, dx);
      if constexpr (kPending) a.dx_again.put(at, dx);
    }
  }
  if (a.partial == nullptr) return;
  // The warps' sums are added in the warps' order, a piece at a time.
  constexpr int kPitch = VITRINE_WARP + 4;  // from column to column of a lane
  __shared__ float part[kWarps][kN * kPitch];
  float* out = a.partial + static_cast<int64_t>(blockIdx.x) * kSums * a.width;
#pragma unroll
  for (int which = 0; which < kSums; ++which) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      __syncthreads();
      // Columns j of all lanes side by side: few banks are hit twice.
#pragma unroll
      for (int j = 0; j < kN; ++j) part[warp][j * kPitch + lane] = sums[which][p][j];
      __syncthreads();
      const int c = threadIdx.x, column = p * VITRINE_WARP * kN + c;
      if (c >= VITRINE_WARP * kN || column >= a.width) continue;
      const int from = c % kN * kPitch + c / kN;
      float sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += part[w][from];
      out[which * a.width + column] = sum;
    }
  }
}

// Any width and address; partial sums go straight to memory, each column to its own thread.
template <typename T, bool kPending, bool kCentred>
__global__ void __launch_bounds__(kPlainThreads) plain_norm_backward_kernel(const Args<T> a) {
  using W = Wide<T>;
  __shared__ W shared[VITRINE_WARP];
  W* dweight = a.partial
                   ? a.partial + static_cast<int64_t>(blockIdx.x) * (kCentred ? 2 : 1) * a.width
                   : nullptr;
  const W width = static_cast<W>(a.width);
  bool started = false;
  for (int64_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
    const int64_t start = row * a.width;
    const W mean = kCentred ? a.mean[row] : W{0}, rstd = a.rstd[row];
    W g_sum = 0, gn_sum = 0;
    for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
      const W n = (to_wide(a.x[start + i]) - mean) * rstd;
      const W dy = a.dy ? to_wide(a.dy[start + i]) : W{0};
      const W g = dy * to_wide(a.weight[i]);
      g_sum += g;
      gn_sum += g * n;
      if (!dweight) continue;
      dweight[i] = (started ? dweight[i] : W{0}) + dy * n;
      if (kCentred) dweight[a.width + i] = (started ? dweight[a.width + i] : W{0}) + dy;
    }
    started = true;
    const W g_mean = kCentred ? block_sum(g_sum, shared) / width : W{0};
    const W gn_mean = block_sum(gn_sum, shared) / width;
    for (int i = threadIdx.x; i < a.width; i += blockDim.x) {
      const W n = (to_wide(a.x[start + i]) - mean) * rstd;
      const W g = (a.dy ? to_wide(a.dy[start + i]) : W{0}) * to_wide(a.weight[i]);
      W dx[1] = {rstd * (g - g_mean - n * gn_mean)};
      if (kPending && a.dsum) dx[0] += to_wide(a.dsum[start + i]);
      a.dx.put(start + i, dx);
      a.dx_again.put(start + i, dx);
    }
  }
}

// Room for the partial sums of `blocks` blocks, in the operation's scratch.
template <typename T>
void give_partial(Args<T>& a, int64_t blocks, int64_t columns, bool wanted) {
  a.partial = wanted ? static_cast<Wide<T>*>(
                           workspace(static_cast<size_t>(blocks * columns) * sizeof(Wide<T>)))
                     : nullptr;
}

// Each launch answers how many blocks left partial sums.
template <typename T, int kPieces, NormKind kKind>
int64_t launch(Args<T>& a, int threads, bool parameters) {
  constexpr int kN = 16 / sizeof(T), kSums = norm_centred(kKind) ? 2 : 1;
  const auto kernel = norm_backward_kernel<T, kPieces, norm_pending(kKind), norm_centred(kKind)>;
  const size_t bytes =
      parameters ? static_cast<size_t>(kSums * kPieces * kN * threads) * sizeof(float) : 0;
  if (bytes > 40 * 1024) {
    VITRINE_GPU_CHECK(cudaFuncSetAttribute(
        kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  }
  int resident = 0;
  VITRINE_GPU_CHECK(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, bytes));
  // Enough threads to fill the memory pipes; more would only add partial sums.
  const int enough = 1280 / threads;
  const int a_multiprocessor = std::max(1, std::min(resident, enough));
  const int64_t blocks =
      std::min<int64_t>(static_cast<int64_t>(limits().multiprocessors) * a_multiprocessor, a.rows);
  give_partial(a, blocks, static_cast<int64_t>(kSums) * a.width, parameters);
  kernel<<<static_cast<unsigned>(blocks), static_cast<unsigned>(threads), bytes, stream()>>>(a);
  VITRINE_GPU_LAUNCHED("norm backward");
  return blocks;
}

template <typename T, int kPieces, NormKind kKind>
int64_t launch_warp_rows(Args<T>& a, bool parameters) {
  constexpr bool kPending = norm_pending(kKind), kCentred = norm_centred(kKind);
  constexpr int kThreads = warp_row_threads(kPieces, kPending, kCentred);
  constexpr int kWarps = kThreads / VITRINE_WARP;
  const auto kernel = warp_row_kernel<T, kPieces, kPending, kCentred>;
  int resident = 0;
  VITRINE_GPU_CHECK(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, kThreads, 0));
  const int64_t blocks =
      std::min<int64_t>(static_cast<int64_t>(limits().multiprocessors) * std::clamp(resident, 1, 2),
                        (a.rows + kWarps - 1) / kWarps);
  give_partial(a, blocks, static_cast<int64_t>(kCentred ? 2 : 1) * a.width, parameters);
  kernel<<<static_cast<unsigned>(blocks), kThreads, 0, stream()>>>(a);
  VITRINE_GPU_LAUNCHED("norm backward");
  return blocks;
}

template <typename T, NormKind kKind>
int64_t launch_any(Args<T>& a, bool aligned, bool parameters) {
  if constexpr (sizeof(T) < 8) {
    constexpr int kN = 16 / sizeof(T);
    const int vectors = a.width / kN;
    const auto threads = [&](int pieces) {
      return ((vectors + pieces - 1) / pieces + VITRINE_WARP - 1) / VITRINE_WARP * VITRINE_WARP;
    };
    if (aligned && a.width % kN == 0) {
      const int pieces = (vectors + VITRINE_WARP - 1) / VITRINE_WARP;
      if (pieces <= 1) return launch_warp_rows<T, 1, kKind>(a, parameters);
      if (pieces <= 2) return launch_warp_rows<T, 2, kKind>(a, parameters);
      // Wider rows in a warp's registers leave too few of them in flight (measured: 1.4x slower).
      if (vectors <= most_threads(1)) return launch<T, 1, kKind>(a, threads(1), parameters);
      if (vectors <= 2 * most_threads(2)) return launch<T, 2, kKind>(a, threads(2), parameters);
      if (vectors <= 4 * most_threads(4)) return launch<T, 4, kKind>(a, threads(4), parameters);
    }
  }
  const int64_t blocks =
      std::min<int64_t>(static_cast<int64_t>(limits().multiprocessors) * 4, a.rows);
  give_partial(a, blocks, static_cast<int64_t>(norm_centred(kKind) ? 2 : 1) * a.width, parameters);
  plain_norm_backward_kernel<T, norm_pending(kKind), norm_centred(kKind)>
      <<<static_cast<unsigned>(blocks), kPlainThreads, 0, stream()>>>(a);
  VITRINE_GPU_LAUNCHED("plain norm backward");
  return blocks;
}

}  // namespace

template <NormKind kKind>
void norm_backward(const OpCall& call,
                   std::span<const TensorView> dout,
                   std::span<const GradView> din) {
  constexpr bool kPending = norm_pending(kKind), kCentred = norm_centred(kKind);
  constexpr size_t kParameters = kPending ? 2 : 1;
  const TensorView x = kPending ? call.out[0] : call.in[0];
  if (x.elements() == 0) return clear_gradients(din);
  const TensorView dy = operand(dout, kPending ? 1 : 0);
  const TensorView dsum = kPending ? operand(dout, 0) : TensorView{};
  const GradView dx = operand(din, 0), dx_again = kPending ? operand(din, 1) : GradView{};
  const GradView dweight = operand(din, kParameters);
  const GradView dbias = kCentred ? operand(din, kParameters + 1) : GradView{};
  dispatch_float(x.dtype, "norm", [&]<typename T>() {
    Args<T> a{};
    a.x = x.as<const T>();
    a.weight = call.in[kParameters].as<const T>();
    a.dy = dy.as<const T>();
    a.dsum = dsum.as<const T>();
    a.mean = kCentred ? call.saved[0].as<const Wide<T>>() : nullptr;
    a.rstd = call.saved[kCentred ? 1 : 0].as<const Wide<T>>();
    a.dx = gradient_to<T>(dx, x.dtype, "norm");
    a.dx_again = gradient_to<T>(dx_again, x.dtype, "norm");
    a.rows = x.shape.rows();
    a.width = static_cast<int>(x.shape[-1]);
    const bool parameters = dweight || dbias;
    const bool aligned = aligned_to(
        16,
        {a.x, a.weight, a.dy, a.dsum, dx.view.as<const char>(), dx_again.view.as<const char>()});
    const int64_t blocks = launch_any<T, kKind>(a, aligned, parameters);
    if (!parameters) return;
    sum_columns<T>(a.partial,
                   blocks,
                   a.width,
                   gradient_to<T>(dweight, x.dtype, "norm"),
                   gradient_to<T>(dbias, x.dtype, "norm"),
                   kCentred);
  });
}

#define VITRINE_INSTANCE(kind)       \
  template void norm_backward<kind>( \
      const OpCall&, std::span<const TensorView>, std::span<const GradView>)
VITRINE_INSTANCE(NormKind::kRms);
VITRINE_INSTANCE(NormKind::kAddRms);
VITRINE_INSTANCE(NormKind::kLayer);
VITRINE_INSTANCE(NormKind::kAddLayer);
#undef VITRINE_INSTANCE

}  // namespace vitrine::gpu
