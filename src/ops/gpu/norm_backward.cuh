// rms_norm, layer_norm, and both with a pending residual add: backward. Instances by kind are in
// norm_backward_rms.cu and norm_backward_layer.cu.
//
// With n = (x - mean) rstd and g = dy weight: dx = rstd (g - mean(g) - n mean(g n)) + d sum,
// d weight = sum over rows of dy n, d bias = sum of dy; mean(g) only where centred.
//
// Bytes an element: 3 storage sizes (x, dy, dx), with a pending add 4 or 5 (d sum, and both
// d residual and d delta where both are wanted): [16384, 1536] bf16 is 151 MB, 36 us at 4.17 TB/s,
// or 252 MB, 60 us. About 15 operations an element, 12 us. A team of warps takes a row, one to
// eight vectors of it a lane, and brings it into shared memory while the rows before it are
// reduced. Teams meet at barriers of their own: at those of a block all were in step, and nothing
// hid what a row waits for. Blocks stay: sums of the parameters' gradients are kept in registers
// over all rows, and each block ends with one row of them (a megabyte in all, in L2), which a
// second kernel adds in a fixed order.
#pragma once

#include <algorithm>

#include "gpu/copy_ahead.cuh"
#include "gpu/following.cuh"
#include "ops/gpu/column_sums.cuh"
#include "ops/gpu/norm.h"
#include "ops/gpu/put_once.cuh"

