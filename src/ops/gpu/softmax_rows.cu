// Kernels over rows of logits, bound by memory. With two bytes a logit, [16384, 152064] is 5.0 GB:
// statistics read it once (1.2 ms on H200), the gradient reads and writes it once (2.4 ms). Where a
// cluster of blocks can keep a row (softmax_clusters.cu) both read it once together; other rows are
// read twice (304 KB a row; 132 rows at work fill the L2 cache).
#include "ops/gpu/softmax_rows.cuh"

namespace vitrine::gpu {
namespace {

constexpr int kThreads = 512;
constexpr int kInFlight = 4;

__device__ __forceinline__ float exp_of(float x) { return expf(x); }
__device__ __forceinline__ double exp_of(double x) { return exp(x); }
__device__ __forceinline__ float log_of(float x) { return logf(x); }
__device__ __forceinline__ double log_of(double x) { return log(x); }

template <typename T>
struct Row {
  T* logits;
  int64_t vocabulary, place;
  int64_t target;  // negative: none
};

// One pass with a running maximum for each thread; the same bits on every thread of the block.
template <typename T, int N>
__device__ __forceinline__ Wide<T> row_lse(const Row<T>& row, Wide<T>* shared) {
  using W = Wide<T>;
  W highest = -INFINITY, sum = 0;
  const int64_t vectors = row.vocabulary / N;
  for (int64_t v = threadIdx.x; v < vectors; v += kInFlight * kThreads) {
    Vec<T, N> in[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (v + u * kThreads < vectors) in[u] = load<N>(row.logits + (v + u * kThreads) * N);
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (v + u * kThreads >= vectors) continue;
      W most = to_wide(in[u].v[0]);
#pragma unroll
      for (int j = 1; j < N; ++j) {
        const W x = to_wide(in[u].v[j]);
        most = x > most ? x : most;
      }
      if (most > highest) {
        sum *= exp_of(highest - most);
        highest = most;
      }
      if (!(highest > -static_cast<W>(INFINITY))) continue;  // so far only what counts for nothing
#pragma unroll
      for (int j = 0; j < N; ++j) sum += exp_of(to_wide(in[u].v[j]) - highest);
    }
  }
  const W most = block_max(highest, shared);
  const W total = block_sum(highest == most ? sum : sum * exp_of(highest - most), shared);
  return most + log_of(total);
}

template <typename T, int N>
__device__ __forceinline__ void write_gradient(const Row<T>& row, Wide<T> lse, Wide<T> factor) {
  const int64_t vectors = row.vocabulary / N;
  for (int64_t v = threadIdx.x; v < vectors; v += kInFlight * kThreads) {
    Vec<T, N> in[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      if (v + u * kThreads < vectors) in[u] = load<N>(row.logits + (v + u * kThreads) * N);
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const int64_t first = (v + u * kThreads) * N;
      if (v + u * kThreads >= vectors) continue;
#pragma unroll
      for (int j = 0; j < N; ++j) {
        Wide<T> p = row.target < 0 ? Wide<T>(0) : exp_of(to_wide(in[u].v[j]) - lse);
        if (first + j == row.target) p -= 1;
        in[u].v[j] = from_wide<T>(factor * p);
      }
      store(row.logits + first, in[u]);
    }
  }
}

// A block a row. Not `statistics`: lse is given.
template <typename T, int N, bool kStatistics, bool kGradient>
__global__ void __launch_bounds__(kThreads) softmax_row_kernel(T* logits,
                                                               const int32_t* target,
                                                               int64_t vocabulary,
                                                               int64_t first_row,
                                                               Wide<T>* lse,
                                                               Wide<T>* row_loss,
                                                               const Wide<T>* factor,
                                                               Faults faults) {
  using W = Wide<T>;
  __shared__ W shared[kThreads / VITRINE_WARP];
  const int64_t r = blockIdx.x;
  Row<T> row{logits + r * vocabulary, vocabulary, first_row + r, target[r]};
  const bool outside = row.target >= vocabulary;
  if (outside && threadIdx.x == 0) note_bad_target(faults, vocabulary, row.place, row.target);
  if (outside) row.target = -1;
  W row_lse_value;
  if constexpr (kStatistics) {
    row_lse_value = row_lse<T, N>(row, shared);
    if (threadIdx.x == 0) {
      lse[r] = row_lse_value;
      row_loss[r] = row.target < 0 ? W(0) : row_lse_value - to_wide(row.logits[row.target]);
    }
    // The target's logit is read before it is written over.
    if constexpr (kGradient) __syncthreads();
  } else {
    row_lse_value = lse[r];
  }
  if constexpr (kGradient) {
    write_gradient<T, N>(row, row_lse_value, factor ? *factor : W(1));
  }
}

template <bool kStatistics, bool kGradient>
void launch_rows(const LogitRows& rows, const void* factor) {
  if (rows.rows == 0) return;
  const Faults faults{fault_slot(), fault_operation("linear_cross_entropy")};
  dispatch_float(rows.dtype, "linear_cross_entropy", [&]<typename T>() {
    const auto launch = [&]<int N>() {
      softmax_row_kernel<T, N, kStatistics, kGradient>
          <<<static_cast<unsigned>(rows.rows), kThreads, 0, stream()>>>(
              static_cast<T*>(rows.logits),
              rows.target,
              rows.vocabulary,
              rows.first_row,
              static_cast<Wide<T>*>(rows.lse),
              static_cast<Wide<T>*>(rows.row_loss),
              static_cast<const Wide<T>*>(factor),
              faults);
    };
    constexpr int kWidth = 16 / sizeof(T);
    const bool wide =
        rows.vocabulary % kWidth == 0 && reinterpret_cast<uintptr_t>(rows.logits) % 16 == 0;
    wide ? launch.template operator()<kWidth>() : launch.template operator()<1>();
    VITRINE_GPU_LAUNCHED("softmax_rows");
  });
}

template <typename W>
__global__ void mean_loss_kernel(
    const int32_t* target, int64_t rows, int64_t vocabulary, const W* row_loss, W* loss, W* count) {
  __shared__ double shared[32];
  double sum = 0, used = 0;
  for (int64_t r = threadIdx.x; r < rows; r += blockDim.x) {
    const bool counts = target[r] >= 0 && target[r] < vocabulary;
    if (counts) sum += static_cast<double>(row_loss[r]);
    used += counts;
  }
  sum = block_sum(sum, shared);
  used = block_sum(used, shared);
  if (threadIdx.x != 0) return;
  *count = static_cast<W>(used);
  *loss = used > 0 ? static_cast<W>(sum / used) : W(0);
}

template <typename W>
__global__ void loss_scales_kernel(const W* dloss, const W* count, W* scales) {
  const W factor = *count > 0 ? *dloss / *count : W(0);
  scales[0] = factor;
  scales[1] = 0;
  scales[2] = factor;
  scales[3] = 1;
}

}  // namespace

void softmax_statistics(const LogitRows& rows) {
  if (!softmax_in_clusters<false>(rows)) launch_rows<true, false>(rows, nullptr);
}

void softmax_gradient(const LogitRows& rows, const void* factor) {
  launch_rows<false, true>(rows, factor);
}

void softmax_loss_and_gradient(const LogitRows& rows) {
  if (!softmax_in_clusters<true>(rows)) launch_rows<true, true>(rows, nullptr);
}

void mean_loss(DType dtype,
               const int32_t* target,
               int64_t rows,
               int64_t vocabulary,
               const void* row_loss,
               void* loss,
               void* count) {
  const auto launch = [&]<typename W>() {
    mean_loss_kernel<W><<<1, 1024, 0, stream()>>>(target,
                                                  rows,
                                                  vocabulary,
                                                  static_cast<const W*>(row_loss),
                                                  static_cast<W*>(loss),
                                                  static_cast<W*>(count));
  };
  dtype == DType::kF64 ? launch.template operator()<double>() : launch.template operator()<float>();
  VITRINE_GPU_LAUNCHED("mean_loss");
}

void loss_scales(DType dtype, const void* dloss, const void* count, void* scales) {
  const auto launch = [&]<typename W>() {
    loss_scales_kernel<W><<<1, 1, 0, stream()>>>(
        static_cast<const W*>(dloss), static_cast<const W*>(count), static_cast<W*>(scales));
  };
  dtype == DType::kF64 ? launch.template operator()<double>() : launch.template operator()<float>();
  VITRINE_GPU_LAUNCHED("loss_scales");
}

}  // namespace vitrine::gpu
