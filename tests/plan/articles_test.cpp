// The articles' cases with their arithmetic (docs/howto/plan.md).
#include <gtest/gtest.h>

#include "plan/predict.h"
#include "plan/zero_tables.h"

namespace vitrine {
namespace {

StageMemory memory_of(const char* model, const char* cluster, const ClusterStrategy& s) {
  Planner planner(model_shape(model), make_cluster(cluster));
  return planner.memory(s).front();
}

double states(const StageMemory& m) {
  double sum = 0;
  for (const MemoryCategory c :
       {MemoryCategory::kParameters, MemoryCategory::kGradients, MemoryCategory::kOptimizer}) {
    sum += static_cast<double>(m.bytes[static_cast<size_t>(c)]);
  }
  return sum;
}

ClusterStrategy zero(int stage, int data) {
  ClusterStrategy s;
  s.mesh.data = data;
  s.zero_stage = stage;
  s.sequence = 2048;
  s.global_batch = data;
  s.gradient_bytes = s.reduce_bytes = 2;
  return s;
}

// The estimate printed as 42 GB: weights and gradients whole, the optimizer shared, 20 % on top.
TEST(Articles, SevenBillionOnEightCardsAtStageTwoIs46AndNot42) {
  const double whole = (14 + 14 + 84.0 / 8) * 1.2;
  EXPECT_DOUBLE_EQ(whole, 46.2);
  // ZeRO-2 shards the gradients too: 2 + (2 + 12) / 8 bytes a parameter.
  EXPECT_DOUBLE_EQ((14 + 14.0 / 8 + 84.0 / 8) * 1.2, 31.5);
  EXPECT_DOUBLE_EQ(zero_state_bytes(7e9, 8, 2), 14e9 + (14e9 + 84e9) / 8);
}

TEST(Articles, ThePlannersStatesAreZerosTableOneForAnyStage) {
  Planner planner(model_shape("llama3-8b"), make_cluster("8xH100"));
  const auto parameters = static_cast<double>(planner.model().parameters());
  for (int stage = 0; stage <= 3; ++stage) {
    const StageMemory m = planner.memory(zero(stage, 8)).front();
    EXPECT_NEAR(states(m) / zero_state_bytes(parameters, 8, stage), 1, 1e-3) << stage;
  }
}

TEST(Articles, ThirtyBillionAtStageTwoNeeds64CardsAndAtStageThreeEight) {
  // 66.8 GB of states at stage 2 on 64 ranks, 60 of them weights: 80 GB cards hold that.
  EXPECT_NEAR(zero_state_bytes(30e9, 64, 2), 60e9 + 14 * 30e9 / 64, 1);
  EXPECT_LT(zero_state_bytes(30e9, 64, 2), 80e9);
  // On eight: 112 GB at stage 2, 60 GB at stage 3.
  EXPECT_GT(zero_state_bytes(30e9, 8, 2), 80e9);
  EXPECT_NEAR(zero_state_bytes(30e9, 8, 3), 60e9, 1);
  ClusterStrategy two = zero(2, 64), three = zero(3, 8);
  two.recompute = three.recompute = Recompute::kFull;
  EXPECT_GT(memory_of("opt-30b", "64xA100-80GB", two).total(), 65e9);
  EXPECT_LT(memory_of("opt-30b", "64xA100-80GB", two).total(), 80e9);
  EXPECT_LT(memory_of("opt-30b", "8xA100-80GB", three).total(), 80e9);
  two.mesh.data = 8;
  two.global_batch = 8;
  EXPECT_GT(memory_of("opt-30b", "8xA100-80GB", two).total(), 80e9);
}

TEST(Articles, A175BillionModelFitsWithZeroTensorEightAndAPipeline) {
  Planner planner(model_shape("gpt-175b"), make_cluster("128xA100-80GB"));
  ClusterStrategy s;
  s.mesh = {2, 8, 8, 1};
  s.sequence = 2048;
  s.sequence_parallel = true;
  s.global_batch = 64;
  s.recompute = Recompute::kSelective;
  EXPECT_TRUE(planner.fits(s));
  // ZeRO-1 alone, without tensor or pipeline: weights alone are 350 GB.
  ClusterStrategy alone;
  alone.mesh.data = 128;
  alone.sequence = 2048;
  alone.global_batch = 128;
  EXPECT_FALSE(planner.fits(alone));
}

// With P parameters of 2 bytes, a step of one micro-batch sends about 2 P elements under DDP,
// ZeRO-1 and ZeRO-2 and 3 P under ZeRO-3, (n - 1) / n of each.
TEST(Articles, VolumeOfAStepIsTwoModelsUnderDdpAndZeroTwoAndThreeUnderZeroThree) {
  Planner planner(model_shape("llama3-8b"), make_cluster("8xH100"));
  const double model = 2 * static_cast<double>(planner.model().parameters()) * 7 / 8;
  for (int stage = 0; stage <= 3; ++stage) {
    const StepTraffic t = planner.predict(zero(stage, 8)).traffic;
    EXPECT_NEAR(t.total() / model, stage == 3 ? 3 : 2, 0.01) << stage;
  }
}

}  // namespace
}  // namespace vitrine
