// Attention backward without a library, in three kernels: the row sums of dout * out, dq by tiles
// of queries, dk and dv by tiles of keys. No sum crosses a block, so the bits repeat. 14 L L d
// operations a head (half under a causal mask): scores are made twice. See attention_own.cu for the
// rate.
#include "ops/gpu/attention_mma.h"
#include "ops/gpu/attention_tile.cuh"

namespace vitrine::gpu {
namespace {

// A warp a row of one head: sum over d of dout * out.
template <typename T>
__global__ void row_sum_kernel(
    PackedPlaces s, int64_t count, const T* out, const T* dout, Wide<T>* row_sum) {
  const int64_t item = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / VITRINE_WARP;
  if (item >= count) return;
  const int64_t i = item % s.length, head = item / s.length % s.heads;
  const int64_t group = item / s.length / s.heads;
  const int64_t place = (s.first_row(group) + i * s.inner) * s.out_width() + head * s.d;
  Wide<T> sum = 0;
  for (int c = static_cast<int>(threadIdx.x) % VITRINE_WARP; c < s.d; c += VITRINE_WARP) {
    sum += to_wide(out[place + c]) * to_wide(dout[place + c]);
  }
  sum = warp_sum(sum);
  if (threadIdx.x % VITRINE_WARP == 0) row_sum[item] = sum;
}

template <typename D, typename W>
__device__ __forceinline__ void put(D* place, W value, bool accumulate) {
  if (accumulate) value += static_cast<W>(to_wide(*place));
  *place = from_wide<D>(value);
}

// One pair of tiles: p = exp(scale q kᵀ - lse), ds = scale p (dout vᵀ - row sum), both
// [kTile][kTile + 1]; zero where a key is not seen or a query is past the end.
template <int kTile, typename W>
__device__ __forceinline__ void score_tiles(const PackedPlaces& s,
                                            W scale,
                                            const W* q,
                                            const W* k,
                                            const W* v,
                                            const W* dout,
                                            int64_t first_query,
                                            int64_t first_key,
                                            const W* lse,
                                            const W* row_sum,
                                            W* p_tile,
                                            W* ds_tile) {
  constexpr int kMicro = kTile / kSide<kTile>;
  const int pitch = s.d + 1;
#pragma unroll
  for (int a = 0; a < kMicro; ++a) {
    const int r = static_cast<int>(threadIdx.y) + a * kSide<kTile>;
    const int64_t i = first_query + r;
    const int64_t seen = i < s.length ? s.limit(i) : 0;
#pragma unroll
    for (int b = 0; b < kMicro; ++b) {
      const int c = static_cast<int>(threadIdx.x) + b * kSide<kTile>;
      W p = 0, ds = 0;
      if (first_key + c < seen) {
        p = exp_of(scale * dot_of(q + r * pitch, k + c * pitch, s.d) - lse[i]);
        ds = scale * p * (dot_of(dout + r * pitch, v + c * pitch, s.d) - row_sum[i]);
      }
      p_tile[r * (kTile + 1) + c] = p;
      ds_tile[r * (kTile + 1) + c] = ds;
    }
  }
}

template <typename T, typename D>
struct BackwardOperands {
  const T *qkv, *dout;
  const Wide<T>*lse, *row_sum;
  D* dqkv;
  bool accumulate;
};

template <typename T, typename D, int kTile>
__global__ void query_gradient_kernel(PackedPlaces s,
                                      int64_t tiles,
                                      Wide<T> scale,
                                      BackwardOperands<T, D> o) {
  using W = Wide<T>;
  constexpr int kThreads = kSide<kTile> * kSide<kTile>;
  extern __shared__ __align__(16) unsigned char bytes[];
  const int d = s.d, pitch = d + 1;
  W* q = reinterpret_cast<W*>(bytes);
  W* dout = q + kTile * pitch;
  W* k = dout + kTile * pitch;
  W* v = k + kTile * pitch;
  W* dq = v + kTile * pitch;
  W* p = dq + kTile * pitch;
  W* ds = p + kTile * (kTile + 1);

  const int64_t first_query = blockIdx.x % tiles * kTile;
  const int64_t head = blockIdx.x / tiles % s.heads;
  const int64_t group = blockIdx.x / tiles / s.heads;
  const int64_t first_row = s.first_row(group), step = s.inner * s.qkv_width();
  const int64_t query_place = first_row * s.qkv_width() + head * d;
  const int64_t key_place =
      first_row * s.qkv_width() + (s.heads + head / (s.heads / s.kv_heads)) * d;
  const int64_t head_rows = (group * s.heads + head) * s.length;
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);

