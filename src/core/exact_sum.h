// A sum of doubles that is exact, so that the order of adding never shows in the result.
#pragma once

#include <array>
#include <cstdint>

namespace vitrine {

// A fixed-point accumulator over the whole range of double (a "superaccumulator", Kulisch): each
// limb holds 32 bits of the value and 31 bits of carry room, so 2^31 adds need no normalisation,
// and limbs of several ranks may be summed as integers. Inf and NaN are counted apart.
class ExactSum {
 public:
  static constexpr int kLimbs = 68;

  void add(double value);
  void add(const ExactSum& other);
  // The exact sum rounded once to double; NaN if a non-finite value was added.
  double value() const;
  // For reduction over ranks: element-wise int64 sums of limbs() of all ranks are a valid state.
  std::array<int64_t, kLimbs>& limbs() { return limbs_; }

 private:
  // limbs_[i] has weight 2^(32 i - 1088); the last limb counts non-finite values.
  std::array<int64_t, kLimbs> limbs_{};
};

}  // namespace vitrine
