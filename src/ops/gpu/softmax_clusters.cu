// Rows of logits by clusters: a cluster of blocks keeps a row in its shared memory, so that
// statistics and gradient read it once. [16384, 152064] of two bytes is 5.0 GB: 1.2 ms for
// statistics, 2.4 ms with the gradient at 4.17 TB/s. In a step the clock is at three quarters, so
// instructions count: a maximum of pairs, two exponentials, no look at the target but by its
// vector.
#if !defined(VITRINE_GPU_HIP) && !defined(VITRINE_GPU_MUSA)
#define VITRINE_GPU_CLUSTERS
#include <cooperative_groups.h>

#include "gpu/copy_async.cuh"
#endif
#include "ops/gpu/softmax_rows.cuh"

namespace vitrine::gpu {
namespace {

#ifdef VITRINE_GPU_CLUSTERS
constexpr int kThreads = 512;

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

template <typename T>
using Pair = std::conditional_t<std::is_same_v<T, __half>, __half2, __nv_bfloat162>;

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
  // Blocks have equal parts; kKept rounds of a block's threads hold one.
  const int part = (vectors + blocks - 1) / blocks;
  const int first = rank * part + static_cast<int>(threadIdx.x);
  const int last = min((rank + 1) * part, vectors);

  // Waited for before the first access to another block's memory: all have begun then.
  cluster.barrier_arrive();
  // Each thread reads only what it copied itself.
  extern __shared__ __align__(16) unsigned char bytes[];
  T* kept = reinterpret_cast<T*>(bytes) + static_cast<int>(threadIdx.x) * kWidth;
  const auto there = [&](int i) { return first + i * kThreads < last; };
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
  const T nothing = from_wide<T>(-INFINITY);
  Pair<T> pair{nothing, nothing};
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (!there(i)) continue;
    const Vec<T, kWidth> x = vector(i);
#pragma unroll
    for (int j = 0; j < kWidth / 2; ++j) {
      pair = __hmax2(pair, reinterpret_cast<const Pair<T>*>(&x)[j]);
    }
  }
  const float highest = block_max(fmaxf(to_wide(pair.x), to_wide(pair.y)), shared);
  // Of logits that are all -inf the sum is 0 whatever their maximum.
  const float base = highest == -INFINITY ? 0.0f : highest * kLog2E;
  float sum = 0;
#pragma unroll
  for (int i = 0; i < kKept; ++i) {
    if (!there(i)) continue;
    float x[kWidth];
    widen(vector(i), x);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) sum += fast_exp2(fmaf(x[j], kLog2E, -base));
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
    Vec<T, kWidth> out{};
    if (goal >= 0) {
      float x[kWidth];
      widen(vector(i), x);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) x[j] = fast_exp2(fmaf(x[j], kLog2E, -shift));
      if (goal >= at && goal < at + kWidth) {
#pragma unroll
        for (int j = 0; j < kWidth; ++j) x[j] -= at + j == goal ? 1.0f : 0.0f;
      }
#pragma unroll
      for (int j = 0; j < kWidth; ++j) out.v[j] = from_wide<T>(x[j]);
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

// Blocks of the smallest cluster that keeps a row; 0 when none does.
int cluster_blocks(const LogitRows& rows) {
#ifdef VITRINE_GPU_CLUSTERS
  if (limits().major < 9 || dtype_bytes(rows.dtype) != 2) return 0;
  if (rows.vocabulary % 8 != 0 || reinterpret_cast<uintptr_t>(rows.logits) % 16 != 0) return 0;
  for (int blocks = 1; blocks <= kMostBlocks; blocks *= 2) {
    if (rows.vocabulary <= blocks * kKeptByBlock) return blocks;
  }
#endif
  return 0;
}

}  // namespace

template <bool kGradient>
bool softmax_in_clusters(const LogitRows& rows) {
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

template bool softmax_in_clusters<false>(const LogitRows&);
template bool softmax_in_clusters<true>(const LogitRows&);

}  // namespace vitrine::gpu
