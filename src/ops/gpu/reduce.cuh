// Sums over some dimensions of a dense tensor, in fixed order: where kept positions fill the GPU,
// in one launch; else chunks of the summed positions give partial sums in fp32 (f64), and those of
// each kept position are added by a second kernel that is there when they are. Cost: one read of
// the tensor; partial sums are a few per cent of it. Bound by memory: all blocks are at work at
// once, 64 KB on their way to each multiprocessor.
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

  // Summed positions lie evenly.
  __device__ __forceinline__ bool even() const { return summed[0].value * summed[1].value == 1; }

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

constexpr int kReduceThreads = 256;
constexpr int kReduceFewLanes = 8;  // 128 bytes side by side, where columns are few
constexpr int kReduceInFlight = 4;  // vectors for one sum; half of it for more, to spare registers

// Threads of a multiprocessor that reduce at once, which leaves each 64 or 80 registers; 64 KB or
// more are on their way to it then.
constexpr int kReduceResident = 1024;  // where they add one sum
constexpr int reduce_resident(int sums) { return sums == 1 ? kReduceResident : 768; }

// Elements from each of at[], the rows kRows apart, of which `left` are there from the first one's
// on. Whole rounds ask for none of them: their additions stand in no branch.
template <bool kWhole, int kRows, int kInFlight, int N, int K, typename W, typename F>
__device__ __forceinline__ void add_round(
    const F& f, const int64_t (&at)[kInFlight], int64_t left, int64_t column, W (&sums)[K][N]) {
  typename F::template State<N> state[kInFlight];
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    if (kWhole || u * kRows < left) state[u] = f.template load<N>(at[u]);
  }
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    if (kWhole || u * kRows < left) f.template finish<N>(at[u], column, state[u], sums);
  }
}

// partial[chunk][k][kept position]. F has State<N>, load<N>(at), and finish<N>(at, kept position,
// state, sums[K][N]), which adds what the N elements from `at` give. kLanes threads lie side by
// side, the others below them. With one chunk the sums go straight to their gradients.
template <typename T, int N, int kLanes, int kThreads, int K, typename F>
__global__ void __launch_bounds__(kThreads, reduce_resident(K) / kThreads)
    column_partials(const F f,
                    const ReduceShape shape,
                    int64_t chunk,
                    Wide<T>* partial,
                    Wide<T> scale,
                    const std::array<GradientTo<T>, K> to) {
  using W = Wide<T>;
  constexpr int kColumns = kLanes * N, kRows = kThreads / kLanes, kWarps = kThreads / VITRINE_WARP;
  constexpr int kInFlight = K == 1 ? kReduceInFlight : kReduceInFlight / 2;
  __shared__ W tree[kWarps][N * (kLanes + 1)];
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / VITRINE_WARP;
  const int64_t keeps = shape.keeps();
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kColumns, column = first + lane * N;
  W sums[K][N] = {};
  wait_for_previous();
  if (column < keeps) {
    const int64_t base = shape.kept_offset(column);
    const int64_t begin = blockIdx.y * chunk, end = min(begin + chunk, shape.sums());
    const auto round = [&](int64_t r, const int64_t(&at)[kInFlight]) {
      if (r + (kInFlight - 1) * kRows < end) {
        add_round<true, kRows>(f, at, end - r, column, sums);
      } else {
        add_round<false, kRows>(f, at, end - r, column, sums);
      }
    };
    constexpr int kStep = kRows * kInFlight;
    const int64_t own = begin + threadIdx.x / kLanes;
    int64_t at[kInFlight];
    if (shape.even()) {
      const int64_t stride = shape.summed_stride[2];
      int64_t place = base + own * stride;
#pragma unroll 1
      for (int64_t r = own; r < end; r += kStep, place += kStep * stride) {
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) at[u] = place + u * kRows * stride;
        round(r, at);
      }
    } else {
#pragma unroll 1
      for (int64_t r = own; r < end; r += kStep) {
#pragma unroll
        for (int u = 0; u < kInFlight; ++u) {
          at[u] = base + shape.summed_offset(min(r + u * kRows, end - 1));
        }
        round(r, at);
      }
    }
  }
  let_next_begin();
