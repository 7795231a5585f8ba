// The 8-bit floating formats: which products read them, and the rounding of whole tensors.
#pragma once

#include <cstdint>

#include "ops/op.h"

namespace vitrine {

// e4m3: 3 bits of mantissa, up to 448, no infinity (weights and activations). e5m2: 2 bits, up to
// 57344 (gradients). OCP 8-bit floating point specification, 1.0.
enum class Fp8 : uint8_t { kNone, kE4M3, kE5M2 };

constexpr float fp8_highest(Fp8 format) { return format == Fp8::kE5M2 ? 57344.0f : 448.0f; }

// Attribute `fp8` of linear: what forward keeps for backward of the rounded operands, beside x and
// w themselves. Kept copies spare backward the rounding, and cost a byte an element; they decide no
// result.
enum class Fp8Linears : uint8_t { kOff, kNothingKept, kInputsKept, kAllKept };

// Whether `linear` rounds its operands: asked for by fp8 > 0, x and w in bf16, and rows, N and K
// multiples of 16, which is what tensor cores take. The same on every backend.
bool linear_in_fp8(const Attrs& attrs, const Shape& x, const Shape& w, DType dtype);

// To nearest even, values beyond the highest to it; NaN stays.
float round_to_fp8(float value, Fp8 format);

// What a tensor with largest magnitude `amax` is multiplied by before it is rounded:
// highest / amax as f32. 1 for zero and NaN, finite for the smallest amax, 0 for infinity (which
// makes the product NaN, as it has to show).
float fp8_scale(float amax, Fp8 format);

// The largest magnitude; NaN when there is one.
float largest_magnitude(const float* values, int64_t count);
// Each value becomes round_to_fp8(value * scale) * (1 / scale).
void through_fp8(float* values, int64_t count, float scale, Fp8 format);

}  // namespace vitrine
