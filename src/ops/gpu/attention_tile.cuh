// What the own attention kernels share: places of packed heads, the mask, tiles in shared memory.
#pragma once

#include <algorithm>
#include <string>

#include "core/error.h"
#include "gpu/runtime.h"
#include "gpu/vector.cuh"
#include "ops/gpu/attention.h"

namespace vitrine::gpu {

// Places are element indices; the division of a group is done once a block.
struct PackedPlaces {
  int64_t length, inner, block;  // block 0: every key is seen
  int heads, kv_heads, d;

  explicit PackedPlaces(const AttentionShape& s)
      : length(s.length),
        inner(s.inner),
        block(s.causal ? s.causal_block : 0),
        heads(s.heads),
        kv_heads(s.kv_heads),
        d(s.head_dim) {}

  __device__ int64_t qkv_width() const { return int64_t{heads + 2 * kv_heads} * d; }
  __device__ int64_t out_width() const { return int64_t{heads} * d; }
  __device__ int64_t first_row(int64_t group) const {
    return group / inner * length * inner + group % inner;
  }
  // Keys [0, limit) are seen by query i.
  __device__ int64_t limit(int64_t i) const {
    if (block == 0) return length;
    const int64_t end = (i / block + 1) * block;
    return end < length ? end : length;
  }
  // The first query that sees key j.
  __device__ int64_t first_query(int64_t j) const { return block == 0 ? 0 : j / block * block; }
};

// Blocks are N x N threads over tiles of kTile x kTile scores.
template <int kTile>
constexpr int kSide = kTile < 16 ? kTile : 16;

__device__ __forceinline__ float exp_of(float x) { return expf(x); }
__device__ __forceinline__ double exp_of(double x) { return exp(x); }
__device__ __forceinline__ float log_of(float x) { return logf(x); }
__device__ __forceinline__ double log_of(double x) { return log(x); }

// tile[r][c] = from[(begin + r) * row_step + c], zero past `length`; rows of the tile are `pitch`
// apart. By all threads of the block.
template <int kTile, typename T, typename W>
__device__ __forceinline__ void load_tile(
    W* tile, int pitch, const T* from, int64_t begin, int64_t length, int64_t row_step, int d) {
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int threads = static_cast<int>(blockDim.x * blockDim.y);
  for (int i = thread; i < kTile * d; i += threads) {
    const int r = i / d, c = i % d;
    tile[r * pitch + c] = begin + r < length ? to_wide(from[(begin + r) * row_step + c]) : W(0);
  }
}

// sum over c of a[c] b[c]
template <typename W>
__device__ __forceinline__ W dot_of(const W* a, const W* b, int d) {
  W sum = 0;
#pragma unroll 8
  for (int c = 0; c < d; ++c) sum += a[c] * b[c];
  return sum;
}

// The largest tile of 32, 16, 8 whose shared memory leaves room for two blocks, or that fits at
// all. f.operator()<tile>(bytes); bytes_of(tile) says what a tile takes.
template <typename BytesOf, typename F>
void with_tile(int head_dim, BytesOf&& bytes_of, F&& f) {
  const size_t most = limits().shared_bytes_a_block, comfortable = most / 2;
  if (bytes_of(32) <= comfortable) return f.template operator()<32>(bytes_of(32));
  if (bytes_of(16) <= comfortable) return f.template operator()<16>(bytes_of(16));
  if (bytes_of(8) <= most) return f.template operator()<8>(bytes_of(8));
  throw ConfigError("attention: head_dim " + std::to_string(head_dim) +
                    " does not fit in shared memory");
}

// Launches a kernel over `blocks` blocks of its tile with dynamic shared memory.
template <int kTile, typename... Parameters, typename... Arguments>
void launch_tiles(void (*kernel)(Parameters...),
                  int64_t blocks,
                  size_t shared_bytes,
                  const Arguments&... arguments) {
  VITRINE_GPU_CHECK(cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(shared_bytes)));
  kernel<<<static_cast<unsigned>(blocks),
           dim3(kSide<kTile>, kSide<kTile>),
           shared_bytes,
           stream()>>>(arguments...);
  VITRINE_GPU_LAUNCHED("attention");
}

}  // namespace vitrine::gpu