#pragma unroll
  for (int k = 0; k < K; ++k) {
    __syncthreads();
#pragma unroll
    for (int j = 0; j < N; ++j) {
#pragma unroll
      for (int below = kLanes; below < VITRINE_WARP; below *= 2) {
        sums[k][j] += __shfl_xor_sync(VITRINE_FULL_MASK, sums[k][j], below);
      }
      if (threadIdx.x % VITRINE_WARP < kLanes) tree[warp][j * (kLanes + 1) + lane] = sums[k][j];
    }
    __syncthreads();
    for (int q = threadIdx.x; q < kColumns; q += kThreads) {
      if (first + q >= keeps) break;
      W sum = 0;
#pragma unroll
      for (int w = 0; w < kWarps; ++w) sum += tree[w][q % N * (kLanes + 1) + q / N];
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
__global__ void __launch_bounds__(kReduceThreads)
    row_partials(const F f, const ReduceShape shape, int64_t chunk, W* partial) {
  const int lane = threadIdx.x % VITRINE_WARP, warp = threadIdx.x / VITRINE_WARP;
  const int64_t keeps = shape.keeps();
  const int64_t row = static_cast<int64_t>(blockIdx.x) * (kReduceThreads / VITRINE_WARP) + warp;
  wait_for_previous();
  let_next_begin();
  if (row >= keeps) return;  // whole warps
  const int64_t base = shape.kept_offset(row);
  const int64_t begin = blockIdx.y * chunk, end = min(begin + chunk, shape.sums());
  W sums[K][1] = {};
  for (int64_t r = begin + lane; r < end; r += VITRINE_WARP) {
    const int64_t at = base + shape.summed_offset(r);
    auto state = f.template load<1>(at);
    f.template finish<1>(at, row, state, sums);
  }
#pragma unroll
  for (int k = 0; k < K; ++k) {
    const W sum = warp_sum(sums[k][0]);
    if (lane == 0) partial[(static_cast<int64_t>(blockIdx.y) * K + k) * keeps + row] = sum;
  }
}

// How the work is cut. It depends on the shape alone, so the bits do too.
struct ReducePlan {
  int lanes = VITRINE_WARP, threads = kReduceThreads;
  int64_t across = 1, chunk = 1, chunks = 1;
  bool vectors = false;
};
// `sums` of them: 1 or 2. `wide`: every pointer is 16-byte aligned.
ReducePlan plan_reduce(const ReduceShape& shape, int sums, int vector, bool wide);

// Bytes of scratch whatever the alignment.
template <typename T, int K>
size_t reduce_scratch(const ReduceShape& shape) {
  int64_t chunks = 0;
  for (const bool wide : {false, true}) {
    const ReducePlan plan = plan_reduce(shape, K, kVector<T>, wide);
    if (!shape.columns || plan.chunks > 1) chunks = std::max(chunks, plan.chunks);
  }
  return static_cast<size_t>(chunks * K * shape.keeps()) * sizeof(Wide<T>);
}

// Runs f once on every element: to[k] (=|+=) scale * sums. `scratch`: reduce_scratch() bytes; null:
// the operation's workspace is taken.
template <typename T, int K, typename F>
void reduce(const F& f,
            const ReduceShape& shape,
            bool wide,
            Wide<T> scale,
            const std::array<GradientTo<T>, K>& to,
            const char* op,
            void* scratch = nullptr) {
  const int64_t keeps = shape.keeps();
  if (keeps == 0) return;
  const ReducePlan plan = plan_reduce(shape, K, kVector<T>, wide);
  const bool direct = shape.columns && plan.chunks == 1;
  if (!direct && !scratch) scratch = workspace(reduce_scratch<T, K>(shape));
  auto* partial = static_cast<Wide<T>*>(scratch);
  const FollowingLaunch launch{
      op,
      dim3(static_cast<unsigned>(plan.across), static_cast<unsigned>(plan.chunks)),
      static_cast<unsigned>(plan.threads)};
  const auto columns = [&]<int N, int kLanes, int kThreads>() {
    launch_following(launch,
                     column_partials<T, N, kLanes, kThreads, K, F>,
                     f,
                     shape,
                     plan.chunk,
                     partial,
                     scale,
                     to);
  };
  constexpr int kN = kVector<T>, kMost = K == 1 ? kReduceResident : kReduceThreads;
  if (!shape.columns) {
    launch_following(launch, row_partials<K, Wide<T>, F>, f, shape, plan.chunk, partial);
  } else if (!plan.vectors) {
    columns.template operator()<1, VITRINE_WARP, kReduceThreads>();
  } else if (plan.lanes == VITRINE_WARP) {
    columns.template operator()<kN, VITRINE_WARP, kReduceThreads>();
  } else if (plan.threads == kReduceThreads) {
    columns.template operator()<kN, kReduceFewLanes, kReduceThreads>();
  } else {
    columns.template operator()<kN, kReduceFewLanes, kMost>();
  }
  if (!direct) sum_columns<T>(partial, plan.chunks, keeps, to[0], to[K - 1], K == 2, scale);
}

// The plain sum of g.
template <typename T>
struct PlainSum {
  const T* g;

  template <int N>
  using State = Vec<T, N>;
  template <int N>
  __device__ __forceinline__ State<N> load(int64_t at) const {
    return gpu::load<N>(g + at);
  }
  template <int N>
  __device__ __forceinline__ void finish(int64_t,
                                         int64_t,
                                         State<N>& state,
                                         Wide<T> (&sums)[1][N]) const {
    stay_packed(state);
    Wide<T> x[N];
    widen(state, x);
#pragma unroll
    for (int j = 0; j < N; ++j) sums[0][j] += x[j];
  }
};

// The same, and on the way g can be copied to a gradient of its own shape.
template <typename T>
struct SumAndCopy {
  PlainSum<T> sum;
  GradientTo<T> copy;

  template <int N>
  using State = Vec<T, N>;
  template <int N>
  __device__ __forceinline__ State<N> load(int64_t at) const {
    return sum.template load<N>(at);
  }
  template <int N>
  __device__ __forceinline__ void finish(int64_t at,
                                         int64_t column,
                                         State<N>& state,
                                         Wide<T> (&sums)[1][N]) const {
    sum.template finish<N>(at, column, state, sums);
    copy.put(at, state);
  }
};

}  // namespace vitrine::gpu
