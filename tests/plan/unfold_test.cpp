// The unfolded simulation and the folded prediction agree.
#include "plan/unfold.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "plan/step_strategy.h"

namespace vitrine {
namespace {

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
      ClusterStrategy s = step_strategy(8, 8, 8, zero);
      s.pipeline = kind;
      s.interleave = kind == PipelineKind::kInterleaved ? 3 : 1;
      expect_agreement(planner, s, pipeline_name(kind));
    }
  }
}

TEST(Unfold, AgreesOnUnequalStagesAndWithoutOverlap) {
  Planner planner(model_shape("llama3-405b"), make_cluster("1024xH100"));
  ClusterStrategy s = step_strategy(8, 8, 16, 1);  // 126 layers on 16 stages
  expect_agreement(planner, s, "126 layers on 16 stages");
  s.overlap_reduce = s.overlap_gather = false;
  expect_agreement(planner, s, "no overlap");
}

TEST(Unfold, AgreesOnZero3WithAndWithoutExposedCommunication) {
  for (const char* cluster : {"8xH100", "64xA100-80GB", "64xV100"}) {
    Planner planner(model_shape("llama3-8b"), make_cluster(cluster));
    for (const int64_t micros : {1, 4}) {
      for (const bool overlap : {true, false}) {
        ClusterStrategy s = step_strategy(planner.cluster().gpus, 1, 1, 3);
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
      ClusterStrategy s = step_strategy(8, 1, 4, 3);
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
  const ClusterStrategy s = step_strategy(4, 1, 4, 1);
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

// Where no stage waits for the others' gradients a step is as long as its longest stage, and steps
// of a stage follow each other without a gap of the pipeline's filling.
TEST(Unfold, ZeroBubbleStepsEndStageByStage) {
  Planner planner(model_shape("gpt-175b"), make_cluster("64xA100-80GB"));
  ClusterStrategy s = step_strategy(1, 8, 8, 1);
  s.pipeline = PipelineKind::kZbH2;
  s.global_batch = 24;
  StepPieces pieces;
  const double step = planner.predict(s, pieces).time.step_ns;
  const UnfoldedStep unfolded = unfold_step(s, pieces);
  EXPECT_EQ(unfolded.begin_ns.front(), 0);
  double last = 0, longest = 0;
  for (size_t stage = 0; stage < 8; ++stage) {
    EXPECT_GT(unfolded.begin_ns[stage] + (stage == 0 ? 1 : 0),
              unfolded.begin_ns[std::max<size_t>(stage, 1) - 1]);
    longest = std::max(longest, unfolded.work_end_ns[stage] - unfolded.begin_ns[stage]);
    last = std::max(last, unfolded.work_end_ns[stage]);
  }
  EXPECT_GE(step, longest);
  EXPECT_LT(step, last);
  s.pipeline = PipelineKind::k1F1B;
  planner.predict(s, pieces);
  for (const double begin : unfold_step(s, pieces).begin_ns) EXPECT_EQ(begin, 0);
}

}  // namespace
}  // namespace vitrine
