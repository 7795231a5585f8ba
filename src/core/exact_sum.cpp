// Exact summation.
#include "core/exact_sum.h"

#include <bit>
#include <cmath>
#include <limits>

namespace vitrine {
namespace {
constexpr int kBias = 1088;  // weight of limb 0 is 2^-kBias, below the smallest subnormal (2^-1074)
constexpr int kValueLimbs = ExactSum::kLimbs - 1;
}  // namespace

void ExactSum::add(double value) {
  const uint64_t bits = std::bit_cast<uint64_t>(value);
  const int exponent = static_cast<int>((bits >> 52) & 0x7ff);
  if (exponent == 0x7ff) {
    ++limbs_[kLimbs - 1];
    return;
  }
  uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
  if (exponent != 0) mantissa |= uint64_t{1} << 52;
  // value = mantissa * 2^(max(exponent,1) - 1075)
  const int shift = (exponent == 0 ? 1 : exponent) - 1075 + kBias;
  const auto limb = static_cast<size_t>(shift / 32);
  const int within = shift % 32;
  const uint64_t low = mantissa << within;
  const uint64_t high = within == 0 ? 0 : mantissa >> (64 - within);
  const int64_t sign = (bits >> 63) ? -1 : 1;
  limbs_[limb] += sign * static_cast<int64_t>(low & 0xffffffffu);
  limbs_[limb + 1] += sign * static_cast<int64_t>(low >> 32);
  limbs_[limb + 2] += sign * static_cast<int64_t>(high);
}

void ExactSum::add(const ExactSum& other) {
  for (size_t i = 0; i < kLimbs; ++i) limbs_[i] += other.limbs_[i];
}

double ExactSum::value() const {
  if (limbs_[kLimbs - 1] != 0) return std::numeric_limits<double>::quiet_NaN();
  std::array<int64_t, kLimbs> limbs = limbs_;
  // Carry so that every limb but the top one is in [0, 2^32).
  for (int i = 0; i + 1 < kValueLimbs; ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t carry = limbs[at] >> 32;
    limbs[at] -= carry * (int64_t{1} << 32);
    limbs[at + 1] += carry;
  }
  const bool negative = limbs[kValueLimbs - 1] < 0;
  if (negative) {
    ExactSum flipped;
    for (size_t i = 0; i + 1 < kLimbs; ++i) flipped.limbs_[i] = -limbs_[i];
    return -flipped.value();
  }
  // Top non-zero limbs decide; anything below the third is folded in as a sticky bit.
  int top = kValueLimbs - 1;
  while (top >= 0 && limbs[static_cast<size_t>(top)] == 0) --top;
  if (top < 0) return 0.0;
  __extension__ unsigned __int128 head = 0;
  for (int i = top; i > top - 3; --i) {
    head = (head << 32) | static_cast<uint64_t>(i >= 0 ? limbs[static_cast<size_t>(i)] : 0);
  }
  bool sticky = false;
  for (int i = top - 3; i >= 0; --i) sticky = sticky || limbs[static_cast<size_t>(i)] != 0;
  head = (head << 1) | (sticky ? 1u : 0u);
  int exponent = 32 * (top - 2) - kBias - 1;
  // Reduce to 55 bits with a sticky last bit, then let the hardware round once.
  while ((head >> 62) != 0) {
    head = (head >> 1) | (head & 1);
    ++exponent;
  }
  return std::ldexp(static_cast<double>(static_cast<int64_t>(head)), exponent);
}

}  // namespace vitrine
