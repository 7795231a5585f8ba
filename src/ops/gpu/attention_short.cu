// Attention of at most 64 positions on tensor cores for two-byte dtypes, any mask and axis: one
// kernel a direction. A team of one, two or four warps (16 queries each) brings a whole head into
// shared memory, so that every operand crosses the memory bus once, in 16-byte pieces: qkv and out
// forward, qkv, dout and dqkv backward. The row sums of backward come from p and dp, which are
// there, not from out. At [16384 tokens, H d 512] 67 MB forward and 117 MB backward: 16 and 28 us
// on H200; the products (4 and 10 L L d operations a head) take less at L <= 64.
#include <cmath>

#include "gpu/copy_async.cuh"
#include "ops/gpu/attention_mma.cuh"
#include "ops/gpu/attention_mma.h"

namespace vitrine::gpu {
namespace {

constexpr int kWarps = 4;

// The warps that share a head.
template <int kTiles>
struct Team {
  static constexpr int kThreads = kTiles * VITRINE_WARP;
  static constexpr int kOfBlock = kWarps / kTiles;
  int index = static_cast<int>(threadIdx.x) / kThreads;
  int thread = static_cast<int>(threadIdx.x) % kThreads;
  int warp = thread / VITRINE_WARP;

  __device__ int64_t item() const { return int64_t{blockIdx.x} * kOfBlock + index; }
  // Barrier 0 is the block's.
  __device__ void sync() const {
    if constexpr (kTiles == 1) {
      __syncwarp();
    } else {
      asm volatile("bar.sync %0, %1;" ::"r"(index + 1), "n"(kThreads) : "memory");
    }
  }
  template <typename T, int kD>
  __device__ void load(const WarpTile<T, kD, 16 * kTiles>& tile, const StridedRows<T>& rows) const {
    constexpr int kPieces = kD / 8;
#pragma unroll
    for (int i = 0; i < 16 * kPieces / VITRINE_WARP; ++i) {
      const int at = thread + i * kThreads, r = at / kPieces, c = at % kPieces * 8;
      const bool there = r < rows.length;
      copy_async(
          tile.data + r * tile.kPitch + c, rows.data + (there ? r * rows.step : 0) + c, there);
    }
  }
};

// Rows [first, first + 16) of a tile as A fragments.
template <typename T, int kD, int kRows>
__device__ __forceinline__ void tile_rows(FragmentA (&own)[kD / 16],
                                          const WarpTile<T, kD, kRows>& tile,
                                          int first) {
  const int lane = lane_index();
#pragma unroll
  for (int k = 0; k < kD / 16; ++k) {
    load_matrices<false>(own[k],
                         tile.data + (first + lane % 16) * tile.kPitch + k * 16 + lane / 16 * 8);
  }
}

// sum[16, kD] += weights[:, first .. first + 16)ᵀ tile, with weights [kRows, kRows].
template <typename T, int kD, int kRows>
__device__ __forceinline__ void add_transposed(FragmentC (&sum)[kD / 8],
                                               const WarpTile<T, kRows, kRows>& weights,
                                               int first,
                                               const WarpTile<T, kD, kRows>& tile) {
  const int lane = lane_index();
#pragma unroll
  for (int k = 0; k < kRows / 16; ++k) {
    FragmentA a;
    load_matrices<true>(a,
                        weights.data + (k * 16 + lane / 16 * 8 + lane % 8) * weights.kPitch +
                            first + lane / 8 % 2 * 8);
#pragma unroll
    for (int n = 0; n < kD / 16; ++n) {
      uint32_t b[4];
      load_matrices<true>(b,
                          tile.data + (k * 16 + lane % 16) * tile.kPitch + n * 16 + lane / 16 * 8);
      multiply_add(T{}, sum[2 * n], a, b[0], b[1]);
      multiply_add(T{}, sum[2 * n + 1], a, b[2], b[3]);
    }
  }
}

// Rows [first, first + 16) of a tile from C fragments, by one warp, which alone uses these rows.
template <typename T, int kColumns, int kRows>
__device__ __forceinline__ void keep_rows(const WarpTile<T, kColumns, kRows>& tile,
                                          int first,
                                          const FragmentC (&c)[kColumns / 8],
                                          const float (&factor)[2]) {
  const int lane = lane_index();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    T* row = tile.data + (first + lane / 4 + half * 8) * tile.kPitch + lane % 4 * 2;
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      *reinterpret_cast<uint32_t*>(row + n * 8) =
          pack(T{}, factor[half] * c[n][half * 2], factor[half] * c[n][half * 2 + 1]);
    }
  }
}

