// rms_norm, layer_norm, and both with a pending residual add: backward. Instances by kind are in
// norm_backward_rms.cu and norm_backward_layer.cu.
//
// With n = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - n mean(g n)) + d sum,
// d weight = sum over rows of dy n, d bias = sum of dy; mean(g) only where centred.
//
// Bytes an element: 3 storage sizes (x, dy, dx), with a pending add 4 or 5 (d sum, and both
// d residual and d delta where both are wanted): [16384, 1536] bf16 is 151 MB, 36 us at 4.17 TB/s,
// or 252 MB, 60 us. About 15 operations an element, 12 us. A warp takes a row, or a team of warps a
// wide one, and brings it into shared memory while the row before it is reduced. Blocks
// stay: sums of the parameters' gradients are kept in registers over all rows, and each block ends
// with one row of them (a megabyte in all, in L2), which a second kernel adds in a fixed order.
#pragma once

#include <algorithm>

#include "gpu/copy_ahead.cuh"
#include "gpu/following.cuh"
#include "ops/gpu/column_sums.cuh"
#include "ops/gpu/norm.h"
#include "ops/gpu/put_once.cuh"

namespace vitrine::gpu::norm_rows {

constexpr int kWarps = 8;  // of a block
constexpr int kThreads = kWarps * VITRINE_WARP;
constexpr size_t kBlockOverhead = 2048;  // shared memory besides the copies, the system's included

// Resident blocks of a multiprocessor for rows of `pieces` vectors a lane, where its shared memory
// holds so many: teams, which meet at a barrier every row, gain from a second block.
constexpr int blocks_of(int pieces, bool teams) { return pieces <= (teams ? 4 : 3) ? 2 : 1; }

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

template <typename T>
struct Statistics {
  Wide<T> mean = 0, rstd = 0;
};

template <bool kCentred, typename T>
__device__ __forceinline__ Statistics<T> statistics_of(const Args<T>& a, int64_t row) {
  if (row >= a.rows) return {};
  return {kCentred ? a.mean[row] : Wide<T>{0}, a.rstd[row]};
}

// Where the copies of a thread lie: [stage][tensor][piece][thread] of 16 bytes, so that a warp's
// accesses are side by side.
template <int kPieces, int kTensors>
__device__ __forceinline__ uint4* place_of(uint4* ring, int stage, int tensor, int piece) {
  return ring + ((stage * kTensors + tensor) * kPieces + piece) * kThreads + threadIdx.x;
}

// Both sums over the warps of a team; every thread of the block calls it. One barrier a row:
// `shared` has two halves that take turns.
__device__ __forceinline__ void team_sums(
    float& a, float& b, float2 (*shared)[kWarps], int turn, int team) {
  const int warp = static_cast<int>(threadIdx.x) / VITRINE_WARP;
  if (threadIdx.x % VITRINE_WARP == 0) shared[turn][warp] = make_float2(a, b);
  __syncthreads();
  a = b = 0;
  for (int w = warp / team * team, end = w + team; w < end; ++w) {
    const float2 part = shared[turn][w];
    a += part.x;
    b += part.y;
  }
}

// A team of `team` warps (1 unless kTeams) a row, kPieces vectors of it a lane.
template <typename T, int kPieces, bool kTeams, bool kPending, bool kCentred, int kBlocks>
__global__ void __launch_bounds__(kThreads, kBlocks)
    norm_backward_kernel(const Args<T> a, int team) {
  constexpr int kN = 16 / sizeof(T), kSums = kCentred ? 2 : 1, kTensors = kPending ? 3 : 2;
  extern __shared__ uint4 ring[];
  __shared__ float2 shared[2][kWarps];
  if constexpr (!kTeams) team = 1;
  const int lane = threadIdx.x % VITRINE_WARP, warp = threadIdx.x / VITRINE_WARP;
  const int teams = kWarps / team, step = team * VITRINE_WARP;  // vectors between pieces
  const int first = warp % team * VITRINE_WARP + lane, vectors = a.width / kN;
  const float count = static_cast<float>(a.width);
  const T* const source[3] = {a.x, a.dy, a.dsum};
  const auto place = [&](int stage, int tensor, int piece) {
    return place_of<kPieces, kTensors>(ring, stage, tensor, piece);
  };
  const auto value = [&](int stage, int tensor, int piece) {
    return load<kN>(reinterpret_cast<const T*>(place(stage, tensor, piece)));
  };
  const auto fetch = [&](int64_t row, int stage) {
    if (row < a.rows) {
#pragma unroll
      for (int t = 0; t < kTensors; ++t) {
        if (!source[t]) continue;
        const T* from = source[t] + row * a.width;
#pragma unroll
        for (int p = 0; p < kPieces; ++p) {
          const int i = p * step + first;
          if (i < vectors) copy_ahead(place(stage, t, p), from + i * kN);
        }
      }
    }
    end_stage();
  };
  // What is not given stays zero.
#pragma unroll
  for (int t = 1; t < kTensors; ++t) {
    if (source[t]) continue;
    for (int k = 0; k < kStages * kPieces; ++k) *place(k / kPieces, t, k % kPieces) = uint4{};
  }
  const int64_t stride = static_cast<int64_t>(gridDim.x) * teams;
  const int64_t base = static_cast<int64_t>(blockIdx.x) * teams, own = warp / team;
  wait_for_previous();
  let_next_begin();  // in the places beside these blocks, which are all there at once
  for (int s = 0; s < kStages; ++s) fetch(base + own + s * stride, s);
  Vec<T, kN> weight[kPieces];
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int i = p * step + first;
    if (i < vectors) weight[p] = load<kN>(a.weight + i * kN);
  }
  Statistics<T> next = statistics_of<kCentred>(a, base + own);
  float sums[kSums][kPieces][kN] = {};
  int stage = 0;
  // Teams meet at a barrier, so that all of a block go as many rounds.
  for (int64_t row = base + own; row - (kTeams ? own : 0) < a.rows; row += stride) {
    const Statistics<T> s = next;
    next = statistics_of<kCentred>(a, row + stride);
    wait_for_oldest();
    const bool there = !kTeams || row < a.rows;
    float g_mean = 0, gn_mean = 0;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int i = p * step + first;
      if (i >= vectors || !there) continue;
      const Vec<T, kN> x = value(stage, 0, p), dy = value(stage, 1, p);
      stay_packed(weight[p]);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const float n = (to_wide(x.v[j]) - s.mean) * s.rstd, d = to_wide(dy.v[j]);
        const float g = d * to_wide(weight[p].v[j]);
        if constexpr (kCentred) g_mean += g;
        gn_mean += g * n;
        sums[0][p][j] += d * n;
        if constexpr (kCentred) sums[kSums - 1][p][j] += d;
      }
    }
    if constexpr (kCentred) g_mean = warp_sum(g_mean);
    gn_mean = warp_sum(gn_mean);
    if constexpr (kTeams) team_sums(g_mean, gn_mean, shared, stage, team);
    g_mean /= count;
    gn_mean /= count;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int i = p * step + first;
      if (i >= vectors || !there) continue;
      const Vec<T, kN> x = value(stage, 0, p), dy = value(stage, 1, p);
      stay_packed(weight[p]);
      Vec<T, kN> dsum;
      if constexpr (kPending) dsum = value(stage, 2, p);
      float dx[kN];
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const float n = (to_wide(x.v[j]) - s.mean) * s.rstd;
        const float g = to_wide(dy.v[j]) * to_wide(weight[p].v[j]);
        dx[j] = s.rstd * (g - g_mean - n * gn_mean);
        if constexpr (kPending) dx[j] += to_wide(dsum.v[j]);
      }
      const int64_t at = row * a.width + i * kN;
      put_once(a.dx, at, dx);
      if constexpr (kPending) put_once(a.dx_again, at, dx);
    }
    fetch(row + kStages * stride, stage);
    stage ^= 1;
  }
  if (a.partial == nullptr) return;
  // The teams' sums are added in the teams' order, where the copies lay: nothing but empty stages
  // is left of those, and two stages of two tensors are more than one sum of all pieces.
  constexpr int kPitch = VITRINE_WARP + 4;  // from column to column of a lane: few banks twice
  constexpr int kOfWarp = kN * kPitch, kOfPiece = kWarps * kOfWarp;
  static_assert(kOfPiece * sizeof(float) <= 4 * 16 * kThreads);
  float* part = reinterpret_cast<float*>(ring);
  float* out = a.partial + static_cast<int64_t>(blockIdx.x) * kSums * a.width;
