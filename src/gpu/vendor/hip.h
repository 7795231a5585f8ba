// AMD: CUDA's names as HIP's, for kernels and the runtime beneath them. Compiled by
// scripts/check_vendors.sh; never run on such hardware.
#pragma once

#include <hip/hip_bfloat16.h>
#include <hip/hip_fp16.h>
#include <hip/hip_runtime.h>

// Wavefronts of CDNA; RDNA takes -mwavefrontsize64.
#define VITRINE_WARP 64
#define VITRINE_FULL_MASK 0xffffffffffffffffull
// The constraint of a vector register in inline machine code.
#define VITRINE_REGISTER "v"

// Errors.
#define cudaError_t hipError_t
#define cudaSuccess hipSuccess
#define cudaErrorMemoryAllocation hipErrorOutOfMemory
#define cudaErrorNotReady hipErrorNotReady
#define cudaErrorNoKernelImageForDevice hipErrorNoBinaryForGpu
#define cudaGetErrorName hipGetErrorName
#define cudaGetErrorString hipGetErrorString
#define cudaGetLastError hipGetLastError

// Devices.
#define cudaDeviceProp hipDeviceProp_t
#define cudaDeviceGetStreamPriorityRange hipDeviceGetStreamPriorityRange
#define cudaDeviceSynchronize hipDeviceSynchronize
#define cudaDriverGetVersion hipDriverGetVersion
#define cudaGetDevice hipGetDevice
#define cudaGetDeviceCount hipGetDeviceCount
#define cudaGetDeviceProperties hipGetDeviceProperties
#define cudaRuntimeGetVersion hipRuntimeGetVersion
#define cudaSetDevice hipSetDevice
#define sharedMemPerBlockOptin sharedMemPerBlock
// Function pointers are taken as const void*.
#define cudaFuncSetAttribute(kernel, attribute, value) \
  hipFuncSetAttribute(reinterpret_cast<const void*>(kernel), attribute, value)
#define cudaFuncAttributeMaxDynamicSharedMemorySize hipFuncAttributeMaxDynamicSharedMemorySize
#define cudaOccupancyMaxActiveBlocksPerMultiprocessor hipOccupancyMaxActiveBlocksPerMultiprocessor

// Streams and events.
#define cudaStream_t hipStream_t
#define cudaStreamCreateWithPriority hipStreamCreateWithPriority
#define cudaStreamDestroy hipStreamDestroy
#define cudaStreamNonBlocking hipStreamNonBlocking
#define cudaStreamSynchronize hipStreamSynchronize
#define cudaStreamWaitEvent hipStreamWaitEvent
#define cudaEvent_t hipEvent_t
#define cudaEventCreateWithFlags hipEventCreateWithFlags
#define cudaEventDefault hipEventDefault
#define cudaEventDestroy hipEventDestroy
#define cudaEventDisableTiming hipEventDisableTiming
#define cudaEventElapsedTime hipEventElapsedTime
#define cudaEventQuery hipEventQuery
#define cudaEventRecord hipEventRecord
#define cudaEventSynchronize hipEventSynchronize

// Graphs.
#define cudaGraph_t hipGraph_t
#define cudaGraphExec_t hipGraphExec_t
#define cudaGraphExecDestroy hipGraphExecDestroy
#define cudaGraphInstantiate(executable, graph, flags) \
  hipGraphInstantiate(executable, graph, nullptr, nullptr, flags)
#define cudaGraphDestroy hipGraphDestroy
#define cudaGraphLaunch hipGraphLaunch
#define cudaStreamBeginCapture hipStreamBeginCapture
#define cudaStreamEndCapture hipStreamEndCapture
#define cudaStreamCaptureModeRelaxed hipStreamCaptureModeRelaxed
#define cudaStreamCaptureModeThreadLocal hipStreamCaptureModeThreadLocal
#define cudaGraphNode_t hipGraphNode_t
#define cudaGraphNodeType hipGraphNodeType
#define cudaGraphNodeTypeEmpty hipGraphNodeTypeEmpty
#define cudaGraphNodeTypeKernel hipGraphNodeTypeKernel
#define cudaGraphNodeTypeMemcpy hipGraphNodeTypeMemcpy
#define cudaGraphNodeTypeMemset hipGraphNodeTypeMemset
#define cudaGraphGetNodes hipGraphGetNodes
#define cudaGraphNodeGetType hipGraphNodeGetType
#define cudaGraphMemcpyNodeGetParams hipGraphMemcpyNodeGetParams
#define cudaMemcpy3DParms hipMemcpy3DParms
#define cudaPointerAttributes hipPointerAttribute_t
#define cudaPointerGetAttributes hipPointerGetAttributes
#define cudaMemoryTypeDevice hipMemoryTypeDevice

// Memory.
#define cudaFree hipFree
#define cudaFreeHost hipHostFree
#define cudaMalloc hipMalloc
#define cudaMallocHost hipHostMalloc
#define cudaMemcpyAsync hipMemcpyAsync
#define cudaMemcpyDeviceToDevice hipMemcpyDeviceToDevice
#define cudaMemcpyDeviceToHost hipMemcpyDeviceToHost
#define cudaMemcpyHostToDevice hipMemcpyHostToDevice
#define cudaMemset hipMemset
#define cudaMemsetAsync hipMemsetAsync

// Types and conversions.
#define __nv_bfloat16 hip_bfloat16
#define __grid_constant__

// Only device code has these; files for the host see the runtime alone.
#ifdef __HIPCC__
__device__ inline float __bfloat162float(hip_bfloat16 x) { return static_cast<float>(x); }
__device__ inline hip_bfloat16 __float2bfloat16_rn(float x) { return hip_bfloat16(x); }

// Wavefronts run in step, and a lane that is off is masked by the hardware.
template <typename T>
__device__ inline T __shfl_xor_sync(unsigned long long, T x, int mask) {
  return __shfl_xor(x, mask);
}
template <typename T>
__device__ inline void __stwb(T* at, T value) {
  *at = value;
}
// Streaming accesses are a hint.
template <typename T>
__device__ inline T __ldcs(const T* at) {
  return *at;
}
template <typename T>
__device__ inline void __stcs(T* at, T value) {
  *at = value;
}
__device__ inline void __syncwarp() { __builtin_amdgcn_wave_barrier(); }
#endif
