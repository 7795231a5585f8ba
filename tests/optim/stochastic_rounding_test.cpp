// Masters and moments in bf16: roundings without bias, and bits that no cut shows in.
#include "optim/stochastic_rounding.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/error.h"
#include "optim/step_math.h"
#include "optim/step_values.h"

namespace vitrine::test {
namespace {

float from_bits(uint16_t bits) { return to_float(bf16{bits}); }

std::vector<uint16_t> narrowed(const std::vector<float>& values) {
  std::vector<uint16_t> out(values.size());
  for (size_t i = 0; i < values.size(); ++i) out[i] = to_bf16(values[i]).bits;
  return out;
}

TEST(StochasticRounding, TakesTheNeighbourAboveWithTheProbabilityOfWhatIsCutOff) {
  // Every one of the 2^16 bit patterns once: exactly the share that was cut off goes up.
  for (const uint32_t cut : {0u, 1u, 0x1234u, 0x8000u, 0xffffu}) {
    for (const uint32_t sign : {0u, 0x80000000u}) {
      const auto x = std::bit_cast<float>(sign | 0x3f910000u | cut);
      uint32_t up = 0;
      for (uint32_t noise = 0; noise < 0x10000u; ++noise) {
        const uint32_t bits = stochastic_bf16(x, noise);
        ASSERT_TRUE(bits == (sign >> 16 | 0x3f91u) || bits == (sign >> 16 | 0x3f92u));
        up += bits & 2 ? 1 : 0;
      }
      EXPECT_EQ(up, cut);
    }
  }
}

TEST(StochasticRounding, KeepsWhatIsExactAndWhatIsNotFinite) {
  for (const uint32_t noise : {0u, 1u, 0xffffu}) {
    for (const float exact : {0.0f, -0.0f, 1.0f, -2.5f, std::ldexp(1.0f, -130)}) {
      EXPECT_EQ(std::bit_cast<uint32_t>(from_bits(stochastic_bf16(exact, noise))),
                std::bit_cast<uint32_t>(exact));
    }
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(from_bits(stochastic_bf16(infinity, noise)), infinity);
    EXPECT_EQ(from_bits(stochastic_bf16(-infinity, noise)), -infinity);
    for (const uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7fffffffu, 0xffffffffu, 0x7f800001u}) {
      EXPECT_TRUE(std::isnan(from_bits(stochastic_bf16(std::bit_cast<float>(nan), noise))));
    }
  }
}

// The mean over many elements and updates: within five standard errors, by arrays apart.
TEST(StochasticRounding, HasNoBias) {
  constexpr int64_t kElements = 4096;
  constexpr uint32_t kSteps = 64;
  const double n = double{kElements} * kSteps;
  const float x = 1.0f + 0.3f / 128;  // 0.3 of the way between two bf16
  double sum[3] = {}, both[3] = {}, next[3] = {}, before[3] = {};
  for (uint32_t step = 1; step <= kSteps; ++step) {
    const uint64_t key = Philox(5, stream_of("a.weight")).key();
    const RoundingBits bits{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32), step};
    for (int64_t i = 0; i < kElements; ++i) {
      double up[3];
      for (uint32_t array = 0; array < 3; ++array) {
        uint32_t words[4];
        bits.words(i / 8, words);
        const uint32_t noise =
            rounding_noise(words, static_cast<RoundingBits::Array>(array), static_cast<int>(i % 8));
        up[array] = from_bits(stochastic_bf16(x, noise)) > 1.0f ? 1 : 0;
        sum[array] += up[array];
        next[array] += up[array] * before[array];
        before[array] = up[array];
      }
      both[0] += up[0] * up[1];
      both[1] += up[0] * up[2];
      both[2] += up[1] * up[2];
    }
  }
  const double p = (static_cast<double>(x) - 1) * 128;
  const double error = 5 * std::sqrt(p * (1 - p) / n);
  for (const double up : sum) EXPECT_NEAR(up / n, p, error);
  // Arrays of one element are independent, and neighbours of one array.
  const double of_pair = 5 * std::sqrt(p * p * (1 - p * p) / n);
  for (const double pairs : both) EXPECT_NEAR(pairs / n, p * p, of_pair);
  for (const double pairs : next) EXPECT_NEAR(pairs / n, p * p, of_pair);
}

struct States {
  std::vector<uint16_t> master, m, v;
  bool operator==(const States&) const = default;
};

constexpr int64_t kCount = 5003;

States start() {
  auto v = spread_values(kCount, 6);
  for (float& x : v) x = std::abs(x);
  return {narrowed(spread_values(kCount, 4)), narrowed(spread_values(kCount, 5)), narrowed(v)};
}