// rows[first + 16, kD] (+)= factor * sum, through rows of a tile that nobody reads any more, so
// that whole lines are written.
template <typename T, typename D, int kD, int kRows>
__device__ __forceinline__ void write_rows(const WarpTile<T, kD, kRows>& tile,
                                           int first,
                                           D* rows,
                                           int64_t step,
                                           int64_t length,
                                           const FragmentC (&sum)[kD / 8],
                                           const float (&factor)[2],
                                           bool accumulate) {
  if (sizeof(D) != sizeof(T) || accumulate) {
    put_rows<D, kD>(rows, step, length, first, sum, factor, accumulate);
    return;
  }
  __syncwarp();
  keep_rows(tile, first, sum, factor);
  __syncwarp();
  constexpr int kPieces = kD / 8;
#pragma unroll
  for (int i = 0; i < 16 * kPieces / VITRINE_WARP; ++i) {
    const int at = lane_index() + i * VITRINE_WARP, r = first + at / kPieces, c = at % kPieces * 8;
    if (r >= length) continue;
    *reinterpret_cast<uint4*>(rows + r * step + c) =
        *reinterpret_cast<const uint4*>(tile.data + r * tile.kPitch + c);
  }
}

template <typename T, int kD, int kTiles>
constexpr size_t kForwardBytes = sizeof(T) * Team<kTiles>::kOfBlock *
                                 3 * WarpTile<T, kD, 16 * kTiles>::kElements;

template <typename T, int kD, int kTiles>
__global__ void __launch_bounds__(kWarps* VITRINE_WARP) short_forward_kernel(
    PackedPlaces s, int64_t items, float scale, const T* qkv, T* out, float* lse) {
  constexpr int kRows = 16 * kTiles;
  using Tile = WarpTile<T, kD, kRows>;
  extern __shared__ __align__(16) unsigned char bytes[];
  const Team<kTiles> team;
  if (team.item() >= items) return;
  const int64_t group = team.item() / s.heads, head = team.item() % s.heads;
  const int64_t key_head = s.heads + head / (s.heads / s.kv_heads);
  T* shared = reinterpret_cast<T*>(bytes) + team.index * (3 * Tile::kElements);
  const Tile queries{shared}, keys{shared + Tile::kElements}, values{shared + 2 * Tile::kElements};
  team.load(queries, packed_rows(s, qkv, s.qkv_width(), group, head));
  team.load(keys, packed_rows(s, qkv, s.qkv_width(), group, key_head));
  team.load(values, packed_rows(s, qkv, s.qkv_width(), group, key_head + s.kv_heads));
  wait_for_copies();
  team.sync();

  const int first = team.warp * 16, lane = lane_index();
  FragmentA q[kD / 16];
  tile_rows(q, queries, first);
  FragmentC p[kRows / 8];
  clear(p);
  keys.scores(p, q);
  const int row[2] = {first + lane / 4, first + lane / 4 + 8};
  const float factor = scale * kLog2E;
  float highest[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0}, inverse[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int seen = static_cast<int>(s.limit(row[half]));
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
      for (int i = half * 2; i < half * 2 + 2; ++i) {
        const int j = n * 8 + lane % 4 * 2 + i % 2;
        p[n][i] = j < seen ? p[n][i] * factor : -INFINITY;
        highest[half] = fmaxf(highest[half], p[n][i]);
      }
    }
    highest[half] = row_max(highest[half]);
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
      for (int i = half * 2; i < half * 2 + 2; ++i) {
        p[n][i] = fast_exp2(p[n][i] - highest[half]);
        total[half] += p[n][i];
      }
    }
    total[half] = row_sum(total[half]);
    inverse[half] = 1 / total[half];
    if (lane % 4 == 0 && row[half] < s.length) {
      lse[team.item() * s.length + row[half]] = kLn2 * (highest[half] + log2f(total[half]));
    }
  }
  FragmentC sum[kD / 8];
  clear(sum);
  values.add_product(sum, p);
  write_rows<T, T>(queries,
                   first,
                   out + s.first_row(group) * s.out_width() + head * s.d,
                   s.inner * s.out_width(),
                   s.length,
                   sum,
                   inverse,
                   false);
}

