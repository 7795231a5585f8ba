// Reciprocals as the hardware gives them, for algorithms that refine them.
#pragma once

#include "gpu/vendor.h"

#if !defined(VITRINE_GPU_HIP) && !defined(VITRINE_GPU_MUSA)
#define VITRINE_GPU_APPROXIMATE

namespace vitrine::gpu {

// Within an ulp (PTX: rcp.approx.ftz.f32); x and the result are normal numbers.
__device__ __forceinline__ float about_inverse(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 1 / sqrt(x), relative error at most 2^-22.4 (PTX: rsqrt.approx.ftz.f32); x is a normal number.
__device__ __forceinline__ float about_inverse_root(float x) {
  float y;
  asm("rsqrt.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace vitrine::gpu

#endif
