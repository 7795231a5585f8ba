// What the kernels over rows of logits share.
#pragma once

#include "gpu/fault.h"
#include "gpu/runtime.h"
#include "gpu/vector.cuh"
#include "ops/gpu/softmax_rows.h"

namespace vitrine::gpu {

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

// Rows kept in the shared memory of clusters of blocks: lse and loss, and with kGradient the
// gradient. False where rows are not of the form for it. The loss has the same bits with and
// without the gradient.
template <bool kGradient>
bool softmax_in_clusters(const LogitRows& rows);

}  // namespace vitrine::gpu
