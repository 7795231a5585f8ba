// Roots and quotients of AdamW with the bits of __fsqrt_rn() and __fdiv_rn(), without their checks.
//
// They are the sequences that the compiler makes of those two between its tests for values that
// need more: a hardware approximation, refined, and remainders. That they round right is a property
// of the hardware's tables with these sequences, not of the tables' stated bounds: the tests run
// all significands.
#pragma once

#include "gpu/approximate.cuh"

namespace vitrine::gpu {

// Between these, squares, remainders and quotients neither underflow nor overflow.
constexpr float kLeast = 0x1p-96f;  // of |m| and v
constexpr float kMost = 0x1p16f;    // of v
constexpr float kLeastEps = 0x1p-60f, kMostEps = 0x1p16f, kLeastCorrection = 0x1p-12f;

#ifdef VITRINE_GPU_APPROXIMATE

// sqrt(v); v is 0 or not below kLeast.
__device__ __forceinline__ float quick_root(float v) {
  const float r = about_inverse_root(fmaxf(v, kLeast));
  const float near = __fmul_rn(v, r);
  return __fmaf_rn(__fmaf_rn(-near, near, v), __fmul_rn(r, 0.5f), near);
}

// Close to 1 / b, for quick_quotient().
__device__ __forceinline__ float quick_inverse(float b) {
  const float about = about_inverse(b);
  return __fmaf_rn(about, __fmaf_rn(-b, about, 1.0f), about);
}

// a / b from y close to 1 / b: the first remainder brings the quotient within an ulp, the second is
// exact then (Markstein, IBM J. Res. Dev. 1990). Remainders are negated, so that a quotient of -0
// stays one.
__device__ __forceinline__ float quick_quotient(float a, float b, float y) {
  float q = __fmul_rn(a, y);
  q = __fmaf_rn(-__fmaf_rn(b, q, -a), y, q);
  return __fmaf_rn(-__fmaf_rn(b, q, -a), y, q);
}
#endif

}  // namespace vitrine::gpu
