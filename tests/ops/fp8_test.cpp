// Rounding to 8-bit floating formats, against every number that they hold.
#include "ops/fp8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

namespace vitrine::test {
namespace {

// What a code of the format stands for; codes of one sign, up to the highest number.
std::vector<float> numbers(Fp8 format) {
  const int mantissa = format == Fp8::kE5M2 ? 2 : 3, bias = format == Fp8::kE5M2 ? 15 : 7;
  const int codes = format == Fp8::kE5M2 ? 0x7c : 0x7f;  // infinity and NaN, or NaN, from there
  std::vector<float> all;
  for (int code = 0; code < codes; ++code) {
    const int exponent = code >> mantissa, fraction = code & ((1 << mantissa) - 1);
    const int whole = exponent == 0 ? fraction : fraction + (1 << mantissa);
    all.push_back(std::ldexp(static_cast<float>(whole), std::max(exponent, 1) - bias - mantissa));
  }
  return all;
}

class Fp8Rounding : public testing::TestWithParam<Fp8> {};

TEST_P(Fp8Rounding, KeepsEveryNumberAndTakesTheNearerOfTwoOrTheEvenOne) {
  const std::vector<float> all = numbers(GetParam());
  EXPECT_EQ(all.back(), fp8_highest(GetParam()));
  for (const float sign : {1.0f, -1.0f}) {
    for (size_t code = 0; code < all.size(); ++code) {
      EXPECT_EQ(round_to_fp8(sign * all[code], GetParam()), sign * all[code]);
      if (code + 1 == all.size()) continue;
      const float low = all[code], high = all[code + 1], middle = (low + high) / 2;
      EXPECT_EQ(round_to_fp8(sign * std::nextafter(middle, 0.0f), GetParam()), sign * low);
      EXPECT_EQ(round_to_fp8(sign * std::nextafter(middle, high), GetParam()), sign * high);
      EXPECT_EQ(round_to_fp8(sign * middle, GetParam()), sign * (code % 2 == 0 ? low : high));
    }
  }
}

TEST_P(Fp8Rounding, SaturatesAndKeepsNan) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float beyond : {fp8_highest(GetParam()) * 1.5f, 1e38f, infinity}) {
    EXPECT_EQ(round_to_fp8(beyond, GetParam()), fp8_highest(GetParam()));
    EXPECT_EQ(round_to_fp8(-beyond, GetParam()), -fp8_highest(GetParam()));
  }
  EXPECT_TRUE(std::isnan(round_to_fp8(std::nanf(""), GetParam())));
  EXPECT_EQ(round_to_fp8(1e-30f, GetParam()), 0);
}

TEST_P(Fp8Rounding, ScalesTheLargestMagnitudeToTheHighest) {
  std::vector<float> values = {0.1f, -3.0f, 1e-3f, 0};
  const float amax = largest_magnitude(values.data(), 4);
  EXPECT_EQ(amax, 3);
  const float scale = fp8_scale(amax, GetParam());
  EXPECT_EQ(scale, fp8_highest(GetParam()) / 3);
  through_fp8(values.data(), 4, scale, GetParam());
  EXPECT_FLOAT_EQ(values[1], -3);
  EXPECT_NEAR(values[0], 0.1, 0.1 / 8);
  EXPECT_EQ(values[3], 0);
}

TEST_P(Fp8Rounding, HasAScaleForZeroAndTheSmallestAndShowsNanAndInfinity) {
  EXPECT_EQ(fp8_scale(0, GetParam()), 1);
  EXPECT_EQ(fp8_scale(1e-40f, GetParam()), std::numeric_limits<float>::max());
  for (const float wrong : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    std::vector<float> values = {1, wrong};
    const float scale = fp8_scale(largest_magnitude(values.data(), 2), GetParam());
    through_fp8(values.data(), 2, scale, GetParam());
    EXPECT_TRUE(std::isnan(values[1]));
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, Fp8Rounding, testing::Values(Fp8::kE4M3, Fp8::kE5M2));

TEST(LinearInFp8, IsForBf16WithEveryLengthAMultipleOf16) {
  const Attrs on{{"fp8", 1}};
  EXPECT_TRUE(linear_in_fp8(on, {2, 8, 32}, {16, 32}, DType::kBF16));
  EXPECT_FALSE(linear_in_fp8(on, {2, 7, 32}, {16, 32}, DType::kBF16));
  EXPECT_FALSE(linear_in_fp8(on, {16, 24}, {16, 24}, DType::kBF16));
  EXPECT_FALSE(linear_in_fp8(on, {16, 32}, {24, 32}, DType::kBF16));
  EXPECT_FALSE(linear_in_fp8(on, {0, 32}, {16, 32}, DType::kBF16));
  EXPECT_FALSE(linear_in_fp8(on, {16, 32}, {16, 32}, DType::kF32));
  EXPECT_FALSE(linear_in_fp8({}, {16, 32}, {16, 32}, DType::kBF16));
}

}  // namespace
}  // namespace vitrine::test
