// MUSA's fp16, as far as kernels use it. No bodies: see musa_runtime.h.
#pragma once

#include "musa_runtime.h"

struct __half {
  unsigned short bits;
};
__device__ float __half2float(__half);
__device__ __half __float2half_rn(float);
