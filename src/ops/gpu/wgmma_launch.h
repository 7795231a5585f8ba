// What the launchers of Hopper kernels share: the copy engine's maps, clusters of two blocks.
// Included by .cu files alone.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "gpu/runtime.h"

namespace vitrine::gpu {

// Compute capability 9.0, and this program has machine code of sm_90a for it. Thread-safe.
bool wgmma_ready();

// 16-byte aligned, as the copy engine wants addresses and rows of bf16 to be.
inline bool copies_well(const void* data, int64_t stride) {
  return reinterpret_cast<uintptr_t>(data) % 16 == 0 && stride % 8 == 0;
}

// A row-major matrix [rows, columns] of bf16, `stride` elements a row, in boxes of `box_rows` times
// `box_columns` (64, or 32) whose rows of 128 or 64 bytes are swizzled in shared memory. Outside it
// reads are zero and writes are dropped. Throws DeviceError when the driver refuses.
CUtensorMap tensor_map(const void* data,
                       int64_t rows,
                       int64_t columns,
                       int64_t stride,
                       int box_rows,
                       int box_columns = 64);

inline int divided_up(int64_t count, int64_t size) {
  return static_cast<int>((count + size - 1) / size);
}

// Clusters of two blocks in the calling thread's stream, with their shared memory raised.
template <typename... Parameters, typename... Arguments>
void launch_clusters(void (*kernel)(Parameters...),
                     int clusters,
                     int threads,
                     int shared_bytes,
                     const Arguments&... arguments) {
  VITRINE_GPU_CHECK(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes));
  cudaLaunchAttribute pair{};
  pair.id = cudaLaunchAttributeClusterDimension;
  pair.val.clusterDim = {2, 1, 1};
  cudaLaunchConfig_t launch{};
  launch.gridDim = dim3(static_cast<unsigned>(2 * clusters));
  launch.blockDim = dim3(static_cast<unsigned>(threads));
  launch.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
  launch.stream = stream();
  launch.attrs = &pair;
  launch.numAttrs = 1;
  VITRINE_GPU_CHECK(cudaLaunchKernelEx(&launch, kernel, arguments...));
}

}  // namespace vitrine::gpu
