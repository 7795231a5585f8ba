// Gradients that are written past the caches.
#pragma once

#include "ops/gpu/elementwise.cuh"

namespace vitrine::gpu {

template <typename To, typename T, int N>
__device__ __forceinline__ void put_once_as(To* to, const Wide<T> (&values)[N]) {
  Vec<To, N> out;
#pragma unroll
  for (int j = 0; j < N; ++j) out.v[j] = from_wide<To>(values[j]);
  store_once(to, out);
}

// As gradient.put(at, values). Beside reads that are copied ahead, lines that wait in L2 to be
// written cost more than a reader gains that might have found them there.
template <typename T, int N>
__device__ __forceinline__ void put_once(const GradientTo<T>& gradient,
                                         int64_t at,
                                         const Wide<T> (&values)[N]) {
  if (gradient.accumulate || !gradient.data) return gradient.put(at, values);
  if constexpr (!std::is_same_v<T, float>) {
    if (gradient.f32) {
      return put_once_as<float, T>(static_cast<float*>(gradient.data) + at, values);
    }
  }
  put_once_as<T, T>(static_cast<T*>(gradient.data) + at, values);
}

}  // namespace vitrine::gpu
