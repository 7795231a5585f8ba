// exp, sigmoid and erf without branches, so that loops over them become vector code.
#pragma once

#include <bit>
#include <cstdint>

namespace vitrine::fast::VITRINE_ISA {

// e^x to 2 ulp for |x| <= 64, beyond which x is held: below e^-64 a probability or a sigmoid's tail
// counts for nothing, and a wider range would make subnormal products, each a hundred cycles. NaN
// stays NaN.
static inline float vexp(float x) {
  x = x < -64.0f ? -64.0f : x;
  x = x > 64.0f ? 64.0f : x;
  const float shifted =
      x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the sum's low bits are round(x log2 e)
  const float n = shifted - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.9875691500e-4f;  // Cephes' expf
  p = p * r + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  p = p * r * r + r + 1.0f;
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - 0x4B400000 + 127;
  return p * std::bit_cast<float>(exponent << 23);
}

static inline float vsigmoid(float x) { return 1.0f / (1.0f + vexp(-x)); }

// Rational approximation of erf on [-4, 4] (as in Eigen), to a few ulp.
static inline float verf(float x) {
  x = x < -4.0f ? -4.0f : x;
  x = x > 4.0f ? 4.0f : x;
  const float s = x * x;
  float p = -2.72614225801306e-10f;
  p = p * s + 2.77068142495902e-08f;
  p = p * s - 2.10102402082508e-06f;
  p = p * s - 5.69250639462346e-05f;
  p = p * s - 7.34990630326855e-04f;
  p = p * s - 2.95459980854025e-03f;
  p = p * s - 1.60960333262415e-02f;
  float q = -1.45660718464996e-05f;
  q = q * s - 2.13374055278905e-04f;
  q = q * s - 1.68282697438203e-03f;
  q = q * s - 7.37332916720468e-03f;
  q = q * s - 1.42647390514189e-02f;
  return x * p / q;
}

}  // namespace vitrine::fast::VITRINE_ISA
