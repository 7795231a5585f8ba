// Rounding to 8-bit floating formats: the largest magnitude, then the copies. Bound by memory: an
// element is read twice (2 x 2 bytes; below about 30 MB the second time from the L2 cache) and
// written once a copy, so 5 or 6 bytes an element. At [16384, 3584] 294 or 352 MB, 70 or 84 us on
// H200. The transposition goes through shared memory in tiles of 128 x 64 bytes, whose 16-byte
// chunks are swapped so that neither side meets a bank twice.
#include <algorithm>
#include <cfloat>

#include "gpu/fp8.cuh"
#include "gpu/runtime.h"
#include "ops/gpu/fp8.h"

namespace vitrine::gpu {
namespace {

using Bf16 = __nv_bfloat16;

constexpr int kThreads = 256;
constexpr int kUnroll = 4;
constexpr int kTileRows = 128, kTileColumns = 64;
constexpr int kColumnWords = kTileRows / 4;  // of four rows each

__device__ __forceinline__ Vec<Bf16, 8> load8(const Bf16* from, bool wide) {
  if (wide) return load<8>(from);
  Vec<Bf16, 8> out;
#pragma unroll
  for (int i = 0; i < 8; ++i) out.v[i] = from[i];
  return out;
}

// Magnitudes of bf16 are in the order of their bits, NaN above infinity; the maximum of whole
// numbers is the same in any order, so the atomic one is repeatable.
__global__ void __launch_bounds__(kThreads)
    amax_kernel(const Bf16* from, int64_t vectors, bool wide, Fp8Scale* scale) {
  __shared__ uint32_t shared[kThreads / VITRINE_WARP];
  uint32_t pair = 0;
  const auto add = [&](const Vec<Bf16, 8>& in) {
    const auto* words = reinterpret_cast<const uint32_t*>(&in);
#pragma unroll
    for (int w = 0; w < 4; ++w) pair = __vmaxu2(pair, words[w] & 0x7fff7fffu);
  };
  const int64_t step = int64_t{gridDim.x} * kThreads * kUnroll;
  int64_t i = int64_t{blockIdx.x} * kThreads * kUnroll + threadIdx.x;
  for (; i + (kUnroll - 1) * kThreads < vectors; i += step) {
    Vec<Bf16, 8> in[kUnroll];
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) in[u] = load8(from + (i + u * kThreads) * 8, wide);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) add(in[u]);
  }
  for (; i < vectors; i += kThreads) add(load8(from + i * 8, wide));
  uint32_t most = max(pair & 0xffffu, pair >> 16);
  most = warp_max(most);
  if (threadIdx.x % VITRINE_WARP == 0) shared[threadIdx.x / VITRINE_WARP] = most;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const uint32_t other : shared) most = max(most, other);
  atomicMax(&scale->amax_bits, most);
}

// As fp8_scale().
template <typename F>
__device__ __forceinline__ float scale_of(uint32_t amax_bits) {
  const float amax = __uint_as_float(amax_bits << 16);
  return amax > 0 ? fminf(__fdiv_rn(F::kHighest, amax), FLT_MAX) : 1.0f;
}

template <typename F>
__device__ __forceinline__ uint2 narrow8(const Vec<Bf16, 8>& in, float scale) {
  uint32_t pairs[4];
#pragma unroll
  for (int p = 0; p < 4; ++p) {
    pairs[p] = to_fp8_pair<F>(make_float2(__fmul_rn(to_wide(in.v[2 * p]), scale),
                                          __fmul_rn(to_wide(in.v[2 * p + 1]), scale)));
  }
  return make_uint2(pairs[0] | pairs[1] << 16, pairs[2] | pairs[3] << 16);
}

// Four words of four bytes as a matrix, transposed.
__device__ __forceinline__ void transpose4(uint32_t (&w)[4]) {
  const uint32_t a = __byte_perm(w[0], w[1], 0x5140), b = __byte_perm(w[0], w[1], 0x7362);
  const uint32_t c = __byte_perm(w[2], w[3], 0x5140), d = __byte_perm(w[2], w[3], 0x7362);
  w[0] = __byte_perm(a, c, 0x5410);
  w[1] = __byte_perm(a, c, 0x7632);
  w[2] = __byte_perm(b, d, 0x5410);
  w[3] = __byte_perm(b, d, 0x7632);
}

// Chunk `chunk` (16 rows) of a tile's column, in words.
__device__ __forceinline__ int place(int column, int chunk) {
  return column * kColumnWords + (chunk ^ column / 8) * 4;
}

struct Tiles {
  int64_t rows, columns, across;  // across: tiles of a row
  bool wide;
};

