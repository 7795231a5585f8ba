// Attention of short sequences on tensor cores for two-byte dtypes, any mask and axis: a warp
// computes 16 rows of one head and shares nothing, so that sequences of 16 fill the GPU as well as
// long ones. Bytes: qkv once, out once (forward), and keys again for every further 16 queries, from
// the L2 cache. At [B T S = 65536 tokens, L 16, H d 512] forward moves 268 MB: 65 us on H200.
#include "ops/gpu/attention_mma.cuh"
#include "ops/gpu/attention_mma.h"

namespace vitrine::gpu {
namespace {

constexpr int kWarps = 4;
// Rows of the other side that are in shared memory at once; fewer where registers are short.
template <int kD>
constexpr int kTileRows = kD <= 64 ? 32 : 16;

// The 16 rows of a head that a warp owns.
struct Item {
  int64_t first, group;
  int head;
  __device__ Item(int64_t index, int64_t tiles, int heads)
      : first(index % tiles * 16),
        group(index / tiles / heads),
        head(static_cast<int>(index / tiles % heads)) {}
};

__device__ __forceinline__ int64_t warp_index() {
  return static_cast<int64_t>(blockIdx.x) * kWarps + threadIdx.x / VITRINE_WARP;
}
template <typename T, int kD>
__global__ void __launch_bounds__(kWarps* VITRINE_WARP) forward_kernel(
    PackedPlaces s, int64_t tiles, int64_t items, float scale, const T* qkv, T* out, float* lse) {
  constexpr int kRows = kTileRows<kD>;
  using Tile = WarpTile<T, kD, kRows>;
  extern __shared__ __align__(16) unsigned char bytes[];
  if (warp_index() >= items) return;
  const Item item(warp_index(), tiles, s.heads);
  T* own_shared = reinterpret_cast<T*>(bytes) + threadIdx.x / VITRINE_WARP * (2 * Tile::kElements);
  const Tile keys{own_shared}, values{own_shared + Tile::kElements};
  const int64_t key_head = s.heads + item.head / (s.heads / s.kv_heads);
  const auto key_rows = packed_rows(s, qkv, s.qkv_width(), item.group, key_head);
  const auto value_rows = packed_rows(s, qkv, s.qkv_width(), item.group, key_head + s.kv_heads);
  const int lane = lane_index();

  FragmentA q[kD / 16];
  load_own<T, kD>(q, packed_rows(s, qkv, s.qkv_width(), item.group, item.head), item.first);
  FragmentC sum[kD / 8];
  clear(sum);
  // Of rows g and g + 8: highest score and sum of exponentials, in powers of two.
  float highest[2] = {-INFINITY, -INFINITY}, total[2] = {0, 0};
  const int64_t row[2] = {item.first + lane / 4, item.first + lane / 4 + 8};
  const int64_t seen[2] = {s.limit(row[0]), s.limit(row[1])};
  const int64_t limit = s.limit(item.first + 15 < s.length ? item.first + 15 : s.length - 1);
  const float factor = scale * kLog2E;
  for (int64_t j0 = 0; j0 < limit; j0 += kRows) {
    __syncwarp();
    keys.load(key_rows, j0);
    values.load(value_rows, j0);
    __syncwarp();
    FragmentC p[kRows / 8];
    clear(p);
    keys.scores(p, q);
    float most[2] = {highest[0], highest[1]};
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t j = j0 + n * 8 + lane % 4 * 2 + i % 2;
        p[n][i] = j < seen[i / 2] ? p[n][i] * factor : -INFINITY;
        most[i / 2] = fmaxf(most[i / 2], p[n][i]);
      }
    }
    float tile_total[2] = {0, 0}, shrink[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      most[half] = row_max(most[half]);
      shrink[half] = fast_exp2(highest[half] - most[half]);
      highest[half] = most[half];
    }
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        p[n][i] = fast_exp2(p[n][i] - most[i / 2]);
        tile_total[i / 2] += p[n][i];
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      total[half] = total[half] * shrink[half] + row_sum(tile_total[half]);
    }
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) sum[n][i] *= shrink[i / 2];
    }
    values.add_product(sum, p);
  }
  const float inverse[2] = {1 / total[0], 1 / total[1]};
  put_rows<T, kD>(out + s.first_row(item.group) * s.out_width() + item.head * int64_t{s.d},
                  s.inner * s.out_width(),
                  s.length,
                  item.first,
                  sum,
                  inverse,
                  false);
  if (lane % 4 != 0) return;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    if (row[half] >= s.length) continue;
    lse[(item.group * s.heads + item.head) * s.length + row[half]] =
        kLn2 * (highest[half] + log2f(total[half]));
  }
}

template <typename T, typename D>
struct Operands {
  const T *qkv, *dout;
  const float *lse, *row_sum;
  D* dqkv;
  bool accumulate;
};

