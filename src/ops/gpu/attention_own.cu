// Attention forward without a library: a block computes a tile of queries of one head, with scores
// and running softmax in shared memory. 4 L L d operations a head (half under a causal mask) on
// ordinary arithmetic (f32 on H200: 60 TFLOP/s, of which about a tenth is reached: every product
// reads shared memory). For what neither cuDNN
// nor attention_mma.cu takes.
#include "ops/gpu/attention_mma.h"
#include "ops/gpu/attention_tile.cuh"

namespace vitrine::gpu {
namespace {

template <typename T, int kTile>
__global__ void attention_kernel(
    PackedPlaces s, int64_t tiles, Wide<T> scale, const T* qkv, T* out, Wide<T>* lse) {
  using W = Wide<T>;
  constexpr int kThreads = kSide<kTile> * kSide<kTile>, kMicro = kTile / kSide<kTile>;
  extern __shared__ __align__(16) unsigned char bytes[];
  const int d = s.d, pitch = d + 1;
  W* q = reinterpret_cast<W*>(bytes);
  W* k = q + kTile * pitch;
  W* v = k + kTile * pitch;
  W* sum = v + kTile * pitch;                // of p v, not yet divided
  W* score = sum + kTile * pitch;            // [kTile][kTile + 1]
  W* highest = score + kTile * (kTile + 1);  // a row each of these three
  W* total = highest + kTile;
  W* shrink = total + kTile;

  const int64_t tile = blockIdx.x % tiles;
  const int64_t head = blockIdx.x / tiles % s.heads;
  const int64_t group = blockIdx.x / tiles / s.heads;
  const int64_t first_query = tile * kTile;
  const int64_t first_row = s.first_row(group);
  const int64_t step = s.inner * s.qkv_width();
  const T* queries = qkv + first_row * s.qkv_width() + head * d;
  const T* keys = qkv + first_row * s.qkv_width() + (s.heads + head / (s.heads / s.kv_heads)) * d;
  const T* values = keys + int64_t{s.kv_heads} * d;
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int lane = thread % 32, warp = thread / 32;

  load_tile<kTile>(q, pitch, queries, first_query, s.length, step, d);
  for (int i = thread; i < kTile * pitch; i += kThreads) sum[i] = 0;
  for (int r = thread; r < kTile; r += kThreads) {
    highest[r] = -INFINITY;
    total[r] = 0;
  }
  const int64_t last = first_query + kTile < s.length ? first_query + kTile - 1 : s.length - 1;
  const int64_t limit = s.limit(last);
  for (int64_t j0 = 0; j0 < limit; j0 += kTile) {
    load_tile<kTile>(k, pitch, keys, j0, s.length, step, d);
    load_tile<kTile>(v, pitch, values, j0, s.length, step, d);
    __syncthreads();
#pragma unroll
    for (int a = 0; a < kMicro; ++a) {
      const int r = static_cast<int>(threadIdx.y) + a * kSide<kTile>;
      const int64_t seen = s.limit(first_query + r);
#pragma unroll
      for (int b = 0; b < kMicro; ++b) {
        const int c = static_cast<int>(threadIdx.x) + b * kSide<kTile>;
        const W x = scale * dot_of(q + r * pitch, k + c * pitch, d);
        score[r * (kTile + 1) + c] = j0 + c < seen ? x : W(-INFINITY);
      }
    }
    __syncthreads();
    // A warp a row. Key 0 is seen by all, so after the first tile the highest score is finite.
    for (int r = warp; r < kTile; r += kThreads / 32) {
      const W x = lane < kTile ? score[r * (kTile + 1) + lane] : W(-INFINITY);
      const W before = highest[r];
      const W tile_highest = warp_max(x);
      const W now = before > tile_highest ? before : tile_highest;
      const W p = exp_of(x - now);
      const W tile_total = warp_sum(p);
      if (lane < kTile) score[r * (kTile + 1) + lane] = p;
      __syncwarp();
      if (lane == 0) {
        shrink[r] = exp_of(before - now);
        total[r] = total[r] * shrink[r] + tile_total;
        highest[r] = now;
      }
    }
    __syncthreads();
    for (int i = thread; i < kTile * d; i += kThreads) {
      const int r = i / d, c = i % d;
      W x = sum[r * pitch + c] * shrink[r];
#pragma unroll 8
      for (int j = 0; j < kTile; ++j) x += score[r * (kTile + 1) + j] * v[j * pitch + c];
      sum[r * pitch + c] = x;
    }
    __syncthreads();
  }
  const int64_t out_step = s.inner * s.out_width();
  T* to = out + first_row * s.out_width() + head * d;
  for (int i = thread; i < kTile * d; i += kThreads) {
    const int r = i / d, c = i % d;
    if (first_query + r >= s.length) continue;
    to[(first_query + r) * out_step + c] = from_wide<T>(sum[r * pitch + c] / total[r]);
  }
  for (int r = thread; r < kTile; r += kThreads) {
    if (first_query + r >= s.length) continue;
    lse[(group * s.heads + head) * s.length + first_query + r] = highest[r] + log_of(total[r]);
  }
}

template <typename T>
void forward(const AttentionForward& call) {
  using W = Wide<T>;
  const AttentionShape& s = call.shape;
  const auto bytes_of = [&](int tile) {
    const size_t n = static_cast<size_t>(tile), d = static_cast<size_t>(s.head_dim);
    return sizeof(W) * (4 * n * (d + 1) + n * (n + 1) + 3 * n);
  };
  with_tile(s.head_dim, bytes_of, [&]<int kTile>(size_t bytes) {
    const int64_t tiles = (s.length + kTile - 1) / kTile;
    launch_tiles<kTile>(attention_kernel<T, kTile>,
                        tiles * s.heads * s.groups(),
                        bytes,
                        PackedPlaces(s),
                        tiles,
                        W(1) / std::sqrt(static_cast<W>(s.head_dim)),
                        static_cast<const T*>(call.qkv),
                        static_cast<T*>(call.out),
                        static_cast<W*>(call.lse));
  });
}

}  // namespace

void own_attention(const AttentionForward& call) {
  if (mma_attention(call)) return;
  dispatch_float(call.dtype, "attention", [&]<typename T>() { forward<T>(call); });
}

}  // namespace vitrine::gpu
