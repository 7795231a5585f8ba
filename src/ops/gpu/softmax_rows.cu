// Kernels over rows of logits, bound by memory. With two bytes a logit, [16384, 152064] is 5.0 GB:
// statistics read it once (1.2 ms on H200), the gradient reads and writes it once (2.4 ms). When
// both are wanted at once a cluster of blocks keeps a row in its shared memory, so that it is read
// once; rows that are not of that form are read twice (304 KB a row; 132 rows at work fill the L2
// cache).
#include <algorithm>

#if !defined(VITRINE_GPU_HIP) && !defined(VITRINE_GPU_MUSA)
#define VITRINE_GPU_CLUSTERS
#include <cooperative_groups.h>
#endif

#include "gpu/copy_async.cuh"
#include "gpu/fault.h"
#include "gpu/runtime.h"
#include "gpu/vector.cuh"
#include "ops/gpu/softmax_rows.h"

namespace vitrine::gpu {
namespace {

constexpr int kThreads = 512;
constexpr int kInFlight = 4;

__device__ __forceinline__ float exp_of(float x) { return expf(x); }
__device__ __forceinline__ double exp_of(double x) { return exp(x); }
__device__ __forceinline__ float log_of(float x) { return logf(x); }
__device__ __forceinline__ double log_of(double x) { return log(x); }

// As block_sum() of gpu/vector.cuh.
template <typename W>
__device__ __forceinline__ W block_max(W x, W* shared) {
  x = warp_max(x);
  const int lane = threadIdx.x % VITRINE_WARP, warp = threadIdx.x / VITRINE_WARP;
  __syncthreads();
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  W most = shared[0];
  for (int w = 1; w < static_cast<int>(blockDim.x) / VITRINE_WARP; ++w) {
    most = shared[w] > most ? shared[w] : most;
  }
  return most;
}

template <typename T>
struct Row {
  T* logits;
  int64_t vocabulary, place;
  int64_t target;  // negative: none
};

struct Faults {
  Fault* slot;
  int32_t operation;
};

// By one thread of a row: a target past the vocabulary is noted.
__device__ __forceinline__ void note_bad_target(const Faults& faults,
                                                int64_t vocabulary,
                                                int64_t place,
                                                int64_t value) {
  const auto before = atomicCAS(reinterpret_cast<unsigned long long*>(&faults.slot->limit),
                                0ull,
                                static_cast<unsigned long long>(vocabulary));
  if (before != 0) return;
  faults.slot->place = place;
  faults.slot->value = value;
  faults.slot->operation = faults.operation;
}

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

#ifdef VITRINE_GPU_CLUSTERS
// Vectors of eight logits that a thread of a cluster keeps in shared memory: 40 KB a block, so that
// four blocks are at work on a multiprocessor.
constexpr int kKept = 5;
constexpr int64_t kKeptByBlock = int64_t{kKept} * kThreads * 8;
constexpr int kMostBlocks = 8;  // of a cluster, on every GPU that has them

// 2^x to 2 ulp; enough for results of two bytes.
__device__ __forceinline__ float fast_exp2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// A cluster a row: each block keeps a part of the row, and the blocks exchange maximum and sum
// through each other's shared memory.
template <typename T, bool kGradient>
__global__ void __launch_bounds__(kThreads, 4) softmax_cluster_kernel(T* logits,
                                                                      const int32_t* target,
                                                                      int64_t vocabulary,
                                                                      int64_t first_row,
                                                                      float* lse,
                                                                      float* row_loss,
                                                                      Faults faults) {
#if __CUDA_ARCH__ >= 900
  namespace cg = cooperative_groups;
  constexpr int kWidth = 8;
  constexpr float kLog2E = 1.4426950408889634f;
  __shared__ float shared[kThreads / VITRINE_WARP];
  // Of each block: maximum, and sum of exp(x - maximum). Every block writes to all.
  __shared__ float2 parts[kMostBlocks];
  const cg::cluster_group cluster = cg::this_cluster();
  const int blocks = static_cast<int>(cluster.num_blocks());
  const int rank = static_cast<int>(cluster.block_rank());
  const int64_t r = blockIdx.x / blocks;
  T* row = logits + r * vocabulary;
  int goal = target[r];
  const bool outside = goal >= vocabulary;
  const int vectors = static_cast<int>(vocabulary / kWidth);
  const int first = rank * kKept * kThreads + static_cast<int>(threadIdx.x);

  // Waited for before the first access to another block's memory: all have begun then.
  cluster.barrier_arrive();
  // Each thread reads only what it copied itself.
  extern __shared__ __align__(16) unsigned char bytes[];
  T* kept = reinterpret_cast<T*>(bytes) + static_cast<int>(threadIdx.x) * kWidth;
  const auto there = [&](int i) { return first + i * kThreads < vectors; };
  const auto vector = [&](int i) { return load<kWidth>(kept + i * kThreads * kWidth); };
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (!there(i)) continue;
    copy_async(kept + i * kThreads * kWidth, row + int64_t{first + i * kThreads} * kWidth);
  }
  if (outside) {
    if (rank == 0 && threadIdx.x == 0) note_bad_target(faults, vocabulary, first_row + r, goal);
    goal = -1;
  }
  // Read before any block writes: those wait for the exchange.
  float goal_logit = 0;
  if (rank == 0 && threadIdx.x == 0 && goal >= 0) goal_logit = to_wide(row[goal]);
  wait_for_copies();
  float highest = -INFINITY;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (!there(i)) continue;
    const Vec<T, kWidth> x = vector(i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) highest = fmaxf(highest, to_wide(x.v[j]));
  }
  highest = block_max(highest, shared);
  // A block past the row's end has nothing: its sum is 0 whatever its maximum.
  const float base = highest == -INFINITY ? 0.0f : highest * kLog2E;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (!there(i)) continue;
    const Vec<T, kWidth> x = vector(i);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum += fast_exp2(fmaf(to_wide(x.v[j]), kLog2E, -base));
  }
  sum = block_sum(sum, shared);
  cluster.barrier_wait();
  if (static_cast<int>(threadIdx.x) < blocks) {
    *cluster.map_shared_rank(&parts[rank], static_cast<int>(threadIdx.x)) =
        make_float2(highest, sum);
  }
  cluster.sync();
  float most = -INFINITY, total = 0;
  for (int b = 0; b < blocks; ++b) most = fmaxf(most, parts[b].x);
  for (int b = 0; b < blocks; ++b) {
    total += parts[b].y * fast_exp2((parts[b].x - most) * kLog2E);
  }
  const float result = most + logf(total);
  if (rank == 0 && threadIdx.x == 0) {
    lse[r] = result;
    row_loss[r] = goal < 0 ? 0.0f : result - goal_logit;
  }
  const float shift = result * kLog2E;
