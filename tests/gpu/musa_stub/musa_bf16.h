// MUSA's bf16, as far as kernels use it. No bodies: see musa_runtime.h.
#pragma once

#include "musa_runtime.h"

struct __mt_bfloat16 {
  unsigned short bits;
};
float __bfloat162float(__mt_bfloat16);
__mt_bfloat16 __float2bfloat16_rn(float);
