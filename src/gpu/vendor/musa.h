// Moore Threads: CUDA's names as MUSA's, for kernels and the runtime beneath them. Checked against
// declarations of MUSA's names by scripts/check_vendors.sh; never compiled with its SDK nor run on
// such hardware.
#pragma once

#include <musa_bf16.h>
#include <musa_fp16.h>
#include <musa_runtime.h>

#define VITRINE_WARP 32
#define VITRINE_FULL_MASK 0xffffffffu
// The constraint of a vector register in inline machine code.
#define VITRINE_REGISTER "r"

// Errors.
#define cudaError_t musaError_t
#define cudaSuccess musaSuccess
#define cudaErrorMemoryAllocation musaErrorMemoryAllocation
#define cudaErrorNotReady musaErrorNotReady
#define cudaErrorNoKernelImageForDevice musaErrorNoKernelImageForDevice
#define cudaGetErrorName musaGetErrorName
#define cudaGetErrorString musaGetErrorString
#define cudaGetLastError musaGetLastError

// Devices.
#define cudaDeviceProp musaDeviceProp
#define cudaDeviceGetStreamPriorityRange musaDeviceGetStreamPriorityRange
#define cudaDeviceSynchronize musaDeviceSynchronize
#define cudaDriverGetVersion musaDriverGetVersion
#define cudaGetDevice musaGetDevice
#define cudaGetDeviceCount musaGetDeviceCount
#define cudaGetDeviceProperties musaGetDeviceProperties
#define cudaRuntimeGetVersion musaRuntimeGetVersion
#define cudaSetDevice musaSetDevice
#define cudaFuncSetAttribute musaFuncSetAttribute
#define cudaFuncAttributeMaxDynamicSharedMemorySize musaFuncAttributeMaxDynamicSharedMemorySize
#define cudaOccupancyMaxActiveBlocksPerMultiprocessor musaOccupancyMaxActiveBlocksPerMultiprocessor

// Streams and events.
#define cudaStream_t musaStream_t
#define cudaStreamCreateWithPriority musaStreamCreateWithPriority
#define cudaStreamDestroy musaStreamDestroy
#define cudaStreamNonBlocking musaStreamNonBlocking
#define cudaStreamSynchronize musaStreamSynchronize
#define cudaStreamWaitEvent musaStreamWaitEvent
#define cudaEvent_t musaEvent_t
#define cudaEventCreateWithFlags musaEventCreateWithFlags
#define cudaEventDefault musaEventDefault
#define cudaEventDestroy musaEventDestroy
#define cudaEventDisableTiming musaEventDisableTiming
#define cudaEventElapsedTime musaEventElapsedTime
#define cudaEventQuery musaEventQuery
#define cudaEventRecord musaEventRecord
#define cudaEventSynchronize musaEventSynchronize

// Graphs.
#define cudaGraph_t musaGraph_t
#define cudaGraphExec_t musaGraphExec_t
#define cudaGraphExecDestroy musaGraphExecDestroy
#define cudaGraphInstantiate musaGraphInstantiate
#define cudaGraphDestroy musaGraphDestroy
#define cudaGraphLaunch musaGraphLaunch
#define cudaStreamBeginCapture musaStreamBeginCapture
#define cudaStreamEndCapture musaStreamEndCapture
#define cudaStreamCaptureModeRelaxed musaStreamCaptureModeRelaxed
#define cudaStreamCaptureModeThreadLocal musaStreamCaptureModeThreadLocal
#define cudaGraphNode_t musaGraphNode_t
#define cudaGraphNodeType musaGraphNodeType
#define cudaGraphNodeTypeEmpty musaGraphNodeTypeEmpty
#define cudaGraphNodeTypeKernel musaGraphNodeTypeKernel
#define cudaGraphNodeTypeMemcpy musaGraphNodeTypeMemcpy
#define cudaGraphNodeTypeMemset musaGraphNodeTypeMemset
#define cudaGraphGetNodes musaGraphGetNodes
#define cudaGraphNodeGetType musaGraphNodeGetType
#define cudaGraphMemcpyNodeGetParams musaGraphMemcpyNodeGetParams
#define cudaMemcpy3DParms musaMemcpy3DParms
#define cudaPointerAttributes musaPointerAttributes
#define cudaPointerGetAttributes musaPointerGetAttributes
#define cudaMemoryTypeDevice musaMemoryTypeDevice

// Memory.
#define cudaFree musaFree
#define cudaFreeHost musaFreeHost
#define cudaMalloc musaMalloc
#define cudaMallocHost musaMallocHost
#define cudaMemcpyAsync musaMemcpyAsync
#define cudaMemcpyDeviceToDevice musaMemcpyDeviceToDevice
#define cudaMemcpyDeviceToHost musaMemcpyDeviceToHost
#define cudaMemcpyHostToDevice musaMemcpyHostToDevice
#define cudaMemset musaMemset
#define cudaMemsetAsync musaMemsetAsync

// Types; conversions and intrinsics have CUDA's names.
#define __nv_bfloat16 __mt_bfloat16
