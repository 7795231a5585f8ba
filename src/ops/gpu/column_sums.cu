// Sums of the columns of partial[blocks, columns].
//
// Bytes: 4 blocks columns read, mostly from L2 where they were just written: 660 blocks of 1536
// columns are 4 MB, a few microseconds. A block takes 32 columns, a warp of it every 32nd row.
#include "ops/gpu/column_sums.cuh"

namespace vitrine::gpu {
namespace {

constexpr int kColumns = 32, kRows = 32;

template <typename T>
__global__ void __launch_bounds__(kColumns* kRows) sum_columns_kernel(const Wide<T>* partial,
                                                                      int64_t blocks,
                                                                      int64_t width,
                                                                      int64_t columns,
                                                                      GradientTo<T> first,
                                                                      GradientTo<T> second) {
  using W = Wide<T>;
  __shared__ W part[kRows][kColumns + 1];
  const int x = threadIdx.x % kColumns, y = threadIdx.x / kColumns;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kColumns + x;
  W sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int64_t b = y; b < blocks; b += kRows) sum += partial[b * columns + column];
  }
  part[y][x] = sum;
  __syncthreads();
  // Warp y now holds column y of the tile, one row a lane.
  const W value[1] = {warp_sum(part[x][y])};
  const int64_t own = static_cast<int64_t>(blockIdx.x) * kColumns + y;
  if (x != 0 || own >= columns) return;
  if (own < width) {
    first.put(own, value);
  } else {
    second.put(own - width, value);
  }
}

}  // namespace

template <typename T>
void sum_columns(const Wide<T>* partial,
                 int64_t blocks,
                 int64_t width,
                 const GradientTo<T>& first,
                 const GradientTo<T>& second,
                 bool both) {
  const int64_t columns = both ? 2 * width : width;
  const auto grid = static_cast<unsigned>((columns + kColumns - 1) / kColumns);
  sum_columns_kernel<T>
      <<<grid, kColumns * kRows, 0, stream()>>>(partial, blocks, width, columns, first, second);
  VITRINE_GPU_LAUNCHED("sum_columns");
}

#define VITRINE_INSTANCE(T)     \
  template void sum_columns<T>( \
      const Wide<T>*, int64_t, int64_t, const GradientTo<T>&, const GradientTo<T>&, bool)
VITRINE_INSTANCE(float);
VITRINE_INSTANCE(double);
VITRINE_INSTANCE(__nv_bfloat16);
VITRINE_INSTANCE(__half);
#undef VITRINE_INSTANCE

}  // namespace vitrine::gpu
