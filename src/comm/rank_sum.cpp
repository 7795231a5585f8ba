// Rank-order sums in tiles that stay in the first-level cache; loops that the compiler vectorises.
#include "comm/rank_sum.h"

#include <algorithm>
#include <cstring>

namespace vitrine {
namespace {

constexpr int64_t kTile = 2048;  // elements; the accumulators take 8 KiB (16 KiB in fp64)

// Branch-free forms of core's f16 conversions, for vector code; equal to them in every bit of a
// number.
inline float widen(uint16_t h) {
  const int32_t magnitude = h & 0x7fff;
  const uint32_t wide = static_cast<uint32_t>(magnitude) << 13;
  const uint32_t normal = wide + 0x38000000u;
  const uint32_t subnormal = std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-24f);
  const uint32_t special = wide | 0x7f800000u;
  const uint32_t bits = magnitude >= 0x7c00 ? special : (magnitude < 0x0400 ? subnormal : normal);
  return std::bit_cast<float>((static_cast<uint32_t>(h & 0x8000) << 16) | bits);
}

inline uint16_t narrow(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = u & 0x7fffffffu;
  const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - 0x38000000u) >> 13;
  const uint32_t small =
      std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  const uint32_t special = magnitude > 0x7f800000u ? 0x7e00u : 0x7c00u;
  const uint32_t finite = magnitude < 0x38800000u ? small : normal;
  const uint32_t bits = magnitude >= 0x477ff000u ? special : finite;
  return static_cast<uint16_t>(((u >> 16) & 0x8000u) | bits);
}

// How one element is read into an accumulator and written from it.
template <typename T>
struct Arithmetic {
  using Accumulator = T;
  static T load(T x) { return x; }
  static T store(T x) { return x; }
};
template <>
struct Arithmetic<bf16> {
  using Accumulator = float;
  static float load(bf16 x) { return to_float(x); }
  static bf16 store(float x) { return to_bf16(x); }
};
template <>
struct Arithmetic<f16> {
  using Accumulator = float;
  static float load(f16 x) { return widen(x.bits); }
  static f16 store(float x) { return {narrow(x)}; }
};

template <typename T>
void sum(std::span<const void* const> pieces, void* out, int64_t count) {
  using A = Arithmetic<T>;
  alignas(64) typename A::Accumulator total[kTile];
  for (int64_t begin = 0; begin < count; begin += kTile) {
    const int64_t n = std::min(kTile, count - begin);
    const T* first = static_cast<const T*>(pieces[0]) + begin;
    for (int64_t i = 0; i < n; ++i) total[i] = A::load(first[i]);
    for (size_t r = 1; r < pieces.size(); ++r) {
      const T* piece = static_cast<const T*>(pieces[r]) + begin;
      for (int64_t i = 0; i < n; ++i) {
        total[i] = static_cast<typename A::Accumulator>(total[i] + A::load(piece[i]));
      }
    }
    T* to = static_cast<T*>(out) + begin;
    for (int64_t i = 0; i < n; ++i) to[i] = A::store(total[i]);
  }
}

}  // namespace

void rank_order_sum(std::span<const void* const> pieces, void* out, int64_t count, DType dtype) {
  if (pieces.size() == 1) {
    if (out != pieces[0]) {
      std::memcpy(out, pieces[0], static_cast<size_t>(count) * dtype_bytes(dtype));
    }
    return;
  }
  switch (dtype) {
    case DType::kF32:
      return sum<float>(pieces, out, count);
    case DType::kBF16:
      return sum<bf16>(pieces, out, count);
    case DType::kF16:
      return sum<f16>(pieces, out, count);
    case DType::kF64:
      return sum<double>(pieces, out, count);
    case DType::kI32:
      return sum<uint32_t>(pieces, out, count);
    case DType::kU8:
      return sum<uint8_t>(pieces, out, count);
  }
}

}  // namespace vitrine
