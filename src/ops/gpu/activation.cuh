// Sigmoid and the three forms of gelu. Values of 16 bits take the hardware's exponential and
// reciprocal: errors near 1e-6 relative, far below their rounding, at two special-function
// operations an element, which keeps these kernels bound by memory. Wider values take the
// library's.
#pragma once

#include <type_traits>

#include "gpu/vector.cuh"

namespace vitrine::gpu {

template <typename T>
constexpr bool kFastMath = sizeof(T) == 2;

template <typename T>
__device__ __forceinline__ Wide<T> exponential(Wide<T> x) {
  if constexpr (kFastMath<T>) {
    return __expf(x);
  } else {
    return exp(x);
  }
}
template <typename T>
__device__ __forceinline__ Wide<T> reciprocal(Wide<T> x) {
  if constexpr (kFastMath<T>) {
    return __fdividef(1.0f, x);
  } else {
    return 1 / x;
  }
}
template <typename T>
__device__ __forceinline__ Wide<T> sigmoid(Wide<T> x) {
  return reciprocal<T>(1 + exponential<T>(-x));
}

// gelu(x) = x phi(x).
template <typename W>
struct Phi {
  W value, slope;
};

// The normal distribution. Fast: erfc(z) = t P(t) exp(-z^2), t = 1 / (1 + p z), within 1.5e-7
// (Abramowitz and Stegun, 7.1.26); the exponential serves the density too.
template <typename T>
__device__ __forceinline__ Phi<Wide<T>> normal_phi(Wide<T> x) {
  using W = Wide<T>;
  constexpr W kRootHalf = W(0.70710678118654752440), kDensity = W(0.39894228040143267794);
  const W e = exponential<T>(W(-0.5) * x * x);
  if constexpr (kFastMath<T>) {
    const float z = fabsf(x) * kRootHalf;
    const float t = reciprocal<T>(fmaf(0.3275911f, z, 1.0f));
    float p = fmaf(1.061405429f, t, -1.453152027f);
    p = fmaf(p, t, 1.421413741f);
    p = fmaf(p, t, -0.284496736f);
    p = fmaf(p, t, 0.254829592f);
    const float tail = 0.5f * p * t * e;
    return {x < 0 ? tail : 1 - tail, kDensity * e};
  } else {
    return {W(0.5) * erfc(-x * kRootHalf), kDensity * e};
  }
}

// 0.5 (1 + tanh u) is sigmoid(2u), so both approximations are sigmoids.
template <typename T>
__device__ __forceinline__ Phi<Wide<T>> tanh_phi(Wide<T> x) {
  using W = Wide<T>;
  constexpr W kTwice = W(1.59576912160573071176), kCubic = W(0.044715);
  const W square = x * x;
  const W s = sigmoid<T>(kTwice * x * (1 + kCubic * square));
  return {s, s * (1 - s) * kTwice * (1 + 3 * kCubic * square)};
}
template <typename T>
__device__ __forceinline__ Phi<Wide<T>> sigmoid_phi(Wide<T> x) {
  constexpr Wide<T> kFactor = Wide<T>(1.702);
  const Wide<T> s = sigmoid<T>(kFactor * x);
  return {s, kFactor * s * (1 - s)};
}

template <typename T, int Form>
__device__ __forceinline__ Phi<Wide<T>> phi(Wide<T> x) {
  if constexpr (Form == 0) {
    return normal_phi<T>(x);
  } else if constexpr (Form == 1) {
    return tanh_phi<T>(x);
  } else {
    return sigmoid_phi<T>(x);
  }
}

}  // namespace vitrine::gpu
