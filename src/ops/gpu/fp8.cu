// Rounding to 8-bit floating formats: the largest magnitude, then the copies. Bound by memory: an
// element is read twice (2 x 2 bytes) and written once a copy, so 5 or 6 bytes an element. At
// [8192, 37888] 1.55 or 1.86 GB, 0.37 or 0.45 ms on H200. The two passes go through the tensor in
// opposite directions, so that each begins with what the one before left in the L2 cache. The
// transposition goes through shared memory in tiles of 128 x 128 bytes, whose 8-byte pieces are
// swapped so that neither side meets a bank twice.
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
constexpr int kTile = 128;               // rows and columns
constexpr int kPiece = 8;                // rows and columns of a thread
constexpr int kAcross = kTile / kPiece;  // threads along a side
static_assert(kAcross * kAcross == kThreads);

// kCount vectors, `step` elements apart: the loads are issued before any is used.
template <bool kOnce, int kCount>
__device__ __forceinline__ void load_all(Vec<Bf16, 8> (&in)[kCount],
                                         const Bf16* from,
                                         int64_t step,
                                         bool wide) {
  if (wide) {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      in[i] = kOnce ? load_once<8>(from + i * step) : load<8>(from + i * step);
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
#pragma unroll
      for (int e = 0; e < 8; ++e) in[i].v[e] = from[i * step + e];
    }
  }
}

// Magnitudes of bf16 are in the order of their bits, NaN above infinity; the maximum of whole
// numbers is the same in any order, so the atomic one is repeatable. From the tensor's end to its
// beginning: what wrote it left its end in the cache.
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
  const Bf16* last = from + (vectors - 1) * 8;
  for (; i + (kUnroll - 1) * kThreads < vectors; i += step) {
    Vec<Bf16, 8> in[kUnroll];
    load_all<false>(in, last - i * 8, -kThreads * 8, wide);
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) add(in[u]);
  }
  for (; i < vectors; i += kThreads) {
    Vec<Bf16, 8> in[1];
    load_all<false>(in, last - i * 8, 0, wide);
    add(in[0]);
  }
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

// Where the piece of 8 rows `piece` of a tile's column is, in bytes.
__device__ __forceinline__ int place(int column, int piece) {
  return column * kTile + (piece ^ column / kPiece) * kPiece;
}

struct Tiles {
  int64_t rows, columns, across;  // across: tiles of a row
  bool wide;
};

// A thread has 8 rows x 8 columns of the tile. A half-warp reads 256 bytes of a row and writes 128
// of each copy.
template <typename F, bool kAsItIs, bool kTransposed>
__global__ void __launch_bounds__(kThreads) to_fp8_kernel(const Bf16* from,
                                                          Tiles t,
                                                          const uint32_t* amax_bits,
                                                          Fp8Scale* scales,
                                                          uint8_t* as_it_is,
                                                          uint8_t* transposed) {
  __shared__ alignas(16) uint8_t tile[kTransposed ? kTile * kTile : 16];
  const uint32_t amax = *amax_bits;
  const float scale = scale_of<F>(amax);
  if (blockIdx.x == 0 && threadIdx.x == 0) *scales = {__fdiv_rn(1.0f, scale), amax};
  const int tx = static_cast<int>(threadIdx.x) % kAcross;
  const int ty = static_cast<int>(threadIdx.x) / kAcross;
  const int64_t first_row = int64_t{blockIdx.x} / t.across * kTile;
  const int64_t first_column = int64_t{blockIdx.x} % t.across * kTile;
  const int64_t row = first_row + ty * kPiece, column = first_column + tx * kPiece;
  uint2 bytes[kPiece] = {};
  if (row < t.rows && column < t.columns) {
    Vec<Bf16, 8> in[kPiece];
    load_all<true>(in, from + row * t.columns + column, t.columns, t.wide);
#pragma unroll
    for (int r = 0; r < kPiece; ++r) {
      bytes[r] = narrow8<F>(in[r], scale);
      if constexpr (kAsItIs) {
        *reinterpret_cast<uint2*>(as_it_is + (row + r) * t.columns + column) = bytes[r];
      }
    }
  }
  if constexpr (kTransposed) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t upper[4], lower[4];
#pragma unroll
      for (int r = 0; r < 4; ++r) {
        upper[r] = half ? bytes[r].y : bytes[r].x;
        lower[r] = half ? bytes[4 + r].y : bytes[4 + r].x;
      }
      transpose4(upper);
      transpose4(lower);
#pragma unroll
      for (int c = 0; c < 4; ++c) {
        const int at = place(tx * kPiece + half * 4 + c, ty);
        *reinterpret_cast<uint2*>(&tile[at]) = make_uint2(upper[c], lower[c]);
      }
    }
    __syncthreads();
    // 16 rows a thread: two pieces, which an odd swap has in the other order.
    constexpr int kWriters = kTile / 16;
    const int64_t to_row = first_row + static_cast<int>(threadIdx.x) % kWriters * 16;
    if (to_row >= t.rows) return;