#pragma unroll
  for (int which = 0; which < kSums; ++which) {
    __syncthreads();
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        part[p * kOfPiece + warp * kOfWarp + j * kPitch + lane] = sums[which][p][j];
      }
    }
    __syncthreads();
#pragma unroll kPieces
    for (int column = threadIdx.x; column < a.width; column += kThreads) {
      const int vector = column / kN, p = vector / step, rest = vector - p * step;
      const float* from = part + p * kOfPiece + rest / VITRINE_WARP * kOfWarp +
                          column % kN * kPitch + rest % VITRINE_WARP;
      float sum = 0;
      for (int t = 0; t < teams; ++t) sum += from[t * team * kOfWarp];
      out[which * a.width + column] = sum;
    }
  }
}

// Any width and address; partial sums go straight to memory, each column to its own thread.
template <typename T, bool kPending, bool kCentred>
__global__ void __launch_bounds__(kThreads) plain_norm_backward_kernel(const Args<T> a) {
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

// Each launch answers how many blocks left partial sums; 0: shared memory does not hold the rows.
template <typename T,
          int kPieces,
          bool kTeams,
          NormKind kKind,
          int kBlocks = blocks_of(kPieces, kTeams)>
int64_t launch(Args<T>& a, int team, bool parameters) {
  constexpr bool kPending = norm_pending(kKind), kCentred = norm_centred(kKind);
  const auto kernel = norm_backward_kernel<T, kPieces, kTeams, kPending, kCentred, kBlocks>;
  constexpr size_t kStage = size_t{16} * (kPending ? 3 : 2) * kPieces * kThreads;
  constexpr size_t kBytes = kStages * kStage;
  if (kBytes + kBlockOverhead > limits().shared_bytes_a_block / kBlocks) {
    if constexpr (kBlocks > 1) return launch<T, kPieces, kTeams, kKind, 1>(a, team, parameters);
    return 0;
  }
  VITRINE_GPU_CHECK(cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes)));
  const int64_t teams = kWarps / team;
  const int64_t blocks = std::min<int64_t>(static_cast<int64_t>(limits().multiprocessors) * kBlocks,
                                           (a.rows + teams - 1) / teams);
  give_partial(a, blocks, static_cast<int64_t>(kCentred ? 2 : 1) * a.width, parameters);
  launch_following(
      {"norm backward", static_cast<unsigned>(blocks), kThreads, kBytes}, kernel, a, team);
  return blocks;
}

