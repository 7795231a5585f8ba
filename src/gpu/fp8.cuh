// The 8-bit floating types of the vendor, two conversions.
#pragma once

#include <cstdint>

#include "gpu/vector.cuh"

#if defined(VITRINE_GPU_HIP) || defined(VITRINE_GPU_MUSA)
#error "8-bit floating products are written for CUDA"
#endif
#include <cuda_fp8.h>

namespace vitrine::gpu {

struct E4M3 {
  static constexpr __nv_fp8_interpretation_t kKind = __NV_E4M3;
  static constexpr float kHighest = 448;
  uint8_t bits;
};
struct E5M2 {
  static constexpr __nv_fp8_interpretation_t kKind = __NV_E5M2;
  static constexpr float kHighest = 57344;
  uint8_t bits;
};

__device__ __forceinline__ float to_wide(E4M3 x) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, E4M3::kKind)));
}
__device__ __forceinline__ float to_wide(E5M2 x) {
  return __half2float(__half(__nv_cvt_fp8_to_halfraw(x.bits, E5M2::kKind)));
}

// To nearest even, beyond the highest to it; x.x in the low byte.
template <typename F>
__device__ __forceinline__ uint32_t to_fp8_pair(float2 x) {
  return __nv_cvt_float2_to_fp8x2(x, __NV_SATFINITE, F::kKind);
}

}  // namespace vitrine::gpu
