// Matrix products that no library takes. Tiles of 32 x 32 in shared memory, one block a tile: 2 m n
// k operations at the speed of ordinary arithmetic, (m k n / 32 + n k m / 32) elements read.
#include <type_traits>

#include "gpu/fp8.cuh"
#include "gpu/runtime.h"
#include "gpu/vector.cuh"
#include "ops/gpu/cublaslt.h"

namespace vitrine::gpu {
namespace {

constexpr int kTile = 32;
constexpr int kRowsAtOnce = 8;

struct Sizes {
  int64_t m, n, k, a_stride, b_stride, d_stride;
  bool a_transposed, b_transposed, accumulate;
};

// A and B are T, or 8-bit types with their scales.
template <typename A, typename B, typename T, typename D>
__global__ void plain_matmul_kernel(Sizes s,
                                    const A* a,
                                    const B* b,
                                    D* d,
                                    const T* bias,
                                    const Wide<T>* scales,
                                    const float* a_inverse,
                                    const float* b_inverse) {
  using W = Wide<T>;
  __shared__ W a_tile[kTile][kTile + 1], b_tile[kTile][kTile + 1];
  const int64_t row = static_cast<int64_t>(blockIdx.y) * kTile;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kTile + threadIdx.x;
  W sum[kTile / kRowsAtOnce] = {};
  for (int64_t step = 0; step < s.k; step += kTile) {
    for (int r = static_cast<int>(threadIdx.y); r < kTile; r += kRowsAtOnce) {
      const int64_t i = row + r, p = step + threadIdx.x, q = step + r;
      const bool a_in = i < s.m && p < s.k, b_in = q < s.k && column < s.n;
      a_tile[r][threadIdx.x] =
          a_in ? to_wide(a[s.a_transposed ? p * s.a_stride + i : i * s.a_stride + p]) : W(0);
      b_tile[r][threadIdx.x] =
          b_in ? to_wide(b[s.b_transposed ? column * s.b_stride + q : q * s.b_stride + column])
               : W(0);
    }
    __syncthreads();
    for (int p = 0; p < kTile; ++p) {
#pragma unroll
      for (int r = 0; r < kTile / kRowsAtOnce; ++r) {
        sum[r] += a_tile[threadIdx.y + r * kRowsAtOnce][p] * b_tile[p][threadIdx.x];
      }
    }
    __syncthreads();
  }
  if (column >= s.n) return;
  W alpha = scales ? scales[0] : W(1);
  if (a_inverse) alpha *= static_cast<W>(*a_inverse);
  if (b_inverse) alpha *= static_cast<W>(*b_inverse);
#pragma unroll
  for (int r = 0; r < kTile / kRowsAtOnce; ++r) {
    const int64_t i = row + threadIdx.y + r * kRowsAtOnce;
    if (i >= s.m) continue;
    W value = alpha * sum[r];
    if (bias) value += to_wide(bias[column]);
    D* place = d + i * s.d_stride + column;
    if (s.accumulate) value += static_cast<W>(to_wide(*place));
    *place = from_wide<D>(value);
  }
}

template <typename A, typename B, typename T, typename D>
void launch(const Gemm& g) {
  constexpr int64_t kMostRows = int64_t{65535} * kTile;
  for (int64_t first = 0; first < g.m; first += kMostRows) {
    const int64_t rows = g.m - first < kMostRows ? g.m - first : kMostRows;
    const Sizes sizes{rows,
                      g.n,
                      g.k,
                      g.a.stride,
                      g.b.stride,
                      g.d_stride,
                      g.a.transposed,
                      g.b.transposed,
                      g.accumulate};
    const dim3 grid(static_cast<unsigned>((g.n + kTile - 1) / kTile),
                    static_cast<unsigned>((rows + kTile - 1) / kTile));
    plain_matmul_kernel<A, B, T, D><<<grid, dim3(kTile, kRowsAtOnce), 0, stream()>>>(
        sizes,
        static_cast<const A*>(g.a.data) + first * (g.a.transposed ? 1 : g.a.stride),
        static_cast<const B*>(g.b.data),
        static_cast<D*>(g.d) + first * g.d_stride,
        static_cast<const T*>(g.bias),
        static_cast<const Wide<T>*>(g.scales),
        g.a.inverse,
        g.b.inverse);
    VITRINE_GPU_LAUNCHED("plain_matmul");
  }
}

template <typename A>
void launch_fp8(const Gemm& g) {
  if (g.d_dtype == DType::kF32) return launch<A, E4M3, __nv_bfloat16, float>(g);
  launch<A, E4M3, __nv_bfloat16, __nv_bfloat16>(g);
}

}  // namespace

void plain_matmul(const Gemm& g) {
  if (g.a.fp8 == Fp8::kE4M3) return launch_fp8<E4M3>(g);
  if (g.a.fp8 == Fp8::kE5M2) return launch_fp8<E5M2>(g);
  dispatch_float(g.dtype, "matmul", [&]<typename T>() {
    if (g.d_dtype == g.dtype) return launch<T, T, T, T>(g);
    if (g.d_dtype == DType::kF32) return launch<T, T, T, float>(g);
    throw ConfigError(std::string("matmul: no product of ") + dtype_name(g.dtype) + " into " +
                      dtype_name(g.d_dtype));
  });
}

}  // namespace vitrine::gpu
