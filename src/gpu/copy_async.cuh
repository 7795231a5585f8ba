// Copies from device to shared memory that pass no registers (compute capability 8.0 on).
#pragma once

#include <cstdint>

#include "gpu/vendor.h"

namespace vitrine::gpu {

// 16 bytes, both sides aligned to them. Not there: zeros; `from` is then any valid address.
__device__ __forceinline__ void copy_async(void* to, const void* from, bool there = true) {
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile(
      "cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from), "r"(there ? 16 : 0)
      : "memory");
}
// What the calling thread copied is there for this thread; for others after a barrier.
__device__ __forceinline__ void wait_for_copies() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}
// Ends a group of copies; the second waits for all groups but the latest kLater.
__device__ __forceinline__ void end_copies() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}
template <int kLater>
__device__ __forceinline__ void wait_for_copies_before() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLater) : "memory");
}

}  // namespace vitrine::gpu
