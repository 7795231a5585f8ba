// Element types, their sizes and the conversions between storage types and float.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace vitrine {

enum class DType : uint8_t { kF32, kBF16, kF16, kF64, kI32, kU8 };

constexpr size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kBF16:
    case DType::kF16:
      return 2;
    case DType::kF64:
      return 8;
    case DType::kU8:
      return 1;
  }
  return 0;
}

// "f32", "bf16", "f16", "f64", "i32", "u8".
const char* dtype_name(DType dtype);

// Accepts the names above and fp32, float32, bfloat16, fp16, float16, fp64. Throws ConfigError.
DType dtype_from_name(std::string_view name);

// Storage types. Arithmetic happens in float; these only hold bits. Rounding is to nearest even.
struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

inline float to_float(bf16 x) { return std::bit_cast<float>(uint32_t{x.bits} << 16); }
inline bf16 to_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = u + 0x7fffu + ((u >> 16) & 1u);
  const bool nan = (u & 0x7fffffffu) > 0x7f800000u;
  return {static_cast<uint16_t>(nan ? ((u >> 16) | 0x40u) : (rounded >> 16))};
}

float to_float(f16 x);
f16 to_f16(float x);

template <typename T>
struct DTypeOf;
template <>
struct DTypeOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct DTypeOf<bf16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct DTypeOf<f16> {
  static constexpr DType value = DType::kF16;
};
template <>
struct DTypeOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct DTypeOf<int32_t> {
  static constexpr DType value = DType::kI32;
};
template <>
struct DTypeOf<uint8_t> {
  static constexpr DType value = DType::kU8;
};

// Converts `count` elements between any two floating dtypes (through float, or double if both are
// f64).
void convert(DType to, void* destination, DType from, const void* source, int64_t count);

}  // namespace vitrine
