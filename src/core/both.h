// VITRINE_BOTH marks functions that host code and kernels share.
#pragma once

#if defined(__CUDACC__) || defined(__HIPCC__) || defined(__MUSACC__)
#define VITRINE_BOTH __host__ __device__ __forceinline__
#else
#define VITRINE_BOTH inline
#endif
