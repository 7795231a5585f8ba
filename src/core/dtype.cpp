// Dtype names and conversions.
#include "core/dtype.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"

namespace vitrine {

const char* dtype_name(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "f32";
    case DType::kBF16:
      return "bf16";
    case DType::kF16:
      return "f16";
    case DType::kF64:
      return "f64";
    case DType::kI32:
      return "i32";
    case DType::kU8:
      return "u8";
  }
  return "?";
}

DType dtype_from_name(std::string_view name) {
  if (name == "f32" || name == "fp32" || name == "float32") return DType::kF32;
  if (name == "bf16" || name == "bfloat16") return DType::kBF16;
  if (name == "f16" || name == "fp16" || name == "float16") return DType::kF16;
  if (name == "f64" || name == "fp64" || name == "float64") return DType::kF64;
  if (name == "i32" || name == "int32") return DType::kI32;
  if (name == "u8" || name == "uint8") return DType::kU8;
  throw ConfigError("unknown dtype '" + std::string(name) +
                    "': expected one of fp32, bf16, fp16, fp64, int32, uint8");
}

float to_float(f16 x) {
  const uint32_t sign = (x.bits & 0x8000u) << 16;
  const uint32_t exponent = (x.bits >> 10) & 0x1fu;
  const uint32_t mantissa = x.bits & 0x3ffu;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000u | (mantissa << 13));
  if (exponent == 0) {
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign ? -magnitude : magnitude;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

f16 to_f16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t magnitude = u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (magnitude >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};
  if (magnitude < 0x38800000u) {  // subnormal or zero: let the float adder round at 2^-24
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  const uint32_t rounded = magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u;
  return {static_cast<uint16_t>(sign | (rounded >> 13))};
}

namespace {

template <typename T>
double load(const void* p, int64_t i) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, f16>) {
    return to_float(static_cast<const T*>(p)[i]);
  } else {
    return static_cast<double>(static_cast<const T*>(p)[i]);
  }
}

template <typename From, typename To>
void convert_loop(void* destination, const void* source, int64_t count) {
  To* out = static_cast<To*>(destination);
  const From* in = static_cast<const From*>(source);
  for (int64_t i = 0; i < count; ++i) {
    if constexpr (std::is_same_v<To, bf16>) {
      out[i] = to_bf16(static_cast<float>(load<From>(in, i)));
    } else if constexpr (std::is_same_v<To, f16>) {
      out[i] = to_f16(static_cast<float>(load<From>(in, i)));
    } else {
      out[i] = static_cast<To>(load<From>(in, i));
    }
  }
}

template <typename From>
void convert_from(DType to, void* destination, const void* source, int64_t count) {
  switch (to) {
    case DType::kF32:
      return convert_loop<From, float>(destination, source, count);
    case DType::kBF16:
      return convert_loop<From, bf16>(destination, source, count);
    case DType::kF16:
      return convert_loop<From, f16>(destination, source, count);
    case DType::kF64:
      return convert_loop<From, double>(destination, source, count);
    default:
      throw ShapeError(std::string("convert: no conversion to ") + dtype_name(to));
  }
}

}  // namespace

void convert(DType to, void* destination, DType from, const void* source, int64_t count) {
  if (to == from) {
    std::memcpy(destination, source, static_cast<size_t>(count) * dtype_bytes(to));
    return;
  }
  switch (from) {
    case DType::kF32:
      return convert_from<float>(to, destination, source, count);
    case DType::kBF16:
      return convert_from<bf16>(to, destination, source, count);
    case DType::kF16:
      return convert_from<f16>(to, destination, source, count);
    case DType::kF64:
      return convert_from<double>(to, destination, source, count);
    default:
      throw ShapeError(std::string("convert: no conversion from ") + dtype_name(from));
  }
}

}  // namespace vitrine
