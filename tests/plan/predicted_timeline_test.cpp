// Predicted steps as timelines: what is predicted, and nothing that a diagnosis would misread.
#include <gtest/gtest.h>

#include <algorithm>

#include "analysis/finding.h"
#include "analysis/job_facts.h"
#include "plan/step_strategy.h"
#include "plan/unfold.h"

namespace vitrine {
namespace {

TEST(PredictedTimelines, StepsLastWhatIsPredictedAndMemoryPeaksThere) {
  Planner planner(model_shape("llama3-8b"), make_cluster("16xH100"));
  const ClusterStrategy s = step_strategy(4, 1, 4, 1);
  const Prediction p = planner.predict(s);
  const std::vector<RankTimeline> timelines = predicted_timelines(planner, s, 2);
  ASSERT_EQ(timelines.size(), 4u);
  for (size_t stage = 0; stage < timelines.size(); ++stage) {
    const RankTimeline& t = timelines[stage];
    EXPECT_EQ(t.rank, static_cast<int32_t>(stage) * 4);
    int steps = 0;
    for (size_t i = 0; i < t.spans.size(); ++i) {
      if (t.spans.kind[i] != SpanKind::kStep) continue;
      ++steps;
      const auto length = static_cast<double>(t.spans.duration_ns[i]);
      EXPECT_NEAR(length / p.time.step_ns, 1, 1e-3);
    }
    EXPECT_EQ(steps, 2);
    const auto activations = static_cast<size_t>(MemoryCategory::kActivations);
    int64_t most = 0;
    for (const MemorySample& m : t.memory) most = std::max(most, m.bytes[activations]);
    const auto predicted = static_cast<double>(p.memory[stage].bytes[activations]);
    EXPECT_NEAR(static_cast<double>(most) / predicted, 1, 0.01) << stage;
  }
}

// ZeRO-1 and ZeRO-2 gather new weights once a step, for the optimizer; ZeRO-3 gathers for forward
// what it keeps in shards. In neither does sharding fail to save memory.
TEST(PredictedTimelines, ShardedStepsAreNotDiagnosedAsShardingWithoutEffect) {
  Planner planner(model_shape("llama3-8b"), make_cluster("8xH100"));
  for (const int zero : {1, 2, 3}) {
    SCOPED_TRACE(zero);
    const ClusterStrategy s = step_strategy(8, 1, 1, zero);
    std::vector<RankFacts> ranks;
    for (const RankTimeline& t : predicted_timelines(planner, s)) ranks.push_back(measure_rank(t));
    ASSERT_EQ(ranks.size(), 1u);
    EXPECT_TRUE(ranks.front().memory.category_known);
    size_t gathers = 0;
    for (const CollectiveUse& use : ranks.front().collectives) {
      gathers += use.name.starts_with("all_gather") ? 1 : 0;
    }
    EXPECT_GT(gathers, 0u);
    const Diagnosis diagnosis = diagnose(measure_job(std::move(ranks), {}, {}));
    for (const Finding& finding : diagnosis.findings) {
      EXPECT_NE(finding.rule, "sharding_without_effect") << finding.summary;
    }
  }
}

}  // namespace
}  // namespace vitrine
