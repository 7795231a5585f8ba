// The arithmetic of one element of AdamW: as optim/adamw.cpp has it, and quicker with the same
// bits.
//
// The quick roots and quotients are those of __fsqrt_rn() and __fdiv_rn() without the tests for
// values that need more: a hardware approximation, refined, and remainders. That they round right
// is a property of the hardware's tables with these sequences, not of the tables' stated bounds:
// the tests run all significands.
#pragma once

#include "gpu/approximate.cuh"

namespace vitrine::gpu {

// Between these, squares, remainders and quotients neither underflow nor overflow.
constexpr float kQuickLeast = 0x1p-96f;  // of |m| and v
constexpr float kQuickMost = 0x1p16f;    // of v
constexpr float kQuickLeastEps = 0x1p-60f, kQuickMostEps = 0x1p16f;
constexpr float kQuickLeastCorrection = 0x1p-12f;

struct UpdateNumbers {
  float beta1, beta2, one_minus_beta1, one_minus_beta2, eps, decay, step_size,
      sqrt_bias_correction2;
  float inverse;  // of sqrt_bias_correction2
  bool quick;     // these are in the range of update_quickly()
};

__device__ __forceinline__ void update_moments(const UpdateNumbers& n,
                                               float gradient,
                                               float& m,
                                               float& v) {
  m = __fadd_rn(__fmul_rn(n.beta1, m), __fmul_rn(n.one_minus_beta1, gradient));
  v = __fadd_rn(__fmul_rn(n.beta2, v), __fmul_rn(n.one_minus_beta2, __fmul_rn(gradient, gradient)));
}

// The operations of update_tile() in its order, none fused.
__device__ __forceinline__ void update_one(
    const UpdateNumbers& n, float decay, float scale, float g, float& master, float& m, float& v) {
  update_moments(n, __fmul_rn(g, scale), m, v);
  const float denominator = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), n.sqrt_bias_correction2), n.eps);
  master = __fsub_rn(__fmul_rn(master, decay), __fmul_rn(n.step_size, __fdiv_rn(m, denominator)));
}

#ifdef VITRINE_GPU_APPROXIMATE

// sqrt(v); v is 0 or not below kQuickLeast.
__device__ __forceinline__ float quick_root(float v) {
  const float r = about_inverse_root(fmaxf(v, kQuickLeast));
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

// What the values of a group were.
struct Seen {
  float least = 0x1p+100f, most = 0;  // of |m| and v; of v
  bool number = true;                 // no master is a NaN, nor then a moment
};

// As update_one(), for values in range.
__device__ __forceinline__ void update_quickly(const UpdateNumbers& n,
                                               float decay,
                                               float scale,
                                               float g,
                                               float& master,
                                               float& m,
                                               float& v,
                                               Seen& seen) {
  update_moments(n, __fmul_rn(g, scale), m, v);
  const float root = quick_root(v);
  const float denominator =
      __fadd_rn(quick_quotient(root, n.sqrt_bias_correction2, n.inverse), n.eps);
  const float step = quick_quotient(m, denominator, quick_inverse(denominator));
  master = __fsub_rn(__fmul_rn(master, decay), __fmul_rn(n.step_size, step));
  seen.least = fminf(seen.least, fminf(fabsf(m), v));
  seen.most = fmaxf(seen.most, v);
  seen.number = seen.number && master == master;
}
#endif

}  // namespace vitrine::gpu
