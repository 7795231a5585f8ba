// MUSA's fp16, as far as kernels use it. No bodies: see musa_runtime.h.
#pragma once

#include "musa_runtime.h"

struct __half {
  unsigned short bits;
};
float __half2float(__half);
__half __float2half_rn(float);
