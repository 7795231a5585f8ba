// ZeRO stages, recomputation, accumulation, ties and pipelines change where things lie, never the
// losses.
#include <gtest/gtest.h>

#include "support/toy_models.h"
#include "support/train_harness.h"

namespace vitrine::testing {
namespace {

constexpr int64_t kVocab = 53, kLength = 11;
constexpr int kSteps = 20;

OptimizerConfig optimizer() {
  OptimizerConfig config;
  config.lr = 3e-4;
  return config;
}

HarnessResult run(int ranks,
                  int stage,
                  int64_t micro_batch,
                  int64_t accumulation,
                  bool tied,
                  bool recompute = false,
                  int pipeline = 1,
                  const std::function<void(Strategy&)>& adjust = {}) {
  Strategy strategy;
  strategy.mesh.data = ranks / pipeline;
  strategy.mesh.pipeline = pipeline;
  strategy.shard = Sharding::stage(stage);
  strategy.micro_batch = micro_batch;
  strategy.accumulation = accumulation;
  strategy.recompute = recompute;
  strategy.persistence_threshold = 0;
  if (adjust) adjust(strategy);
  const int data = strategy.mesh.data;
  const BatchTypes types = {{"tokens", {{micro_batch, kLength}, DType::kI32}},
                            {"targets", {{micro_batch, kLength}, DType::kI32}}};
  const auto batches = [=](int64_t step, int micro, int data_index) {
    const int64_t first =
        (step * accumulation + micro) * data * micro_batch + data_index * micro_batch;
    return token_batch(kVocab, kLength, first, micro_batch, 1);
  };
  return train(
      [&] { return toy_decoder(2, tied, kVocab); }, types, batches, strategy, kSteps, optimizer());
}

void expect_near(const HarnessResult& a, const HarnessResult& b) {
  ASSERT_EQ(a.losses.size(), b.losses.size());
  EXPECT_NEAR(a.losses.front() / b.losses.front(), 1, 1e-6);
  EXPECT_NEAR(a.losses.back() / b.losses.back(), 1, 1e-5);
  // AdamW hides a norm that is wrong by a factor.
  EXPECT_NEAR(a.norms.front() / b.norms.front(), 1, 1e-5);
  EXPECT_NEAR(a.norms.back() / b.norms.back(), 1, 1e-4);
}

TEST(Zero, LossFallsOnOneRank) {
  const auto one = run(1, 0, 8, 1, true);
  EXPECT_LT(one.losses.back(), one.losses.front());
}

TEST(Zero, StagesAreBitwiseEqualOnFourRanks) {
  for (const bool tied : {false, true}) {
    const auto reference = run(4, 0, 2, 1, tied);
    expect_near(reference, run(1, 0, 8, 1, tied));
    for (int stage = 1; stage <= 3; ++stage) {
      const auto other = run(4, stage, 2, 1, tied);
      EXPECT_EQ(reference.losses, other.losses) << "stage " << stage;
      EXPECT_EQ(reference.norms, other.norms) << "stage " << stage;
      EXPECT_EQ(reference.parameters, other.parameters) << "stage " << stage;
    }
  }
}

TEST(Zero, AccumulationKeepsStagePairsBitwiseEqual) {
  const auto zero = run(4, 0, 1, 2, true), one = run(4, 1, 1, 2, true);
  const auto two = run(4, 2, 1, 2, true), three = run(4, 3, 1, 2, true);
  EXPECT_EQ(zero.losses, one.losses);
  EXPECT_EQ(two.losses, three.losses);
  expect_near(zero, two);
  expect_near(zero, run(1, 0, 8, 1, true));
}

TEST(Zero, FourMicroBatchesOfTwoEqualOneOfEight) {
  expect_near(run(1, 0, 2, 4, false), run(1, 0, 8, 1, false));
}

TEST(Zero, RecomputationIsBitwiseEqual) {
  EXPECT_EQ(run(1, 0, 8, 1, true).losses, run(1, 0, 8, 1, true, true).losses);
  EXPECT_EQ(run(4, 3, 2, 1, true).losses, run(4, 3, 2, 1, true, true).losses);
}

TEST(Zero, BucketsPrefetchPersistenceAndReuseChangeNoBit) {
  const auto reference = run(4, 3, 1, 2, true);
  EXPECT_EQ(reference.losses, run(4, 3, 1, 2, true, false, 1, [](Strategy& s) {
                                s.reduce_bucket = 1;
                                s.prefetch_elements = 0;
                              }).losses);
  EXPECT_EQ(reference.losses, run(4, 3, 1, 2, true, false, 1, [](Strategy& s) {
                                s.persistence_threshold = 100;
                                s.max_reuse_distance = 1'000'000;
                              }).losses);
  EXPECT_EQ(reference.losses, run(4, 3, 1, 2, true, false, 1, [](Strategy& s) {
                                s.persistent = {"embed.*", "body.0.*"};
                              }).losses);
  EXPECT_EQ(reference.losses, run(4, 3, 1, 2, true, false, 1, [](Strategy& s) {
                                s.overlap = false;
                                s.max_live_elements = 1;
                              }).losses);
}

// Reductions of one unit take the norm's squares along where the sum is final; those of several
// units, in large buckets, do not.
TEST(Zero, NormsAreTheSameWhereSumsTakeTheirSquaresAlong) {
  for (const int64_t accumulation : {1, 2}) {
    for (int stage = 0; stage <= 3; ++stage) {
      SCOPED_TRACE("stage " + std::to_string(stage) + ", accumulation " +
                   std::to_string(accumulation));
      const auto together = run(4, stage, 1, accumulation, true);
      const auto alone = run(4, stage, 1, accumulation, true, false, 1, [](Strategy& s) {
        s.reduce_bucket = 1;
        s.persistent = {"embed.*"};
      });
      EXPECT_EQ(together.losses, alone.losses);
      EXPECT_EQ(together.norms, alone.norms);
    }
  }
}

TEST(Zero, TwoStage1F1BEqualsOneRank) {
  const auto one = run(1, 0, 2, 4, false);
  for (const auto order : {PipelineOrder::k1F1B, PipelineOrder::kGPipe}) {
    const auto piped =
        run(2, 0, 2, 4, false, false, 2, [&](Strategy& s) { s.pipeline_order = order; });
    EXPECT_EQ(one.losses, piped.losses);
  }
  expect_near(run(4, 1, 1, 4, false, false, 2), one);
}

}  // namespace
}  // namespace vitrine::testing