template <typename T, int kD, int kTiles>
constexpr size_t kBackwardBytes =
    sizeof(T) * Team<kTiles>::kOfBlock*(4 * WarpTile<T, kD, 16 * kTiles>::kElements +
                                        2 * WarpTile<T, 16 * kTiles, 16 * kTiles>::kElements);

// As many query heads as key heads. Each warp makes p and ds of its 16 queries and with them dq;
// after the exchange through shared memory dk and dv of 16 keys.
template <typename T, typename D, int kD, int kTiles>
__global__ void __launch_bounds__(kWarps* VITRINE_WARP, kTiles == 4 ? 3 : 4)
    short_backward_kernel(PackedPlaces s,
                          int64_t items,
                          float scale,
                          const T* qkv,
                          const T* dout,
                          const float* lse,
                          D* dqkv,
                          bool accumulate) {
  constexpr int kRows = 16 * kTiles;
  using Tile = WarpTile<T, kD, kRows>;
  using Square = WarpTile<T, kRows, kRows>;  // of queries by keys
  extern __shared__ __align__(16) unsigned char bytes[];
  const Team<kTiles> team;
  if (team.item() >= items) return;
  const int64_t group = team.item() / s.heads, head = team.item() % s.heads;
  T* shared =
      reinterpret_cast<T*>(bytes) + team.index * (4 * Tile::kElements + 2 * Square::kElements);
  const Tile queries{shared}, keys{shared + Tile::kElements}, values{shared + 2 * Tile::kElements},
      douts{shared + 3 * Tile::kElements};
  const Square weights{shared + 4 * Tile::kElements}, gradients{weights.data + Square::kElements};
  team.load(queries, packed_rows(s, qkv, s.qkv_width(), group, head));
  team.load(keys, packed_rows(s, qkv, s.qkv_width(), group, s.heads + head));
  team.load(values, packed_rows(s, qkv, s.qkv_width(), group, 2 * s.heads + head));
  team.load(douts, packed_rows(s, dout, s.out_width(), group, head));
  wait_for_copies();
  team.sync();

  const int first = team.warp * 16, lane = lane_index();
  const float ones[2] = {1, 1}, scales[2] = {scale, scale};
  FragmentC sum[kD / 8];
  {
    FragmentA own[kD / 16];
    FragmentC p[kRows / 8], ds[kRows / 8];
    clear(p);
    clear(ds);
    tile_rows(own, queries, first);
    keys.scores(p, own);
    tile_rows(own, douts, first);
    values.scores(ds, own);
    const float factor = scale * kLog2E;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int row = first + lane / 4 + half * 8;
      const bool there = row < s.length;
      const int seen = there ? static_cast<int>(s.limit(row)) : 0;
      const float row_lse = there ? lse[team.item() * s.length + row] * kLog2E : 0.0f;
      float total = 0;
#pragma unroll
      for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) {
          const int j = n * 8 + lane % 4 * 2 + i % 2;
          p[n][i] = j < seen ? fast_exp2(p[n][i] * factor - row_lse) : 0.0f;
          total += p[n][i] * ds[n][i];
        }
      }
      total = row_sum(total);
