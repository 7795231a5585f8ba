// The search: nothing that belongs on its lists is left out, and what is left out has a reason.
#include "plan/search.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "plan/advice.h"
#include "plan/search_bound.h"

namespace vitrine {
namespace {

SearchSpace space_of(int64_t batch, int64_t sequence) {
  SearchSpace space;
  space.base.global_batch = batch;
  space.base.sequence = sequence;
  return space;
}

double peak(Planner& planner, const ClusterStrategy& s) {
  double most = 0;
  for (const StageMemory& stage : planner.memory(s)) most = std::max(most, stage.total());
  return most;
}

// Every layout of a small cluster, tried one by one without any pruning.
TEST(Search, FindsTheBestOfAllStrategiesThatPlainEnumerationFinds) {
  Planner planner(model_shape("llama3-8b"), make_cluster("16xH100"));
  SearchSpace space = space_of(32, 4096);
  space.context = 1;
  space.offload = false;
  const SearchResult found = search_strategies(planner, space, 3);
  ASSERT_FALSE(found.best.empty());
  double best = 1e300;
  for (const int tensor : {1, 2, 4, 8, 16}) {
    for (const int pipeline : {1, 2, 4, 8, 16}) {
      if (tensor * pipeline > 16) continue;
      for (const int64_t micro : {1, 2, 4, 8, 16, 32}) {
        for (int zero = 0; zero <= 3; ++zero) {
          for (const Recompute r : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
            for (const PipelineKind kind :
                 {PipelineKind::k1F1B, PipelineKind::kZbH1, PipelineKind::kZbH2}) {
              ClusterStrategy s = space.base;
              s.mesh = {16 / (tensor * pipeline), tensor, pipeline, 1};
              s.sequence_parallel = tensor > 1;
              s.micro_batch = micro;
              s.zero_stage = zero;
              s.recompute = r;
              s.pipeline = kind;
              try {
                const Prediction p = planner.predict(s);
                if (p.fits) best = std::min(best, p.time.step_ns);
              } catch (const ConfigError&) {
                continue;
              }
            }
          }
        }
      }
    }
  }
  EXPECT_LE(found.best.front().step_ns, best * (1 + 1e-12));
}

TEST(Search, TheLowerBoundIsNeverAboveThePrediction) {
  Planner planner(model_shape("gpt-175b"), make_cluster("512xA100-80GB"));
  for (const PipelineKind kind : {PipelineKind::kGPipe,
                                  PipelineKind::k1F1B,
                                  PipelineKind::kInterleaved,
                                  PipelineKind::kZbH1,
                                  PipelineKind::kZbH2,
                                  PipelineKind::kZbV,
                                  PipelineKind::kZb1p,
                                  PipelineKind::kZb2p}) {
    for (const int pipeline : {1, 4, 8, 16}) {
      for (const int zero : {0, 1, 3}) {
        for (const int64_t batch : {512, 1536}) {
          ClusterStrategy s;
          s.mesh = {512 / 8 / pipeline, 8, pipeline, 1};
          s.sequence = 2048;
          s.global_batch = batch;
          s.zero_stage = zero;
          s.pipeline = kind;
          if (pipeline == 1 && kind != PipelineKind::k1F1B) continue;
          if (kind == PipelineKind::kInterleaved) s.interleave = 3;
          const double step = planner.predict(s).time.step_ns;
          EXPECT_LE(least_step_ns(planner, s), step * (1 + 1e-9))
              << pipeline_name(kind) << " " << pipeline << " stages, ZeRO-" << zero;
          EXPECT_GT(least_step_ns(planner, s), 0.1 * step);
        }
      }
    }
  }
}

TEST(Search, EveryListedStrategyFitsAndIsInOrder) {
  Planner planner(model_shape("llama3-70b"), make_cluster("64xH100"));
  const SearchResult found = search_strategies(planner, space_of(256, 8192), 5);
  ASSERT_EQ(found.best.size(), 5u);
  for (size_t i = 0; i < found.best.size(); ++i) {
    const Candidate& c = found.best[i];
    EXPECT_TRUE(planner.fits(c.strategy));
    EXPECT_DOUBLE_EQ(peak(planner, c.strategy), c.memory_bytes);
    EXPECT_GE(c.step_ns, c.least_ns * (1 - 1e-9));
    EXPECT_GE(c.step_ns, found.best[i > 0 ? i - 1 : 0].step_ns);
  }
  for (size_t i = 1; i < found.pareto.size(); ++i) {
    EXPECT_GT(found.pareto[i].step_ns, found.pareto[i - 1].step_ns);
    EXPECT_LT(found.pareto[i].memory_bytes, found.pareto[i - 1].memory_bytes);
  }
  size_t lost = 0;
  for (const Loss& loss : found.losses) lost += loss.count;
  EXPECT_LE(lost, found.considered);
  EXPECT_GE(lost + found.best.size(), found.considered);
}

TEST(Search, HeldFieldsAreHeld) {
  Planner planner(model_shape("llama3-70b"), make_cluster("64xH100"));
  SearchSpace space = space_of(256, 8192);
  space.tensor = 4;
  space.recompute = Recompute::kFull;
  space.zero_stage = 1;
  for (const Candidate& c : search_strategies(planner, space, 4).best) {
    EXPECT_EQ(c.strategy.mesh.tensor, 4);
    EXPECT_EQ(c.strategy.recompute, Recompute::kFull);
    EXPECT_EQ(c.strategy.zero_stage, 1);
  }
}

TEST(Search, OffloadsOnlyWhereNothingElseFits) {
  Planner planner(model_shape("llama3-70b"), make_cluster("8xH100"));
  const SearchResult found = search_strategies(planner, space_of(8, 4096), 3);
  ASSERT_FALSE(found.best.empty());
  // 70e9 x 18 bytes are more than 8 x 80 GB: without the host nothing fits.
  for (const Candidate& c : found.best) {
    EXPECT_NE(c.strategy.optimizer_tier, Tier::kDevice);
  }
  SearchSpace device = space_of(8, 4096);
  device.offload = false;
  EXPECT_TRUE(search_strategies(planner, device, 3).best.empty());
}

TEST(Search, AJobThatNothingDividesIsRefusedWithTheArithmetic) {
  Planner planner(model_shape("llama3-8b"), make_cluster("64xH100"));
  SearchSpace space = space_of(32, 4096);
  space.tensor = 7;
  try {
    search_strategies(planner, space, 3);
    FAIL() << "7 tensor ranks divide neither 64 cards nor 32 heads";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("7"));
  }
}

TEST(Advice, PartsAddUpToTheStep) {
  Planner planner(model_shape("gpt-175b"), make_cluster("128xA100-80GB"));
  for (const int zero : {0, 1, 3}) {
    ClusterStrategy s;
    s.mesh = {2, 8, 8, 1};
    s.sequence = 2048;
    s.global_batch = 64;
    s.zero_stage = zero;
    const Prediction p = planner.predict(s);
    double sum = 0;
    for (const StepPart& part : step_parts(p)) sum += part.ns;
    EXPECT_NEAR(sum, p.time.step_ns, 1e-5 * p.time.step_ns) << zero;
  }
}

TEST(Advice, ChangesThatAreOfferedFitAndAreFaster) {
  Planner planner(model_shape("llama3-8b"), make_cluster("64xH100"));
  ClusterStrategy s;
  s.mesh = {8, 8, 1, 1};
  s.sequence = 8192;
  s.global_batch = 64;
  s.recompute = Recompute::kFull;
  const Prediction before = planner.predict(s);
  const std::vector<PlanChange> changes = nearest_changes(planner, s, before);
  ASSERT_FALSE(changes.empty());
  for (const PlanChange& c : changes) {
    EXPECT_TRUE(c.prediction.fits) << c.what;
    EXPECT_LT(c.prediction.time.step_ns, before.time.step_ns) << c.what;
  }
}

TEST(Advice, WhatDoesNotFitGetsChangesThatDo) {
  Planner planner(model_shape("llama3-8b"), make_cluster("8xA100-40GB"));
  ClusterStrategy s;
  s.mesh = {8, 1, 1, 1};
  s.sequence = 8192;
  s.global_batch = 8;
  s.zero_stage = 2;
  const Prediction before = planner.predict(s);
  ASSERT_FALSE(before.fits);
  EXPECT_THAT(limit_sentence(planner, s, before), testing::StartsWith("Memory:"));
  const std::vector<PlanChange> changes = nearest_changes(planner, s, before);
  ASSERT_FALSE(changes.empty());
  for (const PlanChange& c : changes) {
    EXPECT_TRUE(c.prediction.fits || c.memory_bytes < 0) << c.what;
  }
}

}  // namespace
}  // namespace vitrine
