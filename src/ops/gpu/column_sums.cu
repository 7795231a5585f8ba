// Sums of the columns of partial[rows, columns].
//
// Bytes: 4 rows columns read, mostly from L2 where they were just written: 132 rows of 1536 columns
// are 0.8 MB. What counts is latency: the kernel is launched while the partial sums are written, a
// block takes 16 columns in 16-byte pieces, and all loads of a thread are on their way together.
// Few rows are added by one thread a column.
#include "gpu/copy_ahead.cuh"
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

  __device__ __forceinline__ const Wide<T>* place(int row, int64_t column) const {
    return partial + row * columns + column;
  }
};

// The sum of rows begin, begin + step, ... below `rows` of a column, the first of them at `from`.
// Rows past the last are the first one again and count for nothing, so that no load stands in a
// branch.
template <int kAtOnce, typename W>
__device__ __forceinline__ W sum_rows(const W* from, int begin, int step, int rows, int64_t pitch) {
  W sum = 0;
  for (int row = begin; row < rows; row += step * kAtOnce, from += step * kAtOnce * pitch) {
    W values[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      values[u] = row + u * step < rows ? from[u * step * pitch] : from[0];
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) sum += row + u * step < rows ? values[u] : W(0);
  }
  return sum;
}

// The same of the columns of a piece of 16 bytes, through stages[kAtOnce][kThreads]: of loads to
// registers the assembler lets two or three be on their way where five are wanted.
template <int kAtOnce, typename W, int kN>
__device__ __forceinline__ void sum_pieces(
    uint4* stages, const W* from, int begin, int step, int rows, int64_t pitch, W (&sums)[kN]) {
  uint4* const own = stages + threadIdx.x;
  for (int row = begin; row < rows; row += step * kAtOnce, from += step * kAtOnce * pitch) {
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const bool there = row + u * step < rows;
      copy_ahead(own + u * kThreads, there ? from + u * step * pitch : from, there);
    }
    end_stage();
    wait_for_oldest<1>();
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const auto piece = load<kN>(reinterpret_cast<const W*>(own + u * kThreads));
#pragma unroll
      for (int j = 0; j < kN; ++j) sums[j] += piece.v[j];
    }
  }
}

template <typename T>
__global__ void __launch_bounds__(kFewThreads) sum_few_kernel(const Columns<T> c) {
  const int64_t column = static_cast<int64_t>(blockIdx.x) * kFewThreads + threadIdx.x;
  const Wide<T>* from = c.place(0, column);
  wait_for_previous();
  let_next_begin();
  if (column < c.columns) c.put(column, sum_rows<kFew / 2>(from, 0, 1, c.rows, c.columns));
}

// kN columns a thread.
template <typename T, int kN>
__global__ void __launch_bounds__(kThreads) sum_columns_kernel(const Columns<T> c) {
  constexpr int kLanes = kColumns / kN, kRows = kThreads / kLanes;
  constexpr int kAtOnce = (kMostRows + kRows - 1) / kRows;
  constexpr int kWarps = kThreads / VITRINE_WARP;
  __shared__ Wide<T> part[kWarps][kColumns];
  const int x = static_cast<int>(threadIdx.x) % kLanes * kN;
  const int begin = static_cast<int>(threadIdx.x) / kLanes;
  const int64_t block = static_cast<int64_t>(blockIdx.x) * kColumns;
  const int rows = block + x < c.columns ? c.rows : 0;
  const Wide<T>* from = c.place(begin, block + x);
  wait_for_previous();
  let_next_begin();
  Wide<T> sum[kN] = {};
  if constexpr (kN > 1) {
    __shared__ uint4 stages[kAtOnce * kThreads];
    sum_pieces<kAtOnce>(stages, from, begin, kRows, rows, c.columns, sum);
  } else {
    sum[0] = sum_rows<kAtOnce>(from, begin, kRows, rows, c.columns);
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