#pragma unroll
      for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
        for (int i = half * 2; i < half * 2 + 2; ++i) ds[n][i] = p[n][i] * (ds[n][i] - total);
      }
    }
    keep_rows(weights, first, p, ones);
    keep_rows(gradients, first, ds, ones);
    clear(sum);
    keys.add_product(sum, ds);
  }
  // Keys and values have been read by all, p and ds are there.
  team.sync();
  D* base = dqkv + s.first_row(group) * s.qkv_width() + head * s.d;
  const int64_t step = s.inner * s.qkv_width(), to_next = int64_t{s.heads} * s.d;
  write_rows(keys, first, base, step, s.length, sum, scales, accumulate);
  clear(sum);
  add_transposed(sum, weights, first, douts);
  write_rows(values, first, base + 2 * to_next, step, s.length, sum, ones, accumulate);
  clear(sum);
  add_transposed(sum, gradients, first, queries);
  write_rows(keys, first, base + to_next, step, s.length, sum, scales, accumulate);
}

template <int kTiles, typename... Parameters, typename... Arguments>
void launch_teams(void (*kernel)(Parameters...),
                  size_t bytes,
                  int64_t items,
                  const Arguments&... arguments) {
  VITRINE_GPU_CHECK(cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
  constexpr int kOfBlock = Team<kTiles>::kOfBlock;
  kernel<<<static_cast<unsigned>((items + kOfBlock - 1) / kOfBlock),
           kWarps * VITRINE_WARP,
           bytes,
           stream()>>>(arguments...);
  VITRINE_GPU_LAUNCHED("attention of short sequences");
}

// Calls f with the dtype, the head size and the warps of a team; false when there is no kernel.
template <typename F>
bool with_kernel(const AttentionShape& s, DType dtype, F&& f) {
  if (limits().major < 8 || s.length < 1 || s.length > 64) return false;
  const auto teamed = [&]<typename T, int kD>() {
    if (s.length <= 16) return f.template operator()<T, kD, 1>(), true;
    if (s.length <= 32) return f.template operator()<T, kD, 2>(), true;
    return f.template operator()<T, kD, 4>(), true;
  };
  const auto sized = [&]<typename T>() {
    if (s.head_dim == 32) return teamed.template operator()<T, 32>();
    if (s.head_dim == 64) return teamed.template operator()<T, 64>();
    return false;
  };
  if (dtype == DType::kBF16) return sized.template operator()<__nv_bfloat16>();
  if (dtype == DType::kF16) return sized.template operator()<__half>();
  return false;
}

float scale_of(const AttentionShape& s) { return 1 / std::sqrt(static_cast<float>(s.head_dim)); }

}  // namespace

bool short_attention(const AttentionForward& call) {
  const AttentionShape& s = call.shape;
  if (!aligned_to_16({call.qkv, call.out})) return false;
  return with_kernel(s, call.dtype, [&]<typename T, int kD, int kTiles>() {
    const int64_t items = s.groups() * s.heads;
    launch_teams<kTiles>(short_forward_kernel<T, kD, kTiles>,
                         kForwardBytes<T, kD, kTiles>,
                         items,
                         PackedPlaces(s),
                         items,
                         scale_of(s),
                         static_cast<const T*>(call.qkv),
                         static_cast<T*>(call.out),
                         static_cast<float*>(call.lse));
  });
}

bool short_attention(const AttentionBackward& call) {
  const AttentionShape& s = call.shape;
  if (s.heads != s.kv_heads) return false;
  if (!aligned_to_16({call.qkv, call.dout, call.dqkv.view.data})) return false;
  const DType gradient = call.dqkv.view.dtype;
  if (gradient != call.dtype && gradient != DType::kF32) return false;
  return with_kernel(s, call.dtype, [&]<typename T, int kD, int kTiles>() {
    const int64_t items = s.groups() * s.heads;
    const auto launch = [&]<typename D>() {
      launch_teams<kTiles>(short_backward_kernel<T, D, kD, kTiles>,
                           kBackwardBytes<T, kD, kTiles>,
                           items,
                           PackedPlaces(s),
                           items,
                           scale_of(s),
                           static_cast<const T*>(call.qkv),
                           static_cast<const T*>(call.dout),
                           static_cast<const float*>(call.lse),
                           call.dqkv.view.as<D>(),
                           call.dqkv.accumulate);
    };
    gradient == DType::kF32 ? launch.template operator()<float>() : launch.template operator()<T>();
  });
}

}  // namespace vitrine::gpu