#pragma unroll
  for (int i = 0; kGradient && i < kKept; ++i) {
    if (!there(i)) continue;
    const int at = (first + i * kThreads) * kWidth;
    const Vec<T, kWidth> x = vector(i);
    Vec<T, kWidth> out;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) {
      float p = goal < 0 ? 0.0f : fast_exp2(fmaf(to_wide(x.v[j]), kLog2E, -shift));
      if (at + j == goal) p -= 1;
      out.v[j] = from_wide<T>(p);
    }
    store(row + at, out);
  }
#endif
}

template <typename T, bool kGradient>
void launch_clusters(const LogitRows& rows, const Faults& faults, int blocks) {
  cudaLaunchConfig_t config{};
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim.x = static_cast<unsigned>(blocks);
  attribute.val.clusterDim.y = attribute.val.clusterDim.z = 1;
  config.gridDim = dim3(static_cast<unsigned>(rows.rows * blocks));
  config.blockDim = dim3(kThreads);
  config.dynamicSmemBytes = static_cast<size_t>(kKeptByBlock) * sizeof(T);
  config.stream = stream();
  config.attrs = &attribute;
  config.numAttrs = 1;
  VITRINE_GPU_CHECK(cudaLaunchKernelEx(&config,
                                       softmax_cluster_kernel<T, kGradient>,
                                       static_cast<T*>(rows.logits),
                                       rows.target,
                                       rows.vocabulary,
                                       rows.first_row,
                                       static_cast<float*>(rows.lse),
                                       static_cast<float*>(rows.row_loss),
                                       faults));
}
#endif

bool aligned(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

// Blocks of the smallest cluster that keeps a row; 0 when none does.
int cluster_blocks(const LogitRows& rows) {
#ifdef VITRINE_GPU_CLUSTERS
  if (limits().major < 9 || dtype_bytes(rows.dtype) != 2) return 0;
  if (rows.vocabulary % 8 != 0 || !aligned(rows.logits)) return 0;
  for (int blocks = 1; blocks <= kMostBlocks; blocks *= 2) {
    if (rows.vocabulary <= blocks * kKeptByBlock) return blocks;
  }
#endif
  return 0;
}

// False where rows are not of the form for clusters. The loss has the same bits with and without
// the gradient.
template <bool kGradient>
bool in_clusters(const LogitRows& rows) {
  const int blocks = cluster_blocks(rows);
  if (blocks == 0) return false;
#ifdef VITRINE_GPU_CLUSTERS
  if (rows.rows == 0) return true;
  const Faults faults{fault_slot(), fault_operation("linear_cross_entropy")};
  rows.dtype == DType::kBF16 ? launch_clusters<__nv_bfloat16, kGradient>(rows, faults, blocks)
                             : launch_clusters<__half, kGradient>(rows, faults, blocks);
#endif
  return true;
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
    const bool wide = rows.vocabulary % kWidth == 0 && aligned(rows.logits);
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
  if (!in_clusters<false>(rows)) launch_rows<true, false>(rows, nullptr);
}

void softmax_gradient(const LogitRows& rows, const void* factor) {
  launch_rows<false, true>(rows, factor);
}

void softmax_loss_and_gradient(const LogitRows& rows) {
  if (!in_clusters<true>(rows)) launch_rows<true, true>(rows, nullptr);
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
