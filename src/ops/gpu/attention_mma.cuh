// Tensor-core pieces of the own attention kernels for two-byte dtypes: fragments of 16 x 8 x 16
// products, and tiles of rows that a warp keeps to itself in shared memory.
#pragma once

#include <cstdint>
#include <initializer_list>

#include "gpu/vector.cuh"
#include "ops/gpu/attention_tile.cuh"

namespace vitrine::gpu {

constexpr float kLog2E = 1.4426950408889634f;
constexpr float kLn2 = 0.6931471805599453f;

// Lane l of a warp holds, of a product of A [16, 16] and B [16, 8], with g = l / 4 and t = l % 4:
//   A: rows g and g + 8, columns 2t, 2t + 1 and 2t + 8, 2t + 9 (two values a register)
//   B: rows 2t, 2t + 1 and 2t + 8, 2t + 9 of column g
//   C: rows g (first two) and g + 8, columns 2t, 2t + 1
using FragmentA = uint32_t[4];
using FragmentC = float[4];

__device__ __forceinline__ uint32_t pack(__nv_bfloat16, float low, float high) {
  const __nv_bfloat162 two = __floats2bfloat162_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&two);
}
__device__ __forceinline__ uint32_t pack(__half, float low, float high) {
  const __half2 two = __floats2half2_rn(low, high);
  return *reinterpret_cast<const uint32_t*>(&two);
}

__device__ __forceinline__ void multiply_add(
    __nv_bfloat16, FragmentC& c, const FragmentA& a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_add(
    __half, FragmentC& c, const FragmentA& a, uint32_t b0, uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Four 8 x 8 matrices; lane l gives the address of row l % 8 of matrix l / 8 and gets two values of
// each: row l / 4, columns 2 (l % 4) and the next; transposed: the same of the transpose.
template <bool kTransposed>
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], const void* row) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                 : "r"(address)
                 : "memory");
  }
}

__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// Rows of a strided matrix [length, kD] in device memory, 16-byte aligned.
template <typename T>
struct StridedRows {
  const T* data;
  int64_t step;  // elements between rows
  int64_t length;
};

// kRows rows in shared memory, padded by 16 bytes so that the eight rows of a matrix lie in
// different banks.
template <typename T, int kD, int kRows>
struct WarpTile {
  static constexpr int kPitch = kD + 8;
  static constexpr int kElements = kRows * kPitch;
  T* data;

  // Zero past the end. By one warp; the rows are there for all its lanes on return.
  __device__ __forceinline__ void load(const StridedRows<T>& rows, int64_t first) const {
    constexpr int kPieces = kD / 8;
    const int lane = static_cast<int>(threadIdx.x) % VITRINE_WARP;
#pragma unroll 4
    for (int i = lane; i < kRows * kPieces; i += VITRINE_WARP) {
      const int r = i / kPieces, c = i % kPieces * 8;
      uint4 piece = make_uint4(0, 0, 0, 0);
      if (first + r < rows.length) {
        piece = *reinterpret_cast<const uint4*>(rows.data + (first + r) * rows.step + c);
      }
      *reinterpret_cast<uint4*>(data + r * kPitch + c) = piece;
    }
  }

  // scores[16, kRows] += own[16, kD] tileᵀ
  __device__ __forceinline__ void scores(FragmentC (&out)[kRows / 8],
                                         const FragmentA (&own)[kD / 16]) const {
    const int lane = static_cast<int>(threadIdx.x) % VITRINE_WARP;
#pragma unroll
    for (int n = 0; n < kRows / 8; ++n) {
#pragma unroll
      for (int k = 0; k < kD / 32; ++k) {
        uint32_t b[4];
        load_matrices<false>(b, data + (n * 8 + lane % 8) * kPitch + k * 32 + lane / 8 * 8);
        multiply_add(T{}, out[n], own[2 * k], b[0], b[1]);
        multiply_add(T{}, out[n], own[2 * k + 1], b[2], b[3]);
      }
    }
  }

