// What kernels share: GPU types of our dtypes, wide arithmetic, 16-byte accesses, sums over a warp
// and a block.
#pragma once

#include <cstdint>
#include <type_traits>

#include "core/dtype.h"
#include "core/error.h"
#include "gpu/vendor.h"

namespace vitrine::gpu {

// Arithmetic happens in float, or in double where storage is double.
template <typename T>
struct WideOf {
  using type = float;
};
template <>
struct WideOf<double> {
  using type = double;
};
template <typename T>
using Wide = typename WideOf<T>::type;

__device__ __forceinline__ float to_wide(float x) { return x; }
__device__ __forceinline__ double to_wide(double x) { return x; }
__device__ __forceinline__ float to_wide(__nv_bfloat16 x) { return __bfloat162float(x); }
__device__ __forceinline__ float to_wide(__half x) { return __half2float(x); }

// Rounds to nearest even.
template <typename T, typename W>
__device__ __forceinline__ T from_wide(W x) {
  return static_cast<T>(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_wide<__nv_bfloat16, float>(float x) {
  return __float2bfloat16_rn(x);
}
template <>
__device__ __forceinline__ __half from_wide<__half, float>(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_wide<__nv_bfloat16, double>(double x) {
  return __float2bfloat16_rn(static_cast<float>(x));
}
template <>
__device__ __forceinline__ __half from_wide<__half, double>(double x) {
  return __float2half_rn(static_cast<float>(x));
}

// N elements that move together. Loads and stores of 16 bytes a piece: `at` must be aligned to
// min(16, N * sizeof(T)).
template <typename T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vec {
  T v[N];
};
template <int N, typename T>
__device__ __forceinline__ Vec<T, N> load(const T* at) {
  return *reinterpret_cast<const Vec<T, N>*>(at);
}
// To global memory, each access by name: of halves that were made one by one the compiler may store
// each alone.
template <typename T, int N>
__device__ __forceinline__ void store(T* at, const Vec<T, N>& value) {
  constexpr int kBytes = N * static_cast<int>(sizeof(T));
  if constexpr (kBytes % 16 == 0) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      __stwb(reinterpret_cast<uint4*>(at) + i, reinterpret_cast<const uint4*>(&value)[i]);
    }
  } else if constexpr (kBytes == 8) {
    __stwb(reinterpret_cast<uint2*>(at), *reinterpret_cast<const uint2*>(&value));
  } else {
    *reinterpret_cast<Vec<T, N>*>(at) = value;
  }
}

// The values of a vector; each half of a word by one instruction (taken out as a bf16 first, the
// upper one takes two).
template <typename T, int N>
__device__ __forceinline__ void widen(const Vec<T, N>& x, Wide<T> (&out)[N]) {
  if constexpr (std::is_same_v<T, __nv_bfloat16> && N % 2 == 0) {
    const auto* words = reinterpret_cast<const uint32_t*>(&x);
#pragma unroll
    for (int i = 0; i < N / 2; ++i) {
      out[2 * i] = __uint_as_float(words[i] << 16);
      out[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
    }
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) out[j] = to_wide(x.v[j]);
  }
}

// Keeps a value packed: what was made of it before, such as its conversion to float, is made again
// after this instead of filling registers until then.
template <typename T, int N>
__device__ __forceinline__ void stay_packed(Vec<T, N>& value) {
  if constexpr (sizeof(Vec<T, N>) % 4 == 0 && sizeof(T) == 2) {
    auto* words = reinterpret_cast<uint32_t*>(&value);
#pragma unroll
    for (int i = 0; i < static_cast<int>(sizeof(Vec<T, N>) / 4); ++i) {
      asm volatile("" : "+" VITRINE_REGISTER(words[i]));
    }
  }
}

// As load() and store(), of data that nothing reads again soon: it leaves the caches first.
template <int N, typename T>
__device__ __forceinline__ Vec<T, N> load_once(const T* at) {
  constexpr int kBytes = N * static_cast<int>(sizeof(T));
  Vec<T, N> value;
  if constexpr (kBytes % 16 == 0) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      reinterpret_cast<uint4*>(&value)[i] = __ldcs(reinterpret_cast<const uint4*>(at) + i);
    }
  } else if constexpr (kBytes == 8) {
    *reinterpret_cast<uint2*>(&value) = __ldcs(reinterpret_cast<const uint2*>(at));
  } else {
    value = load<N>(at);
  }
  return value;
}
template <typename T, int N>
__device__ __forceinline__ void store_once(T* at, const Vec<T, N>& value) {
  constexpr int kBytes = N * static_cast<int>(sizeof(T));
  if constexpr (kBytes % 16 == 0) {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      __stcs(reinterpret_cast<uint4*>(at) + i, reinterpret_cast<const uint4*>(&value)[i]);
    }
  } else if constexpr (kBytes == 8) {
    __stcs(reinterpret_cast<uint2*>(at), *reinterpret_cast<const uint2*>(&value));
  } else {
    store(at, value);
  }
}

// Over kLanes neighbouring lanes, a power of two; each of them has the sum.
template <int kLanes = VITRINE_WARP, typename W>
__device__ __forceinline__ W warp_sum(W x) {
#pragma unroll
  for (int offset = kLanes / 2; offset > 0; offset /= 2) {
    x += __shfl_xor_sync(VITRINE_FULL_MASK, x, offset);
  }
  return x;
}
template <typename W>
__device__ __forceinline__ W warp_max(W x) {
#pragma unroll
  for (int offset = VITRINE_WARP / 2; offset > 0; offset /= 2) {
    const W other = __shfl_xor_sync(VITRINE_FULL_MASK, x, offset);
    x = x > other ? x : other;
  }
  return x;
}

// Sum over a block of whole warps, the same bits on every thread (fixed order). `shared` holds one
// W a warp; safe to call again at once with the same `shared`.
template <typename W>
__device__ __forceinline__ W block_sum(W x, W* shared) {
  x = warp_sum(x);
  const int lane = threadIdx.x % VITRINE_WARP, warp = threadIdx.x / VITRINE_WARP;
  const int warps = blockDim.x / VITRINE_WARP;
  __syncthreads();
  if (lane == 0) shared[warp] = x;
  __syncthreads();
  W sum = 0;
  for (int w = 0; w < warps; ++w) sum += shared[w];
  return sum;
}

// Calls f.operator()<T>() with the GPU's type of a floating dtype.
template <typename F>
void dispatch_float(DType dtype, const char* what, F&& f) {
  switch (dtype) {
    case DType::kF32:
      return f.template operator()<float>();
    case DType::kBF16:
      return f.template operator()<__nv_bfloat16>();
    case DType::kF16:
      return f.template operator()<__half>();
    case DType::kF64:
      return f.template operator()<double>();
    default:
      throw ConfigError(std::string(what) + ": " + dtype_name(dtype) + " is not a floating dtype");
  }
}

}  // namespace vitrine::gpu