  load_tile<kTile>(q, pitch, o.qkv + query_place, first_query, s.length, step, d);
  load_tile<kTile>(dout,
                   pitch,
                   o.dout + first_row * s.out_width() + head * d,
                   first_query,
                   s.length,
                   s.inner * s.out_width(),
                   d);
  for (int i = thread; i < kTile * pitch; i += kThreads) dq[i] = 0;
  const int64_t last = first_query + kTile < s.length ? first_query + kTile - 1 : s.length - 1;
  const int64_t limit = s.limit(last);
  for (int64_t j0 = 0; j0 < limit; j0 += kTile) {
    load_tile<kTile>(k, pitch, o.qkv + key_place, j0, s.length, step, d);
    load_tile<kTile>(v, pitch, o.qkv + key_place + int64_t{s.kv_heads} * d, j0, s.length, step, d);
    __syncthreads();
    score_tiles<kTile>(
        s, scale, q, k, v, dout, first_query, j0, o.lse + head_rows, o.row_sum + head_rows, p, ds);
    __syncthreads();
    for (int i = thread; i < kTile * d; i += kThreads) {
      const int r = i / d, c = i % d;
      W x = dq[r * pitch + c];
#pragma unroll 8
      for (int j = 0; j < kTile; ++j) x += ds[r * (kTile + 1) + j] * k[j * pitch + c];
      dq[r * pitch + c] = x;
    }
    __syncthreads();
  }
  for (int i = thread; i < kTile * d; i += kThreads) {
    const int r = i / d, c = i % d;
    if (first_query + r >= s.length) continue;
    put(o.dqkv + query_place + (first_query + r) * step + c, dq[r * pitch + c], o.accumulate);
  }
}

template <typename T, typename D, int kTile>
__global__ void key_gradient_kernel(PackedPlaces s,
                                    int64_t tiles,
                                    Wide<T> scale,
                                    BackwardOperands<T, D> o) {
  using W = Wide<T>;
  constexpr int kThreads = kSide<kTile> * kSide<kTile>;
  extern __shared__ __align__(16) unsigned char bytes[];
  const int d = s.d, pitch = d + 1;
  W* k = reinterpret_cast<W*>(bytes);
  W* v = k + kTile * pitch;
  W* q = v + kTile * pitch;
  W* dout = q + kTile * pitch;
  W* dk = dout + kTile * pitch;
  W* dv = dk + kTile * pitch;
  W* p = dv + kTile * pitch;
  W* ds = p + kTile * (kTile + 1);

  const int64_t first_key = blockIdx.x % tiles * kTile;
  const int64_t kv_head = blockIdx.x / tiles % s.kv_heads;
  const int64_t group = blockIdx.x / tiles / s.kv_heads;
  const int64_t first_row = s.first_row(group), step = s.inner * s.qkv_width();
  const int64_t key_place = first_row * s.qkv_width() + (s.heads + kv_head) * d;
  const int64_t value_place = key_place + int64_t{s.kv_heads} * d;
  const int shared_by = s.heads / s.kv_heads;
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);

