// Conversions of rows between f32 and the narrow dtypes.
#include "ops/cpu/fast/rows.h"

#ifdef __F16C__
#include <immintrin.h>
#endif

namespace vitrine::fast::VITRINE_ISA {
namespace {

void widen_f16(const f16* source, int64_t count, float* destination) {
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= count; i += 8) {
    const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(source + i));
    _mm256_storeu_ps(destination + i, _mm256_cvtph_ps(half));
  }
#endif
  for (; i < count; ++i) destination[i] = to_float(source[i]);
}

void narrow_f16(f16* destination, int64_t count, const float* source, bool add) {
  int64_t i = 0;
#ifdef __F16C__
  for (; i + 8 <= count; i += 8) {
    __m128i* place = reinterpret_cast<__m128i*>(destination + i);
    __m256 value = _mm256_loadu_ps(source + i);
    if (add) value = _mm256_add_ps(value, _mm256_cvtph_ps(_mm_loadu_si128(place)));
    _mm_storeu_si128(place, _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT));
  }
#endif
  for (; i < count; ++i)
    destination[i] = to_f16(add ? to_float(destination[i]) + source[i] : source[i]);
}

uint16_t round_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const uint32_t quiet = (u >> 16) | 0x40u;
  return static_cast<uint16_t>((u & 0x7fffffffu) > 0x7f800000u ? quiet : rounded);
}

float widen_bf16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

}  // namespace

void widen(DType from, const void* source, int64_t offset, int64_t count, float* destination) {
  if (from == DType::kBF16) {
    const uint16_t* in = static_cast<const uint16_t*>(source) + offset;
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) destination[i] = widen_bf16(in[i]);
  } else if (from == DType::kF16) {
    widen_f16(static_cast<const f16*>(source) + offset, count, destination);
  } else if (from == DType::kF32) {
    std::memcpy(destination,
                static_cast<const float*>(source) + offset,
                static_cast<size_t>(count) * sizeof(float));
  } else {
    const double* in = static_cast<const double*>(source) + offset;
    for (int64_t i = 0; i < count; ++i) destination[i] = static_cast<float>(in[i]);
  }
}

void narrow(
    DType to, void* destination, int64_t offset, int64_t count, const float* source, bool add) {
  if (to == DType::kBF16) {
    uint16_t* out = static_cast<uint16_t*>(destination) + offset;
    if (add) {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) out[i] = round_bf16(widen_bf16(out[i]) + source[i]);
    } else {
#pragma omp simd
      for (int64_t i = 0; i < count; ++i) out[i] = round_bf16(source[i]);
    }
  } else if (to == DType::kF16) {
    narrow_f16(static_cast<f16*>(destination) + offset, count, source, add);
  } else if (to == DType::kF32) {
    float* out = static_cast<float*>(destination) + offset;
    if (!add) {
      std::memmove(out, source, static_cast<size_t>(count) * sizeof(float));
      return;
    }
#pragma omp simd
    for (int64_t i = 0; i < count; ++i) out[i] += source[i];
  } else {
    double* out = static_cast<double*>(destination) + offset;
    for (int64_t i = 0; i < count; ++i)
      out[i] = (add ? out[i] : 0.0) + static_cast<double>(source[i]);
  }
}

}  // namespace vitrine::fast::VITRINE_ISA
