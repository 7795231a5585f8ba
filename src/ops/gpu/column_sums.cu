// Sums of the columns of partial[blocks, columns].
//
// Bytes: 4 blocks columns read, mostly from L2 where they were just written: 132 blocks of 1536
// columns are 0.8 MB, two microseconds of latency, launched while the partial sums are written, in
// blocks small enough to wait beside those that write them. A block takes 16 columns, half a warp
// of it every 16th row; few rows are added by one thread a column.
#include "gpu/following.cuh"
#include "ops/gpu/column_sums.cuh"

namespace vitrine::gpu {
namespace {

constexpr int kColumns = 16, kRows = 16;
constexpr int kAtOnce = 17;  // of 264 rows by 16
constexpr int kFew = 32;     // rows
constexpr int kFewThreads = 128;

// Column `own` of all: the first `width` belong to one gradient, the next to the other.
template <typename T>
__device__ __forceinline__ void put_sum(int64_t own,
                                        int64_t width,
                                        Wide<T> sum,
                                        const GradientTo<T>& first,
                                        const GradientTo<T>& second) {
  const Wide<T> value[1] = {sum};
  if (own < width) {
    first.put(own, value);
  } else {
    second.put(own - width, value);
  }
}

// Rows begin, begin + step, ... below `rows` of a column. kAtOnce loads are on their way together
// whatever the count: those of a plain loop's last rounds would wait for each other.
template <int kAtOnce, typename W>
__device__ __forceinline__ W
sum_rows(const W* column, int64_t begin, int64_t step, int64_t rows, int64_t columns) {
  W sum = 0;
  for (int64_t row = begin; row < rows; row += step * kAtOnce) {
    W values[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int64_t at = row + u * step;
      values[u] = at < rows ? column[at * columns] : W(0);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) sum += values[u];
  }
  return sum;
}

template <typename T>
__global__ void __launch_bounds__(kFewThreads) sum_few_kernel(const Wide<T>* partial,
                                                              int blocks,
                                                              int64_t width,
                                                              int64_t columns,
                                                              Wide<T> scale,
                                                              GradientTo<T> first,
                                                              GradientTo<T> second) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kFewThreads + threadIdx.x;
  wait_for_previous();
  let_next_begin();
  if (column >= columns) return;
  put_sum(column,
          width,
          scale * sum_rows<kFew / 2>(partial + column, 0, 1, blocks, columns),
          first,
          second);
}

template <typename T>
__global__ void __launch_bounds__(kColumns* kRows) sum_columns_kernel(const Wide<T>* partial,
                                                                      int64_t blocks,
                                                                      int64_t width,
                                                                      int64_t columns,
                                                                      Wide<T> scale,
                                                                      GradientTo<T> first,
                                                                      GradientTo<T> second) {
  using W = Wide<T>;
  __shared__ W part[kRows][kColumns];
  const int x = threadIdx.x % kColumns, y = threadIdx.x / kColumns;
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kColumns + x;
  wait_for_previous();
  let_next_begin();
  part[y][x] =
      column < columns ? sum_rows<kAtOnce>(partial + column, y, kRows, blocks, columns) : 0;
  __syncthreads();
  if (y > 0 || column >= columns) return;
  W sum = 0;
#pragma unroll
  for (int r = 0; r < kRows; ++r) sum += part[r][x];
  put_sum(column, width, sum * scale, first, second);
}

}  // namespace

template <typename T>
void sum_columns(const Wide<T>* partial,
                 int64_t blocks,
                 int64_t width,
                 const GradientTo<T>& first,
                 const GradientTo<T>& second,
                 bool both,
                 Wide<T> scale) {
  const int64_t columns = both ? 2 * width : width;
  if (columns == 0) return;
  const auto launch = [&](auto kernel, int64_t columns_a_block, int threads) {
    launch_following("sum_columns",
                     kernel,
                     static_cast<unsigned>((columns + columns_a_block - 1) / columns_a_block),
                     threads,
                     partial,
                     blocks,
                     width,
                     columns,
                     scale,
                     first,
                     second);
  };
  if (blocks <= kFew) {
    launch(sum_few_kernel<T>, kFewThreads, kFewThreads);
  } else {
    launch(sum_columns_kernel<T>, kColumns, kColumns * kRows);
  }
}

#define VITRINE_INSTANCE(T)     \
  template void sum_columns<T>( \
      const Wide<T>*, int64_t, int64_t, const GradientTo<T>&, const GradientTo<T>&, bool, Wide<T>)
VITRINE_INSTANCE(float);
VITRINE_INSTANCE(double);
VITRINE_INSTANCE(__nv_bfloat16);
VITRINE_INSTANCE(__half);
#undef VITRINE_INSTANCE

}  // namespace vitrine::gpu