  load_tile<kTile>(k, pitch, o.qkv + key_place, first_key, s.length, step, d);
  load_tile<kTile>(v, pitch, o.qkv + value_place, first_key, s.length, step, d);
  for (int i = thread; i < kTile * pitch; i += kThreads) {
    dk[i] = 0;
    dv[i] = 0;
  }
  for (int64_t head = kv_head * shared_by; head < (kv_head + 1) * shared_by; ++head) {
    const int64_t head_rows = (group * s.heads + head) * s.length;
    for (int64_t i0 = s.first_query(first_key) / kTile * kTile; i0 < s.length; i0 += kTile) {
      load_tile<kTile>(
          q, pitch, o.qkv + first_row * s.qkv_width() + head * d, i0, s.length, step, d);
      load_tile<kTile>(dout,
                       pitch,
                       o.dout + first_row * s.out_width() + head * d,
                       i0,
                       s.length,
                       s.inner * s.out_width(),
                       d);
      __syncthreads();
      score_tiles<kTile>(
          s, scale, q, k, v, dout, i0, first_key, o.lse + head_rows, o.row_sum + head_rows, p, ds);
      __syncthreads();
      for (int i = thread; i < kTile * d; i += kThreads) {
        const int r = i / d, c = i % d;
        W x = dk[r * pitch + c], y = dv[r * pitch + c];
#pragma unroll 8
        for (int j = 0; j < kTile; ++j) {
          x += ds[j * (kTile + 1) + r] * q[j * pitch + c];
          y += p[j * (kTile + 1) + r] * dout[j * pitch + c];
        }
        dk[r * pitch + c] = x;
        dv[r * pitch + c] = y;
      }
      __syncthreads();
    }
  }
  for (int i = thread; i < kTile * d; i += kThreads) {
    const int r = i / d, c = i % d;
    if (first_key + r >= s.length) continue;
    const int64_t place = (first_key + r) * step + c;
    put(o.dqkv + key_place + place, dk[r * pitch + c], o.accumulate);
    put(o.dqkv + value_place + place, dv[r * pitch + c], o.accumulate);
  }
}

template <typename T, typename D>
void gradients(const AttentionBackward& call, const Wide<T>* row_sum) {
  using W = Wide<T>;
  const AttentionShape& s = call.shape;
  const BackwardOperands<T, D> operands{static_cast<const T*>(call.qkv),
                                        static_cast<const T*>(call.dout),
                                        static_cast<const W*>(call.lse),
                                        row_sum,
                                        call.dqkv.view.as<D>(),
                                        call.dqkv.accumulate};
  const W scale = W(1) / std::sqrt(static_cast<W>(s.head_dim));
  const auto bytes_of = [&](size_t arrays, int tile) {
    const size_t n = static_cast<size_t>(tile), d = static_cast<size_t>(s.head_dim);
    return sizeof(W) * (arrays * n * (d + 1) + 2 * n * (n + 1));
  };
  with_tile(
      s.head_dim,
      [&](int tile) { return bytes_of(5, tile); },
      [&]<int kTile>(size_t bytes) {
        const int64_t tiles = (s.length + kTile - 1) / kTile;
        launch_tiles<kTile>(query_gradient_kernel<T, D, kTile>,
                            tiles * s.heads * s.groups(),
                            bytes,
                            PackedPlaces(s),
                            tiles,
                            scale,
                            operands);
      });
  with_tile(
      s.head_dim,
      [&](int tile) { return bytes_of(6, tile); },
      [&]<int kTile>(size_t bytes) {
        const int64_t tiles = (s.length + kTile - 1) / kTile;
        launch_tiles<kTile>(key_gradient_kernel<T, D, kTile>,
                            tiles * s.kv_heads * s.groups(),
                            bytes,
                            PackedPlaces(s),
                            tiles,
                            scale,
                            operands);
      });
}

template <typename T>
void backward(const AttentionBackward& call) {
  const AttentionShape& s = call.shape;
  const int64_t count = s.groups() * s.heads * s.length;
  auto* row_sum = static_cast<Wide<T>*>(workspace(static_cast<size_t>(count) * sizeof(Wide<T>)));
  constexpr int kWarps = 8;
  row_sum_kernel<T><<<static_cast<unsigned>((count + kWarps - 1) / kWarps),
                      kWarps * VITRINE_WARP,
                      0,
                      stream()>>>(PackedPlaces(s),
                                  count,
                                  static_cast<const T*>(call.out),
                                  static_cast<const T*>(call.dout),
                                  row_sum);
  VITRINE_GPU_LAUNCHED("attention row sums");
  if constexpr (sizeof(T) == 2) {
    if (mma_attention(call, row_sum)) return;
  }
  if (call.dqkv.view.dtype == call.dtype) return gradients<T, T>(call, row_sum);
  if (call.dqkv.view.dtype == DType::kF32) return gradients<T, float>(call, row_sum);
  throw ConfigError(std::string("attention: a gradient in ") + dtype_name(call.dqkv.view.dtype));
}

}  // namespace

void own_attention(const AttentionBackward& call) {
  dispatch_float(call.dtype, "attention", [&]<typename T>() { backward<T>(call); });
}

}  // namespace vitrine::gpu
