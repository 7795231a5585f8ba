// Declarations, under MUSA's names, of what kernels may use, so that a compiler without the SDK
// finds every CUDA name that src/gpu/vendor/musa.h does not rename. Nothing here has a body.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __forceinline__ inline
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  __host__ __device__ constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1)
      : x(x), y(y), z(z) {}
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
extern const __device__ uint3 threadIdx, blockIdx;
extern const __device__ dim3 blockDim, gridDim;

enum musaError_t { musaSuccess, musaErrorMemoryAllocation, musaErrorNoKernelImageForDevice };
enum musaMemcpyKind { musaMemcpyHostToDevice, musaMemcpyDeviceToHost, musaMemcpyDeviceToDevice };
using musaStream_t = struct MusaStream*;
using musaEvent_t = struct MusaEvent*;
constexpr unsigned musaStreamNonBlocking = 1, musaEventDefault = 0, musaEventDisableTiming = 2;
struct musaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlockOptin;
  int major, minor, multiProcessorCount, l2CacheSize;
};

// What the compiler calls for a launch.
extern "C" int cudaConfigureCall(dim3 grid, dim3 block, size_t shared, musaStream_t stream);
extern "C" unsigned __cudaPushCallConfiguration(dim3 grid,
                                                dim3 block,
                                                size_t shared = 0,
                                                void* stream = nullptr);

const char* musaGetErrorName(musaError_t);
const char* musaGetErrorString(musaError_t);
musaError_t musaGetLastError();
musaError_t musaDeviceGetStreamPriorityRange(int*, int*);
musaError_t musaDeviceSynchronize();
musaError_t musaDriverGetVersion(int*);
musaError_t musaRuntimeGetVersion(int*);
musaError_t musaGetDevice(int*);
musaError_t musaGetDeviceCount(int*);
musaError_t musaGetDeviceProperties(musaDeviceProp*, int);
musaError_t musaSetDevice(int);
musaError_t musaStreamCreateWithPriority(musaStream_t*, unsigned, int);
musaError_t musaStreamDestroy(musaStream_t);
musaError_t musaStreamSynchronize(musaStream_t);
musaError_t musaStreamWaitEvent(musaStream_t, musaEvent_t, unsigned = 0);
musaError_t musaEventCreateWithFlags(musaEvent_t*, unsigned);
musaError_t musaEventDestroy(musaEvent_t);
musaError_t musaEventElapsedTime(float*, musaEvent_t, musaEvent_t);
musaError_t musaEventRecord(musaEvent_t, musaStream_t = nullptr);
musaError_t musaEventSynchronize(musaEvent_t);
template <typename T>
musaError_t musaMalloc(T**, size_t);
template <typename T>
musaError_t musaMallocHost(T**, size_t);
musaError_t musaFree(void*);
musaError_t musaMemcpyAsync(void*, const void*, size_t, musaMemcpyKind, musaStream_t = nullptr);
musaError_t musaMemset(void*, int, size_t);
musaError_t musaMemsetAsync(void*, int, size_t, musaStream_t = nullptr);

__device__ void __syncthreads();
__device__ int __syncthreads_or(int);
__device__ void __syncwarp(unsigned = ~0u);
template <typename T>
__device__ T __shfl_xor_sync(unsigned, T, int);
__device__ float __expf(float);
__device__ float __fdividef(float, float);
__device__ float __fadd_rn(float, float);
__device__ float __fsub_rn(float, float);
__device__ float __fmul_rn(float, float);
__device__ float __fdiv_rn(float, float);
__device__ float __fsqrt_rn(float);
__device__ double __dadd_rn(double, double);
__device__ double __dmul_rn(double, double);
template <typename T>
__device__ T min(T, T);
template <typename T>
__device__ T max(T, T);