// dq of 16 queries: ds = p (dout vᵀ - row sum); dq = scale ds k.
template <typename T, typename D, int kD>
__global__ void __launch_bounds__(kWarps* VITRINE_WARP) query_gradient_kernel(
    PackedPlaces s, int64_t tiles, int64_t items, float scale, Operands<T, D> o) {
  constexpr int kRows = kTileRows<kD>;
  using Tile = WarpTile<T, kD, kRows>;
  extern __shared__ __align__(16) unsigned char bytes[];
  if (warp_index() >= items) return;
  const Item item(warp_index(), tiles, s.heads);
  T* own_shared = reinterpret_cast<T*>(bytes) + threadIdx.x / VITRINE_WARP * (2 * Tile::kElements);
  const Tile keys{own_shared}, values{own_shared + Tile::kElements};
  const int64_t key_head = s.heads + item.head / (s.heads / s.kv_heads);
  const auto key_rows = packed_rows(s, o.qkv, s.qkv_width(), item.group, key_head);
  const auto value_rows = packed_rows(s, o.qkv, s.qkv_width(), item.group, key_head + s.kv_heads);
  const int lane = lane_index();

  FragmentA q[kD / 16], dout[kD / 16];
  load_own<T, kD>(q, packed_rows(s, o.qkv, s.qkv_width(), item.group, item.head), item.first);
  load_own<T, kD>(dout, packed_rows(s, o.dout, s.out_width(), item.group, item.head), item.first);
  const int64_t head_rows = (item.group * s.heads + item.head) * s.length;
  int64_t seen[2];
  float lse[2], row_sums[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t r = item.first + lane / 4 + half * 8;
    const bool there = r < s.length;
    seen[half] = there ? s.limit(r) : 0;
    lse[half] = there ? o.lse[head_rows + r] * kLog2E : 0.0f;
    row_sums[half] = there ? o.row_sum[head_rows + r] : 0.0f;
  }
  FragmentC sum[kD / 8];
  clear(sum);
  const int64_t limit = s.limit(item.first + 15 < s.length ? item.first + 15 : s.length - 1);
  const float factor = scale * kLog2E;
  for (int64_t j0 = 0; j0 < limit; j0 += kRows) {
    __syncwarp();
    keys.load(key_rows, j0);
    values.load(value_rows, j0);
    __syncwarp();
    FragmentC p[kRows / 8], ds[kRows / 8];
    clear(p);
    clear(ds);
    keys.scores(p, q);
    values.scores(ds, dout);
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int64_t j = j0 + n * 8 + lane % 4 * 2 + i % 2;
        const float x = j < seen[i / 2] ? fast_exp2(p[n][i] * factor - lse[i / 2]) : 0.0f;
        ds[n][i] = x * (ds[n][i] - row_sums[i / 2]);
      }
    }
    keys.add_product(sum, ds);
  }
  const float scales[2] = {scale, scale};
  put_rows<D, kD>(o.dqkv + s.first_row(item.group) * s.qkv_width() + item.head * int64_t{s.d},
                  s.inner * s.qkv_width(),
                  s.length,
                  item.first,
                  sum,
                  scales,
                  o.accumulate);
}

// dk and dv of 16 keys, over the queries of all heads that share them: the same products with
// queries and keys changed, so pᵀ and dsᵀ come out as rows of keys.
template <typename T, typename D, int kD>
__global__ void __launch_bounds__(kWarps* VITRINE_WARP) key_gradient_kernel(
    PackedPlaces s, int64_t tiles, int64_t items, float scale, Operands<T, D> o) {
  constexpr int kRows = 16;
  using Tile = WarpTile<T, kD, kRows>;
  extern __shared__ __align__(16) unsigned char bytes[];
  if (warp_index() >= items) return;
  const Item item(warp_index(), tiles, s.kv_heads);
  T* own_shared = reinterpret_cast<T*>(bytes) + threadIdx.x / VITRINE_WARP * (2 * Tile::kElements);
  const Tile queries{own_shared}, douts{own_shared + Tile::kElements};
  const int64_t key_head = s.heads + item.head, value_head = key_head + s.kv_heads;
  const int lane = lane_index();

  FragmentA k[kD / 16], v[kD / 16];
  load_own<T, kD>(k, packed_rows(s, o.qkv, s.qkv_width(), item.group, key_head), item.first);
  load_own<T, kD>(v, packed_rows(s, o.qkv, s.qkv_width(), item.group, value_head), item.first);
  FragmentC dk[kD / 8], dv[kD / 8];
  clear(dk);
  clear(dv);
  const int64_t seen_from[2] = {s.first_query(item.first + lane / 4),
                                s.first_query(item.first + lane / 4 + 8)};
  const float factor = scale * kLog2E;
  const int shared_by = s.heads / s.kv_heads;
  for (int head = item.head * shared_by; head < (item.head + 1) * shared_by; ++head) {
    const auto query_rows = packed_rows(s, o.qkv, s.qkv_width(), item.group, head);
    const auto dout_rows = packed_rows(s, o.dout, s.out_width(), item.group, head);
    const int64_t head_rows = (item.group * s.heads + head) * s.length;
    for (int64_t i0 = s.first_query(item.first) / kRows * kRows; i0 < s.length; i0 += kRows) {
      __syncwarp();
      queries.load(query_rows, i0);
      douts.load(dout_rows, i0);
      __syncwarp();
      FragmentC p[kRows / 8], ds[kRows / 8];
      clear(p);
      clear(ds);
      queries.scores(p, k);
      douts.scores(ds, v);
#pragma unroll
      for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int64_t i = i0 + n * 8 + lane % 4 * 2 + c;
          const bool there = i < s.length;
          const float lse = there ? o.lse[head_rows + i] * kLog2E : 0.0f;
          const float row_sums = there ? o.row_sum[head_rows + i] : 0.0f;
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            float& x = p[n][half * 2 + c];
            float& y = ds[n][half * 2 + c];
            x = there && i >= seen_from[half] ? fast_exp2(x * factor - lse) : 0.0f;
            y = x * (y - row_sums);
          }
        }
      }
      douts.add_product(dv, p);
      queries.add_product(dk, ds);
    }
  }
  D* base = o.dqkv + s.first_row(item.group) * s.qkv_width();
  const float scales[2] = {scale, scale}, ones[2] = {1, 1};
  const int64_t step = s.inner * s.qkv_width();
  put_rows<D, kD>(base + key_head * s.d, step, s.length, item.first, dk, scales, o.accumulate);
  put_rows<D, kD>(base + value_head * s.d, step, s.length, item.first, dv, ones, o.accumulate);
}