#pragma unroll
    for (int c = static_cast<int>(threadIdx.x) / kWriters; c < kTile; c += kThreads / kWriters) {
      const int64_t to_column = first_column + c;
      if (to_column >= t.columns) return;
      const int piece = static_cast<int>(threadIdx.x) % kWriters * 2;
      const int at = place(c, piece);
      uint4 out = *reinterpret_cast<const uint4*>(&tile[at & ~15]);
      if (at & kPiece) out = make_uint4(out.z, out.w, out.x, out.y);
      *reinterpret_cast<uint4*>(transposed + to_column * t.rows + to_row) = out;
    }
  }
}

template <typename F>
void launch(const Bf16* from,
            const Tiles& t,
            const uint32_t* amax_bits,
            Fp8Scale* scale,
            const Fp8Copies& copies) {
  const auto blocks = static_cast<unsigned>((t.rows + kTile - 1) / kTile * t.across);
  auto* as_it_is = static_cast<uint8_t*>(copies.as_it_is);
  auto* transposed = static_cast<uint8_t*>(copies.transposed);
  if (as_it_is && transposed) {
    to_fp8_kernel<F, true, true>
        <<<blocks, kThreads, 0, stream()>>>(from, t, amax_bits, scale, as_it_is, transposed);
  } else if (transposed) {
    to_fp8_kernel<F, false, true>
        <<<blocks, kThreads, 0, stream()>>>(from, t, amax_bits, scale, as_it_is, transposed);
  } else if (as_it_is) {
    to_fp8_kernel<F, true, false>
        <<<blocks, kThreads, 0, stream()>>>(from, t, amax_bits, scale, as_it_is, transposed);
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
            const uint32_t* amax_bits,
            Fp8Scale* scale,
            const Fp8Copies& copies) {
  const auto* values = static_cast<const Bf16*>(from);
  const int64_t vectors = rows * columns / 8;
  if (vectors == 0) return;
  const bool wide = reinterpret_cast<uintptr_t>(from) % 16 == 0;
  if (!amax_bits) {
    const int64_t wanted = (vectors + kThreads * kUnroll - 1) / (kThreads * kUnroll);
    const auto blocks =
        static_cast<unsigned>(std::min<int64_t>(wanted, int64_t{limits().multiprocessors} * 8));
    amax_kernel<<<blocks, kThreads, 0, stream()>>>(values, vectors, wide, scale);
    VITRINE_GPU_LAUNCHED("amax");
    amax_bits = &scale->amax_bits;
  }
  const Tiles tiles{rows, columns, (columns + kTile - 1) / kTile, wide};
  if (format == Fp8::kE5M2) {
    launch<E5M2>(values, tiles, amax_bits, scale, copies);
  } else {
    launch<E4M3>(values, tiles, amax_bits, scale, copies);
  }
}

}  // namespace vitrine::gpu