namespace vitrine::gpu::norm_rows {

constexpr int kPlainThreads = 256;       // of a block of the plain kernel
constexpr size_t kBlockOverhead = 2048;  // shared memory besides the copies, the system's included

#if !defined(VITRINE_GPU_HIP) && !defined(VITRINE_GPU_MUSA)
#define VITRINE_GPU_TEAMS
#endif

// How rows of kPieces vectors a lane of kTeam warps are worked on: warps of a block at most, blocks
// of a multiprocessor (which limit the registers), rows of a team that are on their way, the one it
// is at included. As measured on H200 at widths of 512, 640, 1536 and 3584: more warps where a
// thread holds few sums, and two vectors of a layer norm, whose passes are the longest beside their
// bytes, are the exception; a third row where fewer warps leave room for it.
template <int kPieces, int kTeam, bool kPending, bool kCentred>
struct Layout {
  static constexpr bool kManyWarps =
      kPieces == 1 ? kTeam > 2 : kPieces == 2 && kCentred && !kPending;
  static constexpr int kMost = 1024 / VITRINE_WARP;
  static constexpr int kWarps = std::min(kManyWarps ? 24 : kPieces == 8 ? 8 : 16, kMost);
  static constexpr int kTeams = kWarps / kTeam;
  static constexpr int kBlocks = kPieces == 1 && !kManyWarps ? 2 : 1;
  static constexpr int kAhead = kPieces == 1 || kManyWarps || (kPieces > 2 && kPending) ? 2 : 3;
  static constexpr int kThreads = kWarps * VITRINE_WARP;
  static_assert(kTeam == 1 || kTeams <= 15, "one barrier of 16 is the block's own");
};

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

// Of the kTeam warps that share a row.
template <int kTeam>
__device__ __forceinline__ void team_barrier(int name) {
#ifdef VITRINE_GPU_TEAMS
  asm volatile("bar.sync %0, %1;" ::"r"(name), "n"(kTeam * VITRINE_WARP) : "memory");
#else
  __syncthreads();  // of blocks of one team
#endif
}

// Both sums over the warps of a team, by all of its threads. One barrier a row: `shared` has two
// halves that take turns.
template <int kTeam, int kWarps>
__device__ __forceinline__ void team_sums(float& a, float& b, float2 (*shared)[kWarps], int turn) {
  const int warp = static_cast<int>(threadIdx.x) / VITRINE_WARP, index = warp / kTeam;
  if (threadIdx.x % VITRINE_WARP == 0) shared[turn][warp] = make_float2(a, b);
  team_barrier<kTeam>(index + 1);
  a = b = 0;
#pragma unroll
  for (int w = 0; w < kTeam; ++w) {
    const float2 part = shared[turn][index * kTeam + w];
    a += part.x;
    b += part.y;
  }
}

// A team of kTeam warps a row, kPieces vectors of it a lane.
template <typename T, int kPieces, int kTeam, bool kPending, bool kCentred>
__global__ void __launch_bounds__((Layout<kPieces, kTeam, kPending, kCentred>::kThreads),
                                  (Layout<kPieces, kTeam, kPending, kCentred>::kBlocks))
    norm_backward_kernel(const Args<T> a, int ahead) {
  using L = Layout<kPieces, kTeam, kPending, kCentred>;
  constexpr int kN = 16 / sizeof(T), kSums = kCentred ? 2 : 1, kTensors = kPending ? 3 : 2;
  constexpr int kStep = kTeam * VITRINE_WARP;  // vectors between pieces, and threads of a team
  extern __shared__ uint4 ring[];
  __shared__ float2 shared[2][L::kWarps];
  const int threads = static_cast<int>(blockDim.x), teams = threads / kStep;
  const int lane = threadIdx.x % VITRINE_WARP, warp = threadIdx.x / VITRINE_WARP;
  const int own = warp / kTeam;
  const int first = warp % kTeam * VITRINE_WARP + lane, vectors = a.width / kN;
  const float inverse_count = 1.0f / static_cast<float>(a.width);
  const T* const source[3] = {a.x, a.dy, a.dsum};
  // Of a team: [stage][tensor][piece][thread] of 16 bytes, so that a warp's accesses are side by
  // side.
  uint4* const copies = ring + own * (ahead * kTensors * kPieces * kStep) + first;
  const auto place = [&](int stage, int tensor, int piece) {
    return copies + ((stage * kTensors + tensor) * kPieces + piece) * kStep;
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
          const int i = p * kStep + first;
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
    for (int k = 0; k < ahead * kPieces; ++k) *place(k / kPieces, t, k % kPieces) = uint4{};
  }
  const int64_t stride = static_cast<int64_t>(gridDim.x) * teams;
  const int64_t base = static_cast<int64_t>(blockIdx.x) * teams + own;
  wait_for_previous();
  for (int s = 0; s < ahead; ++s) fetch(base + s * stride, s);
  Vec<T, kN> weight[kPieces];
#pragma unroll
  for (int p = 0; p < kPieces; ++p) {
    const int i = p * kStep + first;
    if (i < vectors) weight[p] = load<kN>(a.weight + i * kN);
  }
  Statistics<T> next = statistics_of<kCentred>(a, base);
  float sums[kSums][kPieces][kN] = {};
  int stage = 0, turn = 0;
  int64_t row = base;
  for (; row < a.rows; row += stride) {
    const Statistics<T> s = next;
    next = statistics_of<kCentred>(a, row + stride);
    if (L::kAhead > 2 && ahead > 2) {
      wait_for_oldest<L::kAhead>();
    } else {
      wait_for_oldest<2>();
    }
    float g_sum = 0, gc_sum = 0;  // of g and of g (x - mean)
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int i = p * kStep + first;
      if (i >= vectors) continue;
      stay_packed(weight[p]);
      float x[kN], dy[kN], w[kN];
      widen(value(stage, 0, p), x);
      widen(value(stage, 1, p), dy);
      widen(weight[p], w);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        const float dc = dy[j] * (kCentred ? x[j] - s.mean : x[j]);
        gc_sum += dc * w[j];
        sums[0][p][j] += dc * s.rstd;
        if constexpr (kCentred) {
          g_sum += dy[j] * w[j];
          sums[kSums - 1][p][j] += dy[j];
        }
      }
    }
    if constexpr (kCentred) g_sum = warp_sum(g_sum);
    gc_sum = warp_sum(gc_sum);
    if constexpr (kTeam > 1) team_sums<kTeam, L::kWarps>(g_sum, gc_sum, shared, turn);
    turn ^= 1;
    // dx = rstd g - (x - mean) slope - level. Two-byte values are moved by one product and a shift,
    // which loses nothing that they have; f32 takes n = (x - mean) rstd, whatever its magnitude.
    const float gn_mean = s.rstd * (gc_sum * inverse_count);
    const float level = s.rstd * (g_sum * inverse_count);
    const float slope = s.rstd * (s.rstd * gn_mean);
    const float shift = s.mean * slope - level;
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      const int i = p * kStep + first;
      if (i >= vectors) continue;
      stay_packed(weight[p]);
      float x[kN], dy[kN], w[kN], dx[kN] = {};
      widen(value(stage, 0, p), x);
      widen(value(stage, 1, p), dy);
      if constexpr (kPending) widen(value(stage, 2, p), dx);
      widen(weight[p], w);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        if constexpr (sizeof(T) == 2) {
          dx[j] += kCentred ? shift - x[j] * slope : -(x[j] * slope);
        } else {
          const float n = (kCentred ? x[j] - s.mean : x[j]) * s.rstd;
          dx[j] -= s.rstd * (n * gn_mean) + level;
        }
        dx[j] += s.rstd * (dy[j] * w[j]);
      }
      const int64_t at = row * a.width + i * kN;
      put_once(a.dx, at, dx);
      if constexpr (kPending) put_once(a.dx_again, at, dx);
    }
    fetch(row + ahead * stride, stage);
    if (++stage == ahead) stage = 0;
  }
  // Teams that had a row less than the block's first, whose row is now row - own, meet once more:
  // compute-sanitizer's racecheck sees threads of unequally many barriers as out of step for good,
  // the block's barriers below or not.
  if constexpr (kTeam > 1) {
    if (row - own < a.rows) team_barrier<kTeam>(own + 1);
  }
  if (a.partial == nullptr) return;
  let_next_begin();
  // The teams' sums [sum][team][column] are added in the teams' order, where the copies lay:
  // nothing but empty stages is left of those.
  constexpr int kQuads = kN / 4, kPitch = kPieces * kStep * kN;
  static_assert(kSums * kN * sizeof(float) <= 2 * kTensors * sizeof(uint4));
  auto* part = reinterpret_cast<float*>(ring);
  __syncthreads();
