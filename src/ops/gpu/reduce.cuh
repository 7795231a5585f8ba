// Sums over some dimensions of a dense tensor in two stages of fixed order: chunks of the summed
// positions give partial sums in fp32 (f64), then the partial sums of each kept position are added.
// Cost: one read of the tensor; partial sums are a few per cent of it. Bound by memory.
#pragma once

#include <algorithm>
#include <array>

#include "ops/gpu/column_sums.cuh"

namespace vitrine::gpu {

// Dimensions with equal fate are merged, so that three groups of each kind are enough for rank 6;
// group 2 is the innermost. Strides in elements.
struct ReduceShape {
  Divisor kept[3], summed[3];  // sizes
  int64_t kept_stride[3] = {}, summed_stride[3] = {};
  bool columns = true;  // the innermost group is kept

  __host__ __device__ int64_t keeps() const {
    return kept[0].value * kept[1].value * kept[2].value;
  }
  __host__ __device__ int64_t sums() const {
    return summed[0].value * summed[1].value * summed[2].value;
  }

  static __device__ __forceinline__ int64_t offset(int64_t i,
                                                   const Divisor (&size)[3],
                                                   const int64_t (&stride)[3]) {
    if (size[0].value * size[1].value == 1) return i * stride[2];
    const int64_t outer = quotient(i, size[2]), first = quotient(outer, size[1]);
    return (i - outer * size[2].value) * stride[2] + (outer - first * size[1].value) * stride[1] +
           first * stride[0];
  }
  __device__ __forceinline__ int64_t kept_offset(int64_t i) const {
    return offset(i, kept, kept_stride);
  }
  __device__ __forceinline__ int64_t summed_offset(int64_t i) const {
    return offset(i, summed, summed_stride);
  }
};

// Bit i of `dims`: dimension i is kept.
inline ReduceShape reduce_shape(const Shape& x, int64_t dims) {
  ReduceShape shape;
  int kept = 3, summed = 3, before = -1;
  int64_t stride = 1;
  for (int i = x.rank() - 1; i >= 0; --i) {
    if (x[i] == 1) continue;
    const int kind = static_cast<int>(dims >> i & 1);
    if (before < 0) shape.columns = kind == 1;
    int& group = kind == 1 ? kept : summed;
    auto& sizes = kind == 1 ? shape.kept : shape.summed;
    if (kind != before) (kind == 1 ? shape.kept_stride : shape.summed_stride)[--group] = stride;
    sizes[group] = sizes[group].value * x[i];
    stride *= x[i];
    before = kind;
  }
  return shape;
}

constexpr int kReduceLanes = VITRINE_WARP;  // columns (vectors) of a block, or positions of a warp
constexpr int kReduceRows = 8;              // positions, or warps, of a block
constexpr int kReduceInFlight = 4;          // for one sum; half of it for more, to spare registers

// partial[chunk][k][kept position]. F has State<N>, load<N>(at), and finish<N>(at, kept position,
// state, sums[K][N]), which adds what the N elements from `at` give.
// With one chunk the sums go straight to their gradients.
template <typename T, int N, int K, typename F>
__global__ void __launch_bounds__(kReduceLanes* kReduceRows)
    column_partials(const F f,
                    const ReduceShape shape,
                    int64_t chunk,
                    Wide<T>* partial,
                    Wide<T> scale,
                    const std::array<GradientTo<T>, K> to) {
  using W = Wide<T>;
  constexpr int kColumns = kReduceLanes * N;
  constexpr int kInFlight = K == 1 ? kReduceInFlight : kReduceInFlight / 2;
  __shared__ W tree[kReduceRows][N * (kReduceLanes + 1)];
  const int64_t keeps = shape.keeps();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kColumns;
  const int64_t column = first + threadIdx.x * N;
  W sums[K][N] = {};
  if (column < keeps) {
    const int64_t base = shape.kept_offset(column);
    const int64_t begin = blockIdx.y * chunk, end = min(begin + chunk, shape.sums());
    for (int64_t r = begin + threadIdx.y; r < end; r += kReduceRows * kInFlight) {
      typename F::template State<N> state[kInFlight];
      int64_t at[kInFlight];
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        if (r + u * kReduceRows >= end) continue;
        at[u] = base + shape.summed_offset(r + u * kReduceRows);
        state[u] = f.template load<N>(at[u]);
      }
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        if (r + u * kReduceRows < end) f.template finish<N>(at[u], column, state[u], sums);
      }
    }
  }
  const int thread = static_cast<int>(threadIdx.y * kReduceLanes + threadIdx.x);
