// A kernel that is launched while the one before it in the stream still ends (compute
// capability 9.0 on): it begins at once with the other's last block, which saves the launch of a
// short kernel.
#pragma once

#include "gpu/runtime.h"

#if !defined(VITRINE_GPU_HIP) && !defined(VITRINE_GPU_MUSA)
#define VITRINE_GPU_FOLLOWING
#endif

namespace vitrine::gpu {

// In the first kernel, by every thread: once all its blocks got here the next may be launched,
// which takes only the places that no block of the first waits for.
__device__ __forceinline__ void let_next_begin() {
#if defined(VITRINE_GPU_FOLLOWING) && __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

// In the second, by a thread of every block at least, before it reads or writes anything: the first
// has ended, and what it wrote is there. So has all that came before the first.
__device__ __forceinline__ void wait_for_previous() {
#if defined(VITRINE_GPU_FOLLOWING) && __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

struct FollowingLaunch {
  const char* what;  // named when it is refused
  dim3 blocks, threads;
  size_t shared_bytes = 0;  // dynamic
};

// Launches a kernel that calls wait_for_previous(), in stream(), behind anything.
template <typename... Parameters, typename... Arguments>
void launch_following(const FollowingLaunch& launch,
                      void (*kernel)(Parameters...),
                      const Arguments&... arguments) {
#ifdef VITRINE_GPU_FOLLOWING
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = launch.blocks;
  config.blockDim = launch.threads;
  config.dynamicSmemBytes = launch.shared_bytes;
  config.stream = stream();
  config.attrs = &attribute;
  config.numAttrs = limits().major >= 9 ? 1 : 0;
  check(cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...),
        launch.what,
        __FILE__,
        __LINE__);
#else
  // A header is plain C++ to the formatter.
  // clang-format off
  kernel<<<launch.blocks, launch.threads, launch.shared_bytes, stream()>>>(arguments...);
  // clang-format on
  check(cudaGetLastError(), launch.what, __FILE__, __LINE__);
#endif
}

template <typename... Parameters, typename... Arguments>
void launch_following(const char* what,
                      void (*kernel)(Parameters...),
                      dim3 blocks,
                      dim3 threads,
                      const Arguments&... arguments) {
  launch_following({what, blocks, threads}, kernel, arguments...);
}

}  // namespace vitrine::gpu