// A thread has 4 rows x 8 columns of the tile; 8 threads lie along a row. A warp reads whole lines
// of 128 bytes; neighbours swap halves of rows, so that each stores 16 bytes.
template <typename F, bool kAsItIs, bool kTransposed>
__global__ void __launch_bounds__(kThreads) to_fp8_kernel(
    const Bf16* from, Tiles t, Fp8Scale* scales, uint8_t* as_it_is, uint8_t* transposed) {
  __shared__ alignas(16) uint32_t tile[kTransposed ? kTileColumns * kColumnWords : 4];
  const float scale = scale_of<F>(scales->amax_bits);
  if (blockIdx.x == 0 && threadIdx.x == 0) scales->inverse = __fdiv_rn(1.0f, scale);
  const int tx = static_cast<int>(threadIdx.x) % 8, ty = static_cast<int>(threadIdx.x) / 8;
  const int64_t first_row = int64_t{blockIdx.x} / t.across * kTileRows;
  const int64_t first_column = int64_t{blockIdx.x} % t.across * kTileColumns;
  const int64_t row = first_row + ty * 4, column = first_column + tx * 8;
  const bool inside = row < t.rows && column < t.columns;
  uint2 bytes[4] = {};
  if (inside) {
    Vec<Bf16, 8> in[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) in[r] = load8(from + (row + r) * t.columns + column, t.wide);
#pragma unroll
    for (int r = 0; r < 4; ++r) bytes[r] = narrow8<F>(in[r], scale);
  }
  if constexpr (kAsItIs) {
    const bool odd = tx % 2 != 0;
#pragma unroll
    for (int p = 0; p < 2; ++p) {
      const uint2 mine = odd ? bytes[2 + p] : bytes[p];
      uint2 other = odd ? bytes[p] : bytes[2 + p];
      other.x = __shfl_xor_sync(VITRINE_FULL_MASK, other.x, 1);
      other.y = __shfl_xor_sync(VITRINE_FULL_MASK, other.y, 1);
      const uint4 out = odd ? make_uint4(other.x, other.y, mine.x, mine.y)
                            : make_uint4(mine.x, mine.y, other.x, other.y);
      const int64_t to = (row + (odd ? 2 : 0) + p) * t.columns + (odd ? column - 8 : column);
      if (inside) *reinterpret_cast<uint4*>(as_it_is + to) = out;
    }
  }
  if constexpr (kTransposed) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t words[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) words[r] = half ? bytes[r].y : bytes[r].x;
      transpose4(words);
#pragma unroll
      for (int c = 0; c < 4; ++c) tile[place(tx * 8 + half * 4 + c, ty / 4) + ty % 4] = words[c];
    }
    __syncthreads();
#pragma unroll
    for (int c = ty; c < kTileColumns; c += kThreads / 8) {
      const int64_t to_column = first_column + c, to_row = first_row + tx * 16;
      if (to_column < t.columns && to_row < t.rows) {
        *reinterpret_cast<uint4*>(transposed + to_column * t.rows + to_row) =
            *reinterpret_cast<const uint4*>(&tile[place(c, tx)]);
      }
    }
  }
}

template <typename F>
void launch(const Bf16* from, const Tiles& t, Fp8Scale* scale, const Fp8Copies& copies) {
  const auto blocks = static_cast<unsigned>((t.rows + kTileRows - 1) / kTileRows * t.across);
  auto* as_it_is = static_cast<uint8_t*>(copies.as_it_is);
  auto* transposed = static_cast<uint8_t*>(copies.transposed);
  if (as_it_is && transposed) {
    to_fp8_kernel<F, true, true>
        <<<blocks, kThreads, 0, stream()>>>(from, t, scale, as_it_is, transposed);
  } else if (transposed) {
    to_fp8_kernel<F, false, true>
        <<<blocks, kThreads, 0, stream()>>>(from, t, scale, as_it_is, transposed);
  } else if (as_it_is) {
    to_fp8_kernel<F, true, false>
        <<<blocks, kThreads, 0, stream()>>>(from, t, scale, as_it_is, transposed);
  }
  VITRINE_GPU_LAUNCHED("to_fp8");
}

}  // namespace

void clear_fp8_scales(Fp8Scale* scales, int count) {
  VITRINE_GPU_CHECK(
      cudaMemsetAsync(scales, 0, static_cast<size_t>(count) * sizeof(Fp8Scale), stream()));
}

void to_fp8(const void* from,
            int64_t rows,
            int64_t columns,
            Fp8 format,
            Fp8Scale* scale,
            const Fp8Copies& copies) {
  const auto* values = static_cast<const Bf16*>(from);
  const int64_t vectors = rows * columns / 8;
  if (vectors == 0) return;
  const bool wide = reinterpret_cast<uintptr_t>(from) % 16 == 0;
  const int64_t wanted = (vectors + kThreads * kUnroll - 1) / (kThreads * kUnroll);
  const auto blocks =
      static_cast<unsigned>(std::min<int64_t>(wanted, int64_t{limits().multiprocessors} * 8));
  amax_kernel<<<blocks, kThreads, 0, stream()>>>(values, vectors, wide, scale);
  VITRINE_GPU_LAUNCHED("amax");
  const Tiles tiles{rows, columns, (columns + kTileColumns - 1) / kTileColumns, wide};
  if (format == Fp8::kE5M2) {
    launch<E5M2>(values, tiles, scale, copies);
  } else {
    launch<E4M3>(values, tiles, scale, copies);
  }
}

}  // namespace vitrine::gpu
