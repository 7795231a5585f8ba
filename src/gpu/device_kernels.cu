// Fills, conversions and sums of whole arrays. Bound by memory: bytes of both arrays (a sum: those
// of its terms and of itself), 16 bytes an access where all ends are aligned.
#include "core/error.h"
#include "gpu/device_kernels.h"
#include "gpu/runtime.h"
#include "gpu/vector.cuh"

namespace vitrine::gpu {
namespace {

constexpr int kThreads = 256;

unsigned blocks_for(int64_t items) {
  const int64_t wanted = (items + kThreads - 1) / kThreads;
  const int64_t most = static_cast<int64_t>(limits().multiprocessors) * 16;
  return static_cast<unsigned>(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

template <typename To, typename From>
__global__ void convert_kernel(To* to, const From* from, int64_t vectors, int64_t count) {
  constexpr int kWidth = 8;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < vectors; i += stride) {
    const Vec<From, kWidth> in = load<kWidth>(from + i * kWidth);
    Vec<To, kWidth> out;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) out.v[j] = from_wide<To>(to_wide(in.v[j]));
    store(to + i * kWidth, out);
  }
  for (int64_t i = vectors * kWidth + first; i < count; i += stride) {
    to[i] = from_wide<To>(to_wide(from[i]));
  }
}

__global__ void copy_kernel(uint4* to, const uint4* from, int64_t vectors) {
  constexpr int kInFlight = 4;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x * kInFlight;
  const int64_t first = (static_cast<int64_t>(blockIdx.x) * kInFlight) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < vectors; i += stride) {
    uint4 values[kInFlight];
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const int64_t at = i + static_cast<int64_t>(u) * blockDim.x;
      if (at < vectors) values[u] = from[at];
    }
#pragma unroll
    for (int u = 0; u < kInFlight; ++u) {
      const int64_t at = i + static_cast<int64_t>(u) * blockDim.x;
      if (at < vectors) to[at] = values[u];
    }
  }
}

template <typename T>
__global__ void add_kernel(T* sum, const T* term, int64_t vectors, int64_t count) {
  constexpr int kWidth = 16 / sizeof(T);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < vectors; i += stride) {
    Vec<T, kWidth> a = load<kWidth>(sum + i * kWidth);
    const Vec<T, kWidth> b = load<kWidth>(term + i * kWidth);
#pragma unroll
    for (int j = 0; j < kWidth; ++j) a.v[j] = from_wide<T>(to_wide(a.v[j]) + to_wide(b.v[j]));
    store(sum + i * kWidth, a);
  }
  for (int64_t i = vectors * kWidth + first; i < count; i += stride) {
    sum[i] = from_wide<T>(to_wide(sum[i]) + to_wide(term[i]));
  }
}

template <typename T>
__global__ void sum_kernel(T* sum, Terms terms, int64_t vectors, int64_t count) {
  constexpr int kWidth = 16 / sizeof(T);
  const int64_t stride = static_cast<int64_t>(gridDim.x) * blockDim.x;
  const int64_t first = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < vectors; i += stride) {
    float wide[kWidth] = {};
    for (int t = 0; t < terms.count; ++t) {
      const Vec<T, kWidth> term = load<kWidth>(static_cast<const T*>(terms.of[t]) + i * kWidth);
#pragma unroll
      for (int j = 0; j < kWidth; ++j) wide[j] += to_wide(term.v[j]);
    }
    Vec<T, kWidth> rounded;
#pragma unroll
    for (int j = 0; j < kWidth; ++j) rounded.v[j] = from_wide<T>(wide[j]);
    store(sum + i * kWidth, rounded);
  }
  for (int64_t i = vectors * kWidth + first; i < count; i += stride) {
    float wide = 0;
    for (int t = 0; t < terms.count; ++t) wide += to_wide(static_cast<const T*>(terms.of[t])[i]);
    sum[i] = from_wide<T>(wide);
  }
}

bool aligned(const void* a, const void* b, size_t bytes) {
  return (reinterpret_cast<uintptr_t>(a) | reinterpret_cast<uintptr_t>(b)) % bytes == 0;
}

template <typename To, typename From>
void convert_typed(void* to, const void* from, int64_t count) {
  if (count == 0) return;
  const int64_t vectors = aligned(to, from, 32) ? count / 8 : 0;
  convert_kernel<<<blocks_for(vectors > 0 ? vectors : count), kThreads, 0, stream()>>>(
      static_cast<To*>(to), static_cast<const From*>(from), vectors, count);
  VITRINE_GPU_LAUNCHED("convert");
}

template <typename To>
void convert_to(void* to, DType from_dtype, const void* from, int64_t count) {
  dispatch_float(
      from_dtype, "convert", [&]<typename From>() { convert_typed<To, From>(to, from, count); });
}

}  // namespace

void convert_array(DType to, void* destination, DType from, const void* source, int64_t count) {
  if (to == from) {
    VITRINE_GPU_CHECK(cudaMemcpyAsync(destination,
                                      source,
                                      static_cast<size_t>(count) * dtype_bytes(to),
                                      cudaMemcpyDeviceToDevice,
                                      stream()));
    return;
  }
  dispatch_float(
      to, "convert", [&]<typename To>() { convert_to<To>(destination, from, source, count); });
}

void copy_array(void* to, const void* from, size_t bytes) {
  const auto vectors = static_cast<int64_t>(bytes / 16);
  if (vectors == 0) return;
  const int64_t wanted = (vectors + 4 * kThreads - 1) / (4 * kThreads);
  const int64_t most = static_cast<int64_t>(limits().multiprocessors) * 64;
  copy_kernel<<<static_cast<unsigned>(wanted < most ? wanted : most), kThreads, 0, stream()>>>(
      static_cast<uint4*>(to), static_cast<const uint4*>(from), vectors);
  VITRINE_GPU_LAUNCHED("copy");
}

void add_array(DType dtype, void* sum, const void* term, int64_t count) {
  if (count == 0) return;
  dispatch_float(dtype, "add", [&]<typename T>() {
    const int64_t vectors = aligned(sum, term, 16) ? count / (16 / sizeof(T)) : 0;
    add_kernel<<<blocks_for(vectors > 0 ? vectors : count), kThreads, 0, stream()>>>(
        static_cast<T*>(sum), static_cast<const T*>(term), vectors, count);
    VITRINE_GPU_LAUNCHED("add");
  });
}

void sum_arrays(DType dtype, void* sum, const Terms& terms, int64_t count) {
  if (count == 0) return;
  dispatch_float(dtype, "sum", [&]<typename T>() {
    bool vector = true;
    for (int t = 0; t < terms.count; ++t) vector = vector && aligned(sum, terms.of[t], 16);
    const int64_t vectors = vector ? count / (16 / sizeof(T)) : 0;
    sum_kernel<<<blocks_for(vectors > 0 ? vectors : count), kThreads, 0, stream()>>>(
        static_cast<T*>(sum), terms, vectors, count);
    VITRINE_GPU_LAUNCHED("sum");
  });
}

}  // namespace vitrine::gpu
