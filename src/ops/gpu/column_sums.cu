// Sums of the columns of partial[rows, columns].
//
// Bytes: 4 rows columns read, mostly from L2 where they were just written: 132 rows of 1536 columns
// are 0.8 MB. What counts is latency: the kernel is launched while the partial sums are written, a
// block takes 16 columns in 16-byte pieces, and all loads of a thread are on their way together.
// Few rows are added by one thread a column.
#include "gpu/following.cuh"
#include "ops/gpu/column_sums.cuh"

namespace vitrine::gpu {
namespace {

constexpr int kThreads = 256, kColumns = 16;  // of a block
constexpr int kFew = 32;                      // rows
constexpr int kFewThreads = 128;
constexpr int kMostRows = 264;  // that one round of loads covers: two blocks a multiprocessor

template <typename T>
struct Columns {
  const Wide<T>* partial;
  int rows;
  int64_t columns, width;
  Wide<T> scale;
  GradientTo<T> first, second;

  // Column `at` of all: the first `width` belong to one gradient, the next to the other.
  __device__ __forceinline__ void put(int64_t at, Wide<T> sum) const {
    const Wide<T> value[1] = {scale * sum};
    if (at < width) {
      first.put(at, value);
    } else {
      second.put(at - width, value);
    }
  }

  // Adds rows begin, begin + step, ... of kN columns from `column` on. Rows past the last are the
  // first one again and count for nothing: around a branch each load would wait for the one before.
  template <int kAtOnce, int kN>
  __device__ __forceinline__ void add_rows(int64_t column,
                                           int begin,
                                           int step,
                                           Wide<T> (&sum)[kN]) const {
    const Wide<T>* from = partial + begin * columns + column;
    const int64_t stride = step * columns;
    for (int row = begin; row < rows; row += step * kAtOnce, from += kAtOnce * stride) {
      Vec<Wide<T>, kN> values[kAtOnce];
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
        values[u] = load<kN>(row + u * step < rows ? from + u * stride : from);
      }
#pragma unroll
      for (int u = 0; u < kAtOnce; ++u) {
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          sum[j] += row + u * step < rows ? values[u].v[j] : Wide<T>(0);
        }
      }
    }
  }
};

template <typename T>
__global__ void __launch_bounds__(kFewThreads) sum_few_kernel(const Columns<T> c) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kFewThreads + threadIdx.x;
  wait_for_previous();
  let_next_begin();
  if (column >= c.columns) return;
  Wide<T> sum[1] = {};
  c.template add_rows<kFew / 2>(column, 0, 1, sum);
  c.put(column, sum[0]);
}

// kN columns a thread.
template <typename T, int kN>
__global__ void __launch_bounds__(kThreads) sum_columns_kernel(const Columns<T> c) {
  constexpr int kLanes = kColumns / kN, kRows = kThreads / kLanes;
  constexpr int kAtOnce = (kMostRows + kRows - 1) / kRows;
  constexpr int kWarps = kThreads / VITRINE_WARP;
  __shared__ Wide<T> part[kWarps][kColumns];
  const int x = static_cast<int>(threadIdx.x) % kLanes * kN;
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kColumns;
  wait_for_previous();
  let_next_begin();
  Wide<T> sum[kN] = {};
  if (block + x < c.columns) {
    c.template add_rows<kAtOnce>(block + x, static_cast<int>(threadIdx.x) / kLanes, kRows, sum);
  }
#pragma unroll
  for (int j = 0; j < kN; ++j) {
#pragma unroll
    for (int offset = kLanes; offset < VITRINE_WARP; offset *= 2) {
      sum[j] += __shfl_xor_sync(VITRINE_FULL_MASK, sum[j], offset);
    }
    if (threadIdx.x % VITRINE_WARP < kLanes) part[threadIdx.x / VITRINE_WARP][x + j] = sum[j];
  }
  __syncthreads();
  const int64_t column = block + threadIdx.x;
  if (threadIdx.x >= kColumns || column >= c.columns) return;
  Wide<T> all = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) all += part[w][threadIdx.x];
  c.put(column, all);
}

}  // namespace

template <typename T>
void sum_columns(const Wide<T>* partial,
                 int64_t rows,
                 int64_t width,
                 const GradientTo<T>& first,
                 const GradientTo<T>& second,
                 bool both,
                 Wide<T> scale) {
  const int64_t columns = both ? 2 * width : width;
  if (columns == 0) return;
  const Columns<T> c{partial, static_cast<int>(rows), columns, width, scale, first, second};
  const auto launch = [&](auto kernel, int columns_a_block, int threads) {
    launch_following("sum_columns",
                     kernel,
                     static_cast<unsigned>((columns + columns_a_block - 1) / columns_a_block),
                     threads,
                     c);
  };
  constexpr int kN = 16 / sizeof(Wide<T>);
  if (rows <= kFew) {
    launch(sum_few_kernel<T>, kFewThreads, kFewThreads);
  } else if (columns % kN == 0 && aligned_to(16, {partial})) {
    launch(sum_columns_kernel<T, kN>, kColumns, kThreads);
  } else {
    launch(sum_columns_kernel<T, 1>, kColumns, kThreads);
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