// Updates the elements [from, to) that a rank holds, its arrays beginning there.
void update_piece(States& s, const std::vector<float>& g, int64_t from, int64_t to, int64_t step) {
  const UpdateArrays arrays{.master = s.master.data() + from,
                            .exp_avg = s.m.data() + from,
                            .exp_avg_sq = s.v.data() + from,
                            .gradients = g.data() + from,
                            .parameters = s.master.data() + from,
                            .parameter_dtype = DType::kBF16,
                            .master_dtype = DType::kBF16,
                            .moment_dtype = DType::kBF16,
                            .seed = 11};
  adamw_update(
      adamw_step({}, 1e-3, step, 1, true), arrays, {0, to - from, true, stream_of("weight"), from});
}

TEST(Bf16States, DoNotDependOnHowElementsAreCut) {
  const auto g = spread_values(kCount, 3);
  States whole = start();
  update_piece(whole, g, 0, kCount, 7);
  for (const std::vector<int64_t>& cuts :
       {std::vector<int64_t>{0, 64, 4096, kCount}, std::vector<int64_t>{0, 1, 13, 1030, kCount}}) {
    States pieces = start();
    for (size_t i = 0; i + 1 < cuts.size(); ++i) {
      update_piece(pieces, g, cuts[i], cuts[i + 1], 7);
    }
    EXPECT_TRUE(pieces == whole);
  }
  States other = start();
  update_piece(other, g, 0, kCount, 8);
  EXPECT_FALSE(other.m == whole.m);
}

// Each result is one of the two bf16 around what fp32 states give from the same start.
TEST(Bf16States, AreNeighboursOfTheFp32Update) {
  const auto g = spread_values(kCount, 3);
  States narrow = start();
  const auto widen = [](const std::vector<uint16_t>& bits) {
    std::vector<float> values;
    for (const uint16_t b : bits) values.push_back(from_bits(b));
    return values;
  };
  auto master = widen(narrow.master), m = widen(narrow.m), v = widen(narrow.v);
  update_piece(narrow, g, 0, kCount, 7);
  const UpdateArrays wide{.master = master.data(),
                          .exp_avg = m.data(),
                          .exp_avg_sq = v.data(),
                          .gradients = g.data(),
                          .parameters = master.data()};
  adamw_update(adamw_step({}, 1e-3, 7, 1, true), wide, {0, kCount, true});
  int up = 0;
  const auto expect_near = [&](const std::vector<uint16_t>& rounded, const std::vector<float>& x) {
    for (size_t i = 0; i < x.size(); ++i) {
      const auto below = static_cast<uint16_t>(std::bit_cast<uint32_t>(x[i]) >> 16);
      ASSERT_TRUE(rounded[i] == below || rounded[i] == below + 1) << i;
      up += rounded[i] != below;
    }
  };
  expect_near(narrow.master, master);
  expect_near(narrow.m, m);
  expect_near(narrow.v, v);
  EXPECT_NEAR(up / (3.0 * kCount), 0.5, 0.03);
}

// A change of a hundredth of what bf16 resolves, a thousand times: lost by rounding to nearest.
TEST(Bf16States, SmallUpdatesAddUp) {
  std::vector<uint16_t> master(2000, to_bf16(1.0f).bits), m(2000), v(2000);
  const std::vector<float> g(2000, 1.0f);
  const UpdateArrays arrays{.master = master.data(),
                            .exp_avg = m.data(),
                            .exp_avg_sq = v.data(),
                            .gradients = g.data(),
                            .parameters = master.data(),
                            .parameter_dtype = DType::kBF16,
                            .master_dtype = DType::kBF16,
                            .moment_dtype = DType::kBF16,
                            .seed = 1};
  const double lr = 1.0 / 256 / 100;  // below 1, bf16 are 1/256 apart
  constexpr int kSteps = 1000;
  for (int step = 1; step <= kSteps; ++step) {
    adamw_update(adamw_step({}, lr, step, 1, false), arrays, {0, 2000, false, 3, 0});
  }
  double mean = 0;
  for (const uint16_t b : master) mean += from_bits(b) / 2000;
  // With a constant gradient every update is lr; one element strays by sqrt(steps / 100) / 256.
  EXPECT_NEAR(
      mean, 1 - kSteps * lr, 0.003 * kSteps * lr + 5 * std::sqrt(10.0) / 256 / std::sqrt(2000));
}

TEST(Bf16States, AreRefusedOutsideBf16) {
  UpdateArrays arrays;
  arrays.moment_dtype = DType::kBF16;
  EXPECT_THROW(check_update_arrays(arrays), ConfigError);
  float master = 0;
  uint16_t parameter = 0;
  arrays.parameter_dtype = arrays.master_dtype = DType::kBF16;
  arrays.master = &master;
  arrays.parameters = &parameter;
  EXPECT_THROW(check_update_arrays(arrays), ConfigError);
  arrays.parameters = arrays.master;
  EXPECT_NO_THROW(check_update_arrays(arrays));
  arrays.moment_dtype = DType::kF16;
  EXPECT_THROW(check_update_arrays(arrays), ConfigError);
}

}  // namespace
}  // namespace vitrine::test
