// The host's sums and update of a step, and the fixed-point sum that GPUs use.
#include "optim/step_math.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "optim/gpu/fixed_sum.h"
#include "optim/step_values.h"

namespace vitrine::test {
namespace {

TensorView scalar_view(float& value) { return {&value, Shape{1}, DType::kF32}; }

double sum_of_squares(const std::vector<float>& values) {
  ExactSum sum;
  add_squares(values.data(), DType::kF32, 0, static_cast<int64_t>(values.size()), sum);
  return sum.value();
}

TEST(HostStepMath, FindsLossNormAndFactorOfOneRank) {
  const auto math = make_host_step_math();
  const auto g = spread_values(1000, 1, 4);
  float first = 2.5f, second = 0.5f;
  math->begin();
  math->add_loss(scalar_view(first), 1);
  math->add_loss(scalar_view(second), 0.25);
  EXPECT_EQ(math->local_loss(), 2.625);
  math->add_squares(g.data(), DType::kF32, 0, 1000);
  math->combine(1, {.parts = 2, .loss_scale = 8, .clip = 1});
  const StepSums sums = math->sums();
  EXPECT_EQ(sums.loss, 1.3125);
  EXPECT_EQ(sums.gradient_norm, std::sqrt(sum_of_squares(g)) / 8);
  EXPECT_FALSE(sums.overflow);
  math->begin();
  EXPECT_EQ(math->local_loss(), 0);
  math->combine(1, {});
  EXPECT_EQ(math->sums().gradient_norm, 0);
}

TEST(HostStepMath, SumsTermsAndTakesTheirSquares) {
  const auto a = spread_values(1000, 1), b = spread_values(1000, 2), c = spread_values(1000, 3);
  std::vector<float> sum(1000), expected(1000);
  for (size_t i = 0; i < 1000; ++i) expected[i] = a[i] + b[i] + c[i];
  const auto math = make_host_step_math();
  math->begin();
  for (const auto& [begin, end] : {std::pair{0, 448}, {448, 1000}}) {
    const std::array<const void*, 3> terms{a.data() + begin, b.data() + begin, c.data() + begin};
    math->sum_adding_squares(sum.data() + begin, terms, DType::kF32, begin, end);
  }
  math->combine(1, {});
  EXPECT_EQ(sum, expected);
  EXPECT_EQ(math->sums().gradient_norm, std::sqrt(sum_of_squares(expected)));
}

TEST(HostStepMath, CombinesRanksToTheBitsOfOneRankThatHasEverything) {
  const auto g = spread_values(1000, 2);
  const int64_t cuts[] = {0, 320, 448, 1000};
  const auto alone = make_host_step_math();
  alone->begin();
  alone->add_squares(g.data(), DType::kF32, 0, 1000);
  alone->combine(1, {});
  std::vector<std::byte> messages;
  for (int r = 0; r < 3; ++r) {
    const auto math = make_host_step_math();
    float loss = 0.1f * static_cast<float>(r + 1);
    math->begin();
    math->add_loss(scalar_view(loss), 1);
    math->add_squares(g.data() + cuts[r], DType::kF32, cuts[r], cuts[r + 1]);
    const auto message = math->message(0.25 + r);
    EXPECT_EQ(message.size(), math->message_bytes());
    messages.insert(messages.end(), message.begin(), message.end());
  }
  const auto math = make_host_step_math();
  math->begin();
  const auto room = math->room(3);
  ASSERT_EQ(room.size(), messages.size());
  std::copy(messages.begin(), messages.end(), room.begin());
  math->combine(3, {});
  EXPECT_EQ(math->sums().gradient_norm, alone->sums().gradient_norm);
  EXPECT_EQ(math->sums().loss,
            static_cast<double>(0.1f) + static_cast<double>(0.2f) + static_cast<double>(0.1f * 3));
  EXPECT_EQ(math->sums().progress, 0.25);
}

TEST(HostStepMath, UpdatesLikeAdamWWithTheFactorOfTheNorm) {
  const OptimizerConfig config;
  const auto g = spread_values(300, 3, 100);
  auto master = spread_values(300, 4), m = spread_values(300, 5), v = spread_values(300, 6);
  for (float& x : v) x = std::abs(x);
  auto expected = master, m2 = m, v2 = v;
  const auto math = make_host_step_math();
  math->begin();
  math->add_squares(g.data(), DType::kF32, 0, 300);
  math->combine(1, {.parts = 1, .loss_scale = 4, .clip = 0.5});
  const double factor = 0.5 / (math->sums().gradient_norm + 1e-6) / 4;
  ASSERT_LT(factor, 0.25);
  const UpdateRange ranges[] = {{10, 200, true}, {200, 290, false}};
  const UpdateArrays arrays{.master = master.data(),
                            .exp_avg = m.data(),
                            .exp_avg_sq = v.data(),
                            .gradients = g.data(),
                            .parameters = master.data()};
  math->update(config, 1e-3, 7, ranges, arrays);
  const UpdateArrays alone{.master = expected.data(),
                           .exp_avg = m2.data(),
                           .exp_avg_sq = v2.data(),
                           .gradients = g.data(),
                           .parameters = expected.data()};
  for (const UpdateRange& range : ranges) {
    adamw_update(adamw_step(config, 1e-3, 7, factor, range.decay), alone, range);
  }
  EXPECT_EQ(master, expected);
  EXPECT_EQ(m, m2);
  EXPECT_EQ(v, v2);
}

TEST(HostStepMath, ChangesNothingAfterAnOverflow) {
  std::vector<float> g(64, 1.0f), master(64, 2.0f), m(64), v(64);
  g[5] = std::numeric_limits<float>::infinity();
  const auto math = make_host_step_math();
  math->begin();
  math->add_squares(g.data(), DType::kF32, 0, 64);
  math->combine(1, {});
  EXPECT_TRUE(math->sums().overflow);
  const UpdateRange range{0, 64, true};
  math->update(
      {},
      1e-3,
      1,
      {&range, 1},
      {master.data(), m.data(), v.data(), g.data(), DType::kF32, master.data(), DType::kF32});
  EXPECT_EQ(master, std::vector<float>(64, 2.0f));
  EXPECT_EQ(m, std::vector<float>(64));
}

double value_of(const gpu::FixedSum& sum) {
  uint64_t pieces[gpu::FixedSum::kPieces];
  for (int i = 0; i < gpu::FixedSum::kPieces; ++i) pieces[i] = sum.piece(i);
  gpu::carry_pieces(pieces);
  return gpu::pieces_value(pieces);
}

TEST(FixedSum, IsExactlyTheExactSumWhereNothingIsDropped) {
  // Terms of at most 53 bits above 2^-120.
  const auto values = spread_values(20000, 7);
  gpu::FixedSum fixed;
  ExactSum exact;
  for (const float x : values) {
    const double square = std::ldexp(static_cast<double>(x) * x, -20);
    fixed.add(square);
    exact.add(square);
  }
  EXPECT_EQ(value_of(fixed), exact.value());
  EXPECT_FALSE(fixed.overflow);
}

TEST(FixedSum, DoesNotDependOnTheOrderNorOnHowPiecesAreAdded) {
  auto values = spread_values(5000, 8);
  gpu::FixedSum forward, backward;
  uint64_t apart[gpu::FixedSum::kPieces] = {};
  for (const float x : values) {
    const double square = static_cast<double>(x) * x;
    forward.add(square);
    gpu::FixedSum one;
    one.add(square);
    for (int i = 0; i < gpu::FixedSum::kPieces; ++i) apart[i] += one.piece(i);
  }
  std::reverse(values.begin(), values.end());
  for (const float x : values) backward.add(static_cast<double>(x) * x);
  EXPECT_EQ(0, std::memcmp(forward.word, backward.word, sizeof(forward.word)));
  gpu::carry_pieces(apart);
  EXPECT_EQ(gpu::pieces_value(apart), value_of(forward));
}

TEST(FixedSum, CarriesThroughEveryWord) {
  gpu::FixedSum sum;
  for (int power = 71; power >= -120; --power) sum.add(std::ldexp(1.0, power));
  for (const uint64_t word : sum.word) EXPECT_EQ(word, ~uint64_t{0});
  EXPECT_EQ(value_of(sum), std::ldexp(1.0, 72));  // rounded up
  EXPECT_FALSE(sum.overflow);
  sum.add(std::ldexp(1.0, -120));
  EXPECT_TRUE(sum.overflow);
}

TEST(FixedSum, RoundsHalvesToEvenAndDropsWhatIsTooSmall) {
  gpu::FixedSum sum;
  sum.add(1);
  sum.add(std::ldexp(1.0, -53));
  EXPECT_EQ(value_of(sum), 1);
  sum.add(std::ldexp(1.0, -120));
  EXPECT_EQ(value_of(sum), 1 + std::ldexp(1.0, -52));
  gpu::FixedSum small;
  small.add(std::ldexp(1.0, -121));
  small.add(std::ldexp(1.0, -1060));
  EXPECT_EQ(value_of(small), 0);
  small.add(std::ldexp(1.0, -120));
  EXPECT_EQ(value_of(small), std::ldexp(1.0, -120));
}

TEST(FixedSum, SaysWhatItCannotHold) {
  for (const double bad : {std::ldexp(1.0, 72),
                           std::numeric_limits<double>::infinity(),
                           std::numeric_limits<double>::quiet_NaN(),
                           std::numeric_limits<double>::max()}) {
    gpu::FixedSum sum;
    sum.add(bad);
    EXPECT_TRUE(sum.overflow) << bad;
  }
  gpu::FixedSum largest;
  largest.add(std::nextafter(std::ldexp(1.0, 72), 0.0));
  EXPECT_FALSE(largest.overflow);
  EXPECT_EQ(value_of(largest), std::nextafter(std::ldexp(1.0, 72), 0.0));
}

}  // namespace
}  // namespace vitrine::test