template <typename T, int kD, int kRows, typename... Parameters, typename... Arguments>
void launch_warps(void (*kernel)(Parameters...), int64_t items, const Arguments&... arguments) {
  constexpr size_t kBytes = sizeof(T) * kWarps * 2 * WarpTile<T, kD, kRows>::kElements;
  VITRINE_GPU_CHECK(cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes)));
  kernel<<<static_cast<unsigned>((items + kWarps - 1) / kWarps),
           kWarps * VITRINE_WARP,
           kBytes,
           stream()>>>(arguments...);
  VITRINE_GPU_LAUNCHED("attention on tensor cores");
}

float scale_of(const AttentionShape& s) { return 1 / std::sqrt(static_cast<float>(s.head_dim)); }

template <typename T, int kD>
void forward(const AttentionForward& call) {
  const AttentionShape& s = call.shape;
  const int64_t tiles = (s.length + 15) / 16, items = tiles * s.heads * s.groups();
  launch_warps<T, kD, kTileRows<kD>>(forward_kernel<T, kD>,
                                     items,
                                     PackedPlaces(s),
                                     tiles,
                                     items,
                                     scale_of(s),
                                     static_cast<const T*>(call.qkv),
                                     static_cast<T*>(call.out),
                                     static_cast<float*>(call.lse));
}

template <typename T, int kD, typename D>
void gradients(const AttentionBackward& call, const float* row_sum) {
  const AttentionShape& s = call.shape;
  const Operands<T, D> operands{static_cast<const T*>(call.qkv),
                                static_cast<const T*>(call.dout),
                                static_cast<const float*>(call.lse),
                                row_sum,
                                call.dqkv.view.as<D>(),
                                call.dqkv.accumulate};
  const int64_t tiles = (s.length + 15) / 16;
  const int64_t queries = tiles * s.heads * s.groups(), keys = tiles * s.kv_heads * s.groups();
  const PackedPlaces places(s);
  launch_warps<T, kD, kTileRows<kD>>(
      query_gradient_kernel<T, D, kD>, queries, places, tiles, queries, scale_of(s), operands);
  launch_warps<T, kD, 16>(
      key_gradient_kernel<T, D, kD>, keys, places, tiles, keys, scale_of(s), operands);
}

// Calls f with the dtype and the head size; false when there is no kernel for them.
template <typename F>
bool with_kernel(DType dtype, int head_dim, F&& f) {
  const auto sized = [&]<typename T>() {
    if (head_dim == 32) return f.template operator()<T, 32>(), true;
    if (head_dim == 64) return f.template operator()<T, 64>(), true;
    if (head_dim == 128) return f.template operator()<T, 128>(), true;
    return false;
  };
  if (limits().major < 8) return false;
  if (dtype == DType::kBF16) return sized.template operator()<__nv_bfloat16>();
  if (dtype == DType::kF16) return sized.template operator()<__half>();
  return false;
}

}  // namespace

bool mma_attention(const AttentionForward& call) {
  if (!aligned_to_16({call.qkv, call.out})) return false;
  return with_kernel(
      call.dtype, call.shape.head_dim, [&]<typename T, int kD>() { forward<T, kD>(call); });
}

bool mma_attention(const AttentionBackward& call, const float* row_sum) {
  if (!aligned_to_16({call.qkv, call.dout})) return false;
  return with_kernel(call.dtype, call.shape.head_dim, [&]<typename T, int kD>() {
    if (call.dqkv.view.dtype == call.dtype) return gradients<T, kD, T>(call, row_sum);
    if (call.dqkv.view.dtype == DType::kF32) return gradients<T, kD, float>(call, row_sum);
    throw ConfigError(std::string("attention: a gradient in ") + dtype_name(call.dqkv.view.dtype));
  });
}

}  // namespace vitrine::gpu