  // sum[16, kD] += p[16, kRows] tile
  __device__ __forceinline__ void add_product(FragmentC (&sum)[kD / 8],
                                              const FragmentC (&p)[kRows / 8]) const {
    const int lane = static_cast<int>(threadIdx.x) % VITRINE_WARP;
#pragma unroll
    for (int k = 0; k < kRows / 16; ++k) {
      // Two neighbouring C fragments are an A fragment of 16 columns.
      const FragmentA a = {pack(T{}, p[2 * k][0], p[2 * k][1]),
                           pack(T{}, p[2 * k][2], p[2 * k][3]),
                           pack(T{}, p[2 * k + 1][0], p[2 * k + 1][1]),
                           pack(T{}, p[2 * k + 1][2], p[2 * k + 1][3])};
#pragma unroll
      for (int n = 0; n < kD / 16; ++n) {
        uint32_t b[4];
        load_matrices<true>(b, data + (k * 16 + lane % 16) * kPitch + n * 16 + lane / 16 * 8);
        multiply_add(T{}, sum[2 * n], a, b[0], b[1]);
        multiply_add(T{}, sum[2 * n + 1], a, b[2], b[3]);
      }
    }
  }
};

// The 16 rows from `first` as A fragments; zero past the end.
template <typename T, int kD>
__device__ __forceinline__ void load_own(FragmentA (&own)[kD / 16],
                                         const StridedRows<T>& rows,
                                         int64_t first) {
  const int lane = static_cast<int>(threadIdx.x) % VITRINE_WARP;
  const int64_t r0 = first + lane / 4, r1 = r0 + 8;
  const T* row0 = rows.data + r0 * rows.step + lane % 4 * 2;
  const T* row1 = rows.data + r1 * rows.step + lane % 4 * 2;
#pragma unroll
  for (int k = 0; k < kD / 16; ++k) {
    const auto word = [&](const T* row, bool there, int c) {
      return there ? *reinterpret_cast<const uint32_t*>(row + c) : 0u;
    };
    own[k][0] = word(row0, r0 < rows.length, k * 16);
    own[k][1] = word(row1, r1 < rows.length, k * 16);
    own[k][2] = word(row0, r0 < rows.length, k * 16 + 8);
    own[k][3] = word(row1, r1 < rows.length, k * 16 + 8);
  }
}

__device__ __forceinline__ int lane_index() { return static_cast<int>(threadIdx.x) % VITRINE_WARP; }

template <typename T>
__device__ __forceinline__ StridedRows<T> packed_rows(
    const PackedPlaces& s, const T* base, int64_t width, int64_t group, int64_t head) {
  return {base + s.first_row(group) * width + head * s.d, s.inner * width, s.length};
}

// Sum or maximum over the four lanes that hold a row.
__device__ __forceinline__ float row_sum(float x) {
  x += __shfl_xor_sync(VITRINE_FULL_MASK, x, 1);
  return x + __shfl_xor_sync(VITRINE_FULL_MASK, x, 2);
}
__device__ __forceinline__ float row_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(VITRINE_FULL_MASK, x, 1));
  return fmaxf(x, __shfl_xor_sync(VITRINE_FULL_MASK, x, 2));
}

template <int kCount>
__device__ __forceinline__ void clear(FragmentC (&c)[kCount]) {
#pragma unroll
  for (int n = 0; n < kCount; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) c[n][i] = 0;
  }
}

template <typename D>
__device__ __forceinline__ void put(D* place, float value, bool accumulate) {
  if (accumulate) value += to_wide(*place);
  *place = from_wide<D>(value);
}

// rows[first + 16, kD] (+)= factor * sum
template <typename D, int kD>
__device__ __forceinline__ void put_rows(D* rows,
                                         int64_t step,
                                         int64_t length,
                                         int64_t first,
                                         const FragmentC (&sum)[kD / 8],
                                         const float (&factor)[2],
                                         bool accumulate) {
  const int lane = lane_index();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int64_t r = first + lane / 4 + half * 8;
    if (r >= length) continue;
#pragma unroll
    for (int n = 0; n < kD / 8; ++n) {
      D* place = rows + r * step + n * 8 + lane % 4 * 2;
      put(place, factor[half] * sum[n][half * 2], accumulate);
      put(place + 1, factor[half] * sum[n][half * 2 + 1], accumulate);
    }
  }
}

inline bool aligned_to_16(std::initializer_list<const void*> pointers) {
  uintptr_t all = 0;
  for (const void* pointer : pointers) all |= reinterpret_cast<uintptr_t>(pointer);
  return all % 16 == 0;
}

}  // namespace vitrine::gpu