#pragma unroll
  for (int k = 0; k < K; ++k) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < N; ++j) {
      tree[threadIdx.y][j * (kReduceLanes + 1) + threadIdx.x] = sums[k][j];
    }
    __syncthreads();
    for (int q = thread; q < kColumns; q += kReduceLanes * kReduceRows) {
      if (first + q >= keeps) break;
      W sum = 0;
      for (int row = 0; row < kReduceRows; ++row) {
        sum += tree[row][q % N * (kReduceLanes + 1) + q / N];
      }
      if (gridDim.y == 1) {
        const W value[1] = {sum * scale};
        to[k].put(first + q, value);
        continue;
      }
      partial[(static_cast<int64_t>(blockIdx.y) * K + k) * keeps + first + q] = sum;
    }
  }
}

// The same where the innermost group is summed: a warp a kept position, lanes side by side.
template <int K, typename W, typename F>
__global__ void __launch_bounds__(kReduceLanes* kReduceRows)
    row_partials(const F f, const ReduceShape shape, int64_t chunk, W* partial) {
  const int64_t keeps = shape.keeps();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * kReduceRows + threadIdx.y;
  if (row >= keeps) return;  // whole warps
  const int64_t base = shape.kept_offset(row);
  const int64_t begin = blockIdx.y * chunk, end = min(begin + chunk, shape.sums());
  W sums[K][1] = {};
  for (int64_t r = begin + threadIdx.x; r < end; r += kReduceLanes) {
    const int64_t at = base + shape.summed_offset(r);
    f.template finish<1>(at, row, f.template load<1>(at), sums);
  }
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const W sum = warp_sum(sums[k][0]);
    if (threadIdx.x == 0) {
      partial[(static_cast<int64_t>(blockIdx.y) * K + k) * keeps + row] = sum;
    }
  }
}

// Runs f once on every element. `wide`: every pointer of f is 16-byte aligned. Takes the
// operation's workspace. Chunks depend on the shape alone, so the bits do too.
template <typename T, int K, typename F>
void reduce(const F& f,
            const ReduceShape& shape,
            bool wide,
            Wide<T> scale,
            const std::array<GradientTo<T>, K>& to,
            const char* op) {
  constexpr int64_t kBlocks = 512, kLeast = kReduceRows * kReduceInFlight;
  const int64_t keeps = shape.keeps(), sums = shape.sums();
  if (keeps == 0) return;
  const bool vectors = wide && shape.columns && shape.kept[2].value % kVector<T> == 0;
  const int64_t width = shape.columns ? kReduceLanes * (vectors ? kVector<T> : 1) : kReduceRows;
  const int64_t across = (keeps + width - 1) / width;
  const int64_t least = shape.columns ? kLeast : kLeast * kReduceLanes;
  const int64_t most = std::max<int64_t>(1, (sums + least - 1) / least);
  const int64_t wanted = std::clamp<int64_t>(kBlocks / across, 1, most);
  const int64_t chunk =
      std::max<int64_t>(1, ((sums + wanted - 1) / wanted + least - 1) / least) * least;
  const int64_t chunks = std::max<int64_t>(1, (sums + chunk - 1) / chunk);
  auto* partial =
      static_cast<Wide<T>*>(workspace(static_cast<size_t>(chunks * K * keeps) * sizeof(Wide<T>)));
  const dim3 block(kReduceLanes, kReduceRows);
  const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(chunks));
  if (!shape.columns) {
    row_partials<K><<<grid, block, 0, stream()>>>(f, shape, chunk, partial);
  } else if (vectors) {
    column_partials<T, kVector<T>, K>
        <<<grid, block, 0, stream()>>>(f, shape, chunk, partial, scale, to);
  } else {
    column_partials<T, 1, K><<<grid, block, 0, stream()>>>(f, shape, chunk, partial, scale, to);
  }
  check(cudaGetLastError(), op, __FILE__, __LINE__);
  if (shape.columns && chunks == 1) return;
  sum_columns<T>(partial, chunks, keeps, to[0], to[K - 1], K == 2, scale);
}

// The plain sum of g, which on the way can be copied to a gradient of its own shape.
template <typename T>
struct SumAndCopy {
  const T* g;
  GradientTo<T> copy;

  template <int N>
  using State = Vec<T, N>;
  template <int N>
  __device__ __forceinline__ State<N> load(int64_t at) const {
    return gpu::load<N>(g + at);
  }
  template <int N>
  __device__ __forceinline__ void finish(int64_t at,
                                         int64_t,
                                         const State<N>& state,
                                         Wide<T> (&sums)[1][N]) const {
    Wide<T> values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) sums[0][j] += values[j] = to_wide(state.v[j]);
    copy.put(at, values);
  }
};

}  // namespace vitrine::gpu
