// The GPU vendor's runtime under CUDA's names; one header a vendor, chosen at build time.
#pragma once

#if defined(VITRINE_GPU_HIP)
#include "gpu/vendor/hip.h"
#elif defined(VITRINE_GPU_MUSA)
#include "gpu/vendor/musa.h"
#else
#include "gpu/vendor/cuda.h"
#endif
