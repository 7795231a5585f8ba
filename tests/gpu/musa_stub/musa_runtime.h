// Declarations, under MUSA's names, of what kernels may use, so that a compiler without the SDK
// finds every CUDA name that src/gpu/vendor/musa.h does not rename. Nothing here has a body.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

// Without the SDK's compiler everything is a function of the host.
#define __host__
#define __device__
#define __global__
#define __shared__
#define __constant__
#define __forceinline__ inline
#define __restrict__
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct uint3 {
  unsigned x, y, z;
};
struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
struct uint2 {
  unsigned x, y;
};
struct uint4 {
  unsigned x, y, z, w;
};
struct float2 {
  float x, y;
};
struct float4 {
  float x, y, z, w;
};
float2 make_float2(float, float);
float4 make_float4(float, float, float, float);
extern const uint3 threadIdx, blockIdx;
extern const dim3 blockDim, gridDim;

enum musaError_t {
  musaSuccess,
  musaErrorMemoryAllocation,
  musaErrorNotReady,
  musaErrorNoKernelImageForDevice
};
enum musaMemcpyKind { musaMemcpyHostToDevice, musaMemcpyDeviceToHost, musaMemcpyDeviceToDevice };
using musaStream_t = struct MusaStream*;
using musaEvent_t = struct MusaEvent*;
constexpr unsigned musaStreamNonBlocking = 1, musaEventDefault = 0, musaEventDisableTiming = 2;
struct musaDeviceProp {
  char name[256];
  size_t totalGlobalMem, sharedMemPerBlockOptin;
  int major, minor, multiProcessorCount, l2CacheSize;
};

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
musaError_t musaEventQuery(musaEvent_t);
musaError_t musaEventRecord(musaEvent_t, musaStream_t = nullptr);
musaError_t musaEventSynchronize(musaEvent_t);
using musaGraph_t = struct MusaGraph*;
using musaGraphExec_t = struct MusaGraphExec*;
enum musaStreamCaptureMode { musaStreamCaptureModeRelaxed, musaStreamCaptureModeThreadLocal };
using musaGraphNode_t = struct MusaGraphNode*;
enum musaGraphNodeType {
  musaGraphNodeTypeKernel,
  musaGraphNodeTypeMemcpy,
  musaGraphNodeTypeMemset,
  musaGraphNodeTypeEmpty
};
struct musaMemcpy3DParms {
  struct MusaArray *srcArray, *dstArray;
  struct {
    void* ptr;
  } srcPtr, dstPtr;
};
enum musaMemoryType { musaMemoryTypeDevice = 2 };
struct musaPointerAttributes {
  musaMemoryType type;
};
musaError_t musaGraphGetNodes(musaGraph_t, musaGraphNode_t*, size_t*);
musaError_t musaGraphNodeGetType(musaGraphNode_t, musaGraphNodeType*);
musaError_t musaGraphMemcpyNodeGetParams(musaGraphNode_t, musaMemcpy3DParms*);
musaError_t musaPointerGetAttributes(musaPointerAttributes*, const void*);
musaError_t musaStreamBeginCapture(musaStream_t, musaStreamCaptureMode);
musaError_t musaStreamEndCapture(musaStream_t, musaGraph_t*);
musaError_t musaGraphInstantiate(musaGraphExec_t*, musaGraph_t, unsigned long long);
musaError_t musaGraphDestroy(musaGraph_t);
musaError_t musaGraphExecDestroy(musaGraphExec_t);
musaError_t musaGraphLaunch(musaGraphExec_t, musaStream_t);
enum musaFuncAttribute { musaFuncAttributeMaxDynamicSharedMemorySize };
template <typename T>
musaError_t musaFuncSetAttribute(T*, musaFuncAttribute, int);
template <typename T>
musaError_t musaOccupancyMaxActiveBlocksPerMultiprocessor(int*, T, int, size_t);
template <typename T>
musaError_t musaMalloc(T**, size_t);
template <typename T>
musaError_t musaMallocHost(T**, size_t);
musaError_t musaFree(void*);
musaError_t musaFreeHost(void*);
musaError_t musaMemcpyAsync(void*, const void*, size_t, musaMemcpyKind, musaStream_t = nullptr);
musaError_t musaMemset(void*, int, size_t);
musaError_t musaMemsetAsync(void*, int, size_t, musaStream_t = nullptr);

void __syncthreads();
int __syncthreads_or(int);
void __syncwarp(unsigned = ~0u);
template <typename T>
T __shfl_xor_sync(unsigned, T, int);
template <typename T>
T __ldcs(const T*);
template <typename T>
void __stcs(T*, T);
template <typename T>
void __stwb(T*, T);
unsigned __umulhi(unsigned, unsigned);
float __uint_as_float(unsigned);
unsigned long long __umul64hi(unsigned long long, unsigned long long);
float __expf(float);
float __fdividef(float, float);
float __fadd_rn(float, float);
float __fsub_rn(float, float);
float __fmul_rn(float, float);
float __fdiv_rn(float, float);
float __fsqrt_rn(float);
double __dadd_rn(double, double);
double __dmul_rn(double, double);
template <typename T>
T min(T, T);
template <typename T>
T max(T, T);
template <typename T>
T atomicAdd(T*, T);
template <typename T>
T atomicMax(T*, T);
template <typename T>
T atomicCAS(T*, T, T);
using std::isfinite;
