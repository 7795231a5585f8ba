// Random fills and exact widening for the probe. Bound by memory; their time is not measured.
#include <cuda_fp8.h>

#include "core/error.h"
#include "gpu/probe_product.h"
#include "gpu/runtime.h"

namespace vitrine::gpu {
namespace {

constexpr int kThreads = 256;

// SplitMix64's mixing: 24 bits of it are a number in [-1, 1).
__device__ float uniform(uint64_t seed, uint64_t i) {
  uint64_t x = seed + (i + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  return static_cast<float>(x >> 40) * 0x1p-23f - 1.0f;
}

template <typename T>
__global__ void fill_kernel(T* data, int64_t count, uint64_t seed) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    data[i] = static_cast<T>(uniform(seed, static_cast<uint64_t>(i)));
  }
}

template <typename T>
__global__ void widen_kernel(const T* data, int64_t count, double* wide) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x; i < count;
       i += stride) {
    wide[i] = static_cast<double>(static_cast<float>(data[i]));
  }
}

// Calls body(pointer of the type).
template <typename Body>
void with_type(cudaDataType_t type, const void* data, Body body) {
  void* at = const_cast<void*>(data);
  switch (type) {
    case CUDA_R_32F:
      return body(static_cast<float*>(at));
    case CUDA_R_16BF:
      return body(static_cast<__nv_bfloat16*>(at));
    case CUDA_R_16F:
      return body(static_cast<__half*>(at));
    case CUDA_R_8F_E4M3:
      return body(static_cast<__nv_fp8_e4m3*>(at));
    default:
      throw ConfigError("the probe has no kernels for data type " + std::to_string(type));
  }
}

unsigned blocks() { return static_cast<unsigned>(limits().multiprocessors * 8); }

}  // namespace

void fill_random(cudaDataType_t type, void* data, int64_t count, uint64_t seed) {
  with_type(type, data, [&](auto* typed) {
    fill_kernel<<<blocks(), kThreads, 0, stream()>>>(typed, count, seed);
  });
  VITRINE_GPU_LAUNCHED("fill_kernel");
}

void widen(cudaDataType_t type, const void* data, int64_t count, double* wide) {
  with_type(type, data, [&](auto* typed) {
    widen_kernel<<<blocks(), kThreads, 0, stream()>>>(typed, count, wide);
  });
  VITRINE_GPU_LAUNCHED("widen_kernel");
}

}  // namespace vitrine::gpu
