// Copies to shared memory ahead of their use, by each thread for itself alone: many bytes are on
// their way without registers for them and without a barrier. Stages are groups of copies; they
// arrive in the order in which they were ended.
#pragma once

#if !defined(VITRINE_GPU_HIP) && !defined(VITRINE_GPU_MUSA)
#define VITRINE_GPU_COPIES_AHEAD
#include "gpu/copy_async.cuh"
#endif
#include "gpu/vector.cuh"

namespace vitrine::gpu {

// Of those who take no number of their own: with more, short kernels are slower at their ends.
constexpr int kStages = 2;

// 16 bytes, both sides aligned to them. Not there: zeros; `from` is then any valid address.
__device__ __forceinline__ void copy_ahead(uint4* to, const void* from, bool there = true) {
#ifdef VITRINE_GPU_COPIES_AHEAD
  copy_async(to, from, there);
#else
  *to = there ? *static_cast<const uint4*>(from) : uint4{};
#endif
}

// Once a stage, also where nothing was copied for it.
__device__ __forceinline__ void end_stage() {
#ifdef VITRINE_GPU_COPIES_AHEAD
  end_copies();
#endif
}

// Of kOf that were ended the oldest is there.
template <int kOf = kStages>
__device__ __forceinline__ void wait_for_oldest() {
#ifdef VITRINE_GPU_COPIES_AHEAD
  wait_for_copies_before<kOf - 1>();
#endif
}

// What was read of a stage before is read again after this instead of filling registers until then.
__device__ __forceinline__ void read_again() { asm volatile("" ::: "memory"); }

}  // namespace vitrine::gpu