template <typename T, NormKind kKind>
int64_t launch_rows(Args<T>& a, bool parameters) {
  const int vectors = a.width / static_cast<int>(16 / sizeof(T));
  const int pieces = (vectors + VITRINE_WARP - 1) / VITRINE_WARP;
  if (pieces <= 1) return launch<T, 1, false, kKind>(a, 1, parameters);
  if (pieces <= 2) return launch<T, 2, false, kKind>(a, 1, parameters);
  if (pieces <= 3) return launch<T, 3, false, kKind>(a, 1, parameters);
  if (pieces <= 4) return launch<T, 4, false, kKind>(a, 1, parameters);
  if (pieces <= 6) return launch<T, 6, false, kKind>(a, 1, parameters);
  if (pieces <= 8) return launch<T, 4, true, kKind>(a, 2, parameters);
  if (pieces <= 16) return launch<T, 4, true, kKind>(a, 4, parameters);
  if (pieces <= 32) return launch<T, 4, true, kKind>(a, 8, parameters);
  if (pieces <= 64) return launch<T, 8, true, kKind>(a, 8, parameters);
  return 0;
}

template <typename T, NormKind kKind>
int64_t launch_any(Args<T>& a, bool aligned, bool parameters) {
  if constexpr (sizeof(T) < 8) {
    if (aligned && a.width % static_cast<int>(16 / sizeof(T)) == 0) {
      const int64_t blocks = launch_rows<T, kKind>(a, parameters);
      if (blocks > 0) return blocks;
    }
  }
  const int64_t blocks =
      std::min<int64_t>(static_cast<int64_t>(limits().multiprocessors) * 4, a.rows);
  give_partial(a, blocks, static_cast<int64_t>(norm_centred(kKind) ? 2 : 1) * a.width, parameters);
  plain_norm_backward_kernel<T, norm_pending(kKind), norm_centred(kKind)>
      <<<static_cast<unsigned>(blocks), kThreads, 0, stream()>>>(a);
  VITRINE_GPU_LAUNCHED("plain norm backward");
  return blocks;
}

}  // namespace vitrine::gpu::norm_rows

namespace vitrine::gpu {

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
    norm_rows::Args<T> a{};
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
    const int64_t blocks = norm_rows::launch_any<T, kKind>(a, aligned, parameters);
    if (!parameters) return;
    sum_columns<T>(a.partial,
                   blocks,
                   a.width,
                   gradient_to<T>(dweight, x.dtype, "norm"),
                   gradient_to<T>(dbias, x.dtype, "norm"),
                   kCentred);
  });
}

}  // namespace vitrine::gpu
