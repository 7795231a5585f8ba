// Rounding to the 8-bit floating formats in f32 arithmetic.
#include "ops/fp8.h"

#include <algorithm>
#include <bit>
#include <limits>

namespace vitrine {

bool linear_in_fp8(const Attrs& attrs, const Shape& x, const Shape& w, DType dtype) {
  if (dtype != DType::kBF16 || attrs.integer("fp8", 0) == 0) return false;
  int64_t rows = 1;
  for (int i = 0; i + 1 < x.rank(); ++i) rows *= x[i];
  return rows > 0 && w.elements() > 0 && rows % 16 == 0 && w[0] % 16 == 0 && w[1] % 16 == 0;
}

// A number of the form 1.5 * 2^(e + 23) has the spacing 2^e, so that adding it rounds to multiples
// of 2^e (to nearest even) and taking it away leaves them.
float round_to_fp8(float value, Fp8 format) {
  const uint32_t mantissa = format == Fp8::kE5M2 ? 2 : 3;
  const uint32_t least = format == Fp8::kE5M2 ? 127 - 14 : 127 - 6;  // biased, of normal numbers
  const uint32_t bits = std::bit_cast<uint32_t>(value), sign = bits & 0x80000000u;
  const float magnitude = std::bit_cast<float>(bits ^ sign);
  const uint32_t exponent = std::max((bits ^ sign) >> 23, least);
  const float shift = std::bit_cast<float>(((exponent + 23 - mantissa) << 23) | 0x400000u);
  const float highest = fp8_highest(format);
  float rounded = (magnitude + shift) - shift;
  rounded = magnitude >= highest ? highest : rounded;
  rounded = magnitude == magnitude ? rounded : magnitude;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(rounded) | sign);
}

float fp8_scale(float amax, Fp8 format) {
  if (!(amax > 0)) return 1;
  return std::min(fp8_highest(format) / amax, std::numeric_limits<float>::max());
}

// As whole numbers, magnitudes are in the order of their values, with NaN above infinity.
float largest_magnitude(const float* values, int64_t count) {
  uint32_t highest = 0;
  for (int64_t i = 0; i < count; ++i) {
    highest = std::max(highest, std::bit_cast<uint32_t>(values[i]) & 0x7fffffffu);
  }
  return std::bit_cast<float>(highest);
}

void through_fp8(float* values, int64_t count, float scale, Fp8 format) {
  const float back = 1 / scale;
  for (int64_t i = 0; i < count; ++i) values[i] = round_to_fp8(values[i] * scale, format) * back;
}

}  // namespace vitrine