#pragma unroll
  for (int which = 0; which < kSums; ++which) {
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      float* to = part + (which * teams + own) * kPitch + (p * kStep + first) * kN;
#pragma unroll
      for (int k = 0; k < kQuads; ++k) {
        // Of eight lanes four write the other half first: each in banks of its own.
        const bool other = kQuads == 2 && (lane & 4) != 0;
        Vec<float, 4> quad;
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          const float far = sums[which][p][(kQuads - 1 - k) * 4 + j];
          quad.v[j] = other ? far : sums[which][p][k * 4 + j];
        }
        *reinterpret_cast<Vec<float, 4>*>(to + (other ? kQuads - 1 - k : k) * 4) = quad;
      }
    }
  }
  __syncthreads();
  float* out = a.partial + static_cast<int64_t>(blockIdx.x) * kSums * a.width;
  for (int i = static_cast<int>(threadIdx.x) * 4; i < kSums * a.width; i += threads * 4) {
    const int which = i >= a.width ? 1 : 0;
    const float* from = part + which * teams * kPitch + (i - which * a.width);
    Vec<float, 4> sum{};
    for (int t = 0; t < teams; ++t) {
      const auto of_team = load<4>(from + t * kPitch);
#pragma unroll
      for (int j = 0; j < 4; ++j) sum.v[j] += of_team.v[j];
    }
    store(out + i, sum);
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

// Each launch answers how many blocks left partial sums; 0: shared memory does not hold the rows.
template <typename T, int kPieces, int kTeam, NormKind kKind>
int64_t launch(Args<T>& a, bool parameters) {
  constexpr bool kPending = norm_pending(kKind), kCentred = norm_centred(kKind);
  using L = Layout<kPieces, kTeam, kPending, kCentred>;
  const auto kernel = norm_backward_kernel<T, kPieces, kTeam, kPending, kCentred>;
  constexpr size_t kRow = size_t{16} * (kPending ? 3 : 2) * kPieces * kTeam * VITRINE_WARP;
  const size_t all = limits().shared_bytes_a_block / L::kBlocks;
  const size_t room = all > kBlockOverhead ? all - kBlockOverhead : 0;
#ifdef VITRINE_GPU_TEAMS
  constexpr size_t kMostTeams = L::kTeams;
#else
  constexpr size_t kMostTeams = kTeam == 1 ? L::kTeams : 1;
#endif
  const int ahead = L::kAhead * kRow <= room ? L::kAhead : 2;
  const size_t of_team = static_cast<size_t>(ahead) * kRow;
  if (of_team > room) return 0;
  const size_t teams = std::min(kMostTeams, room / of_team), bytes = of_team * teams;
  const int64_t rows = static_cast<int64_t>(teams);
  const int64_t blocks = std::min<int64_t>(
      static_cast<int64_t>(limits().multiprocessors) * L::kBlocks, (a.rows + rows - 1) / rows);
  VITRINE_GPU_CHECK(cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  give_partial(a, blocks, static_cast<int64_t>(kCentred ? 2 : 1) * a.width, parameters);
  launch_following({"norm backward",
                    static_cast<unsigned>(blocks),
                    static_cast<unsigned>(teams * kTeam * VITRINE_WARP),
                    bytes},
                   kernel,
                   a,
                   ahead);
  return blocks;
}

// The smallest layout that holds a row.
template <typename T, NormKind kKind>
int64_t launch_rows(Args<T>& a, bool parameters) {
  const int vectors = a.width / static_cast<int>(16 / sizeof(T));
  const int warps = (vectors + VITRINE_WARP - 1) / VITRINE_WARP;  // of one vector a lane
  if (warps <= 1) return launch<T, 1, 1, kKind>(a, parameters);
  if (warps <= 2) return launch<T, 1, 2, kKind>(a, parameters);
  if (warps <= 3) return launch<T, 1, 3, kKind>(a, parameters);
  if (warps <= 4) return launch<T, 1, 4, kKind>(a, parameters);
  if (warps <= 6) return launch<T, 1, 6, kKind>(a, parameters);
  if (warps <= 8) return launch<T, 1, 8, kKind>(a, parameters);
  if (warps <= 10) return launch<T, 2, 5, kKind>(a, parameters);
  if (warps <= 16) return launch<T, 2, 8, kKind>(a, parameters);
  if (warps <= 32) return launch<T, 4, 8, kKind>(a, parameters);
  if (warps <= 64) return launch<T, 8, 8, kKind>(a, parameters);
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
      <<<static_cast<unsigned>(blocks), kPlainThreads, 0, stream()>>>(a);
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
