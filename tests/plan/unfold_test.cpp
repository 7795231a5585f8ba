// The unfolded simulation and the folded prediction agree.
#include "plan/unfold.h"

#include <gtest/gtest.h>

#include "core/error.h"

namespace vitrine {
namespace {

ClusterStrategy strategy(int data, int tensor, int pipeline, int zero) {
  ClusterStrategy s;
  s.mesh = {data, tensor, pipeline, 1};
  s.sequence = 2048;
  s.sequence_parallel = tensor > 1;
  s.zero_stage = zero;
  s.micro_batch = 1;
  s.global_batch = int64_t{data} * 4 * pipeline;
  return s;
}

void expect_agreement(Planner& planner, const ClusterStrategy& s, const char* what) {
  StepPieces pieces;
  const double folded = planner.predict(s, pieces).time.step_ns;
  const double unfolded = unfold_step(s, pieces).step_ns;
  EXPECT_NEAR(unfolded / folded, 1, 1e-3)
      << what << ": folded " << folded * 1e-6 << " ms, unfolded " << unfolded * 1e-6 << " ms";
}

TEST(Unfold, AgreesOnEveryScheduleUnderZeroToTwoToATenthOfAPercent) {
  Planner planner(model_shape("gpt-175b"), make_cluster("512xA100-80GB"));
  for (const PipelineKind kind : {PipelineKind::kGPipe,
                                  PipelineKind::k1F1B,
                                  PipelineKind::kInterleaved,
                                  PipelineKind::kZbH1,
                                  PipelineKind::kZbH2,
                                  PipelineKind::kZbV,
                                  PipelineKind::kZb1p,
                                  PipelineKind::kZb2p}) {
    for (const int zero : {0, 1, 2}) {
      ClusterStrategy s = strategy(8, 8, 8, zero);
      s.pipeline = kind;
      s.interleave = kind == PipelineKind::kInterleaved ? 3 : 1;
      expect_agreement(planner, s, pipeline_name(kind));
    }
  }
}

TEST(Unfold, AgreesOnUnequalStagesAndWithoutOverlap) {
  Planner planner(model_shape("llama3-405b"), make_cluster("1024xH100"));
  ClusterStrategy s = strategy(8, 8, 16, 1);  // 126 layers on 16 stages
  expect_agreement(planner, s, "126 layers on 16 stages");
  s.overlap_reduce = s.overlap_gather = false;
  expect_agreement(planner, s, "no overlap");
}

TEST(Unfold, AgreesOnZero3WithAndWithoutExposedCommunication) {
  for (const char* cluster : {"8xH100", "64xA100-80GB", "64xV100"}) {
    Planner planner(model_shape("llama3-8b"), make_cluster(cluster));
    for (const int64_t micros : {1, 4}) {
      for (const bool overlap : {true, false}) {
        ClusterStrategy s = strategy(planner.cluster().gpus, 1, 1, 3);
        if (std::string(cluster) == "64xV100") s.precision = Precision::kF16;
        s.global_batch = micros * s.mesh.data;
        s.overlap_gather = s.overlap_reduce = overlap;
        s.reduce_each_micro_batch = true;
        expect_agreement(planner, s, cluster);
      }
    }
  }
}

// Passes of the stages' micro-batches share one lane of communication a rank; what sticks out
// between passes moves the pipeline, which the folded prediction counts by pass.
TEST(Unfold, AgreesOnZero3WithAPipeline) {
  Planner planner(model_shape("llama3-8b"), make_cluster("32xH100"));
  for (const PipelineKind kind : {PipelineKind::kGPipe, PipelineKind::k1F1B}) {
    for (const bool overlap : {true, false}) {
      ClusterStrategy s = strategy(8, 1, 4, 3);
      s.pipeline = kind;
      s.sequence = 8192;
      s.reduce_each_micro_batch = true;
      s.overlap_gather = s.overlap_reduce = overlap;
      expect_agreement(planner, s, pipeline_name(kind));
    }
  }
}

TEST(Unfold, NoTwoEventsOfALaneOverlapAndNothingIsLost) {
  Planner planner(model_shape("llama3-8b"), make_cluster("16xH100"));
  const ClusterStrategy s = strategy(4, 1, 4, 1);
  StepPieces pieces;
  planner.predict(s, pieces);
  const UnfoldedStep step = unfold_step(s, pieces);
  size_t forwards = 0, sends = 0;
  for (size_t i = 0; i < step.events.size(); ++i) {
    const StepEvent& e = step.events[i];
    forwards += e.work == StepWork::kForward ? 1 : 0;
    sends += e.work == StepWork::kSend ? 1 : 0;
    if (i == 0 || step.events[i - 1].stage != e.stage || step.events[i - 1].lane != e.lane) {
      continue;
    }
    EXPECT_GE(e.begin_ns, step.events[i - 1].end_ns);
  }
  // 32 layers, embedding and head; 16 micro-batches; three boundaries both ways.
  EXPECT_EQ(forwards, 34u * 16);
  EXPECT_EQ(sends, 3u * 16 * 2);
}

TEST(PredictedTimelines, StepsLastWhatIsPredictedAndMemoryPeaksThere) {
  Planner planner(model_shape("llama3-8b"), make_cluster("16xH100"));
  const ClusterStrategy s = strategy(4, 1, 4, 1);
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

}  // namespace
}  // namespace vitrine
