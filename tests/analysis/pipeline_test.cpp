// Stages, order and bubbles of pipelines, on hand-made facts with exact times.
#include <gtest/gtest.h>

#include "analysis/hand_made_job.h"
#include "analysis/pipeline_stages.h"

namespace vitrine {
namespace {

void message(RankFacts& rank, const char* name, int32_t peer, int64_t from, int64_t to) {
  CollectiveUse& use = add_use(rank, name, from * kMs, to * kMs, 0, 1);
  use.peer = peer;
  rank.steps.back().device.exposed_communication_ns += use.exposed_ns;
}

void work(RankFacts& rank, Phase phase, int64_t from, int64_t to) {
  rank.work.push_back({from * kMs, to * kMs, (to - from) * kMs, phase, -1});
  const auto at = static_cast<size_t>(phase);
  rank.phase_ns[at] += (to - from) * kMs;
  rank.steps.back().phase_ns[at] += (to - from) * kMs;
  rank.steps.back().device.compute_ns += (to - from) * kMs;
}

// Two stages, two micro-batches, forward 10 ms, backward 20 ms, messages of 1 ms: rank 0 computes
// 0-10, 10-20 forward and 52-72, 73-93 backward.
std::vector<RankFacts> gpipe() {
  RankFacts a = hand_made_rank(0, 2), b = hand_made_rank(1, 2);
  add_step(a, 1, 0, 93 * kMs);
  work(a, Phase::kForward, 0, 20);
  message(a, "send", 1, 10, 11);
  message(a, "send", 1, 20, 21);
  message(a, "receive", 1, 21, 52);
  work(a, Phase::kBackward, 52, 72);
  message(a, "receive", 1, 72, 73);
  work(a, Phase::kBackward, 73, 93);
  a.collectives[0].exposed_ns = 0;
  a.steps[0].device.exposed_communication_ns -= kMs;

  add_step(b, 1, 0, 72 * kMs);
  message(b, "receive", 0, 0, 11);
  work(b, Phase::kForward, 11, 21);
  message(b, "receive", 0, 21, 22);
  work(b, Phase::kForward, 22, 31);
  work(b, Phase::kBackward, 31, 51);
  message(b, "send", 0, 51, 52);
  work(b, Phase::kBackward, 52, 71);
  message(b, "send", 0, 71, 72);
  return {a, b};
}

TEST(Pipeline, BubblesAreSplitAndAddUpToTheStep) {
  const JobFacts job = measure_job(gpipe(), {}, {});
  ASSERT_TRUE(job.pipeline.has_value());
  const PipelineFacts& pipeline = *job.pipeline;
  EXPECT_EQ(pipeline.stages, 2);
  EXPECT_EQ(pipeline.micro_batches, 2);
  EXPECT_EQ(pipeline.order, "gpipe");
  EXPECT_NEAR(pipeline.ideal_bubble, 1.0 / 3, 1e-12);
  ASSERT_EQ(pipeline.by_stage.size(), 2u);
  const PipelineStage& first = pipeline.by_stage[0];
  EXPECT_EQ(first.step_ns, 93 * kMs);
  EXPECT_EQ(first.compute_ns, 60 * kMs);
  // Received 21-52, sent at 51; the second message was there in time.
  EXPECT_EQ(first.bubble_ns, 30 * kMs);
  EXPECT_EQ(first.transfer_ns, 3 * kMs);
  EXPECT_EQ(first.other_ns, 0);
  // (p - 1) times the mean forward and backward of a micro-batch, (30 + 29) / 2 = 29.5 ms less
  // rounding: 10 + 20, 9.5 + 19.5.
  EXPECT_EQ(first.schedule_ns, 29'500'000);
  EXPECT_EQ(first.waiting_ns, 500'000);
  const PipelineStage& last = pipeline.by_stage[1];
  EXPECT_EQ(last.bubble_ns, 10 * kMs);
  EXPECT_EQ(last.waiting_ns, 0);
  for (const PipelineStage& stage : pipeline.by_stage) {
    EXPECT_EQ(stage.compute_ns + stage.bubble_ns + stage.host_bound_ns + stage.transfer_ns +
                  stage.other_ns,
              stage.step_ns);
    EXPECT_EQ(stage.schedule_ns + stage.waiting_ns, stage.bubble_ns);
  }
  EXPECT_EQ(job.layout.pipeline, 2);
  EXPECT_EQ(job.layout.confidence, "likely");
}

TEST(Pipeline, CellsAreCutAtTheMessages) {
  const JobFacts job = measure_job(gpipe(), {}, {});
  const auto find = [&](int32_t stage, int32_t micro_batch, bool forward) {
    for (const PipelineFacts::Cell& cell : job.pipeline->cells) {
      if (cell.stage == stage && cell.micro_batch == micro_batch && cell.forward == forward) {
        return std::pair{cell.begin_ns / kMs, cell.end_ns / kMs};
      }
    }
    return std::pair<int64_t, int64_t>{-1, -1};
  };
  using Times = std::pair<int64_t, int64_t>;
  EXPECT_EQ(job.pipeline->cells.size(), 8u);
  EXPECT_EQ(find(0, 0, true), (Times{0, 10}));
  EXPECT_EQ(find(0, 1, true), (Times{10, 20}));
  EXPECT_EQ(find(0, 0, false), (Times{52, 72}));
  EXPECT_EQ(find(0, 1, false), (Times{73, 93}));
  EXPECT_EQ(find(1, 0, true), (Times{11, 21}));
  EXPECT_EQ(find(1, 1, true), (Times{22, 31}));
  EXPECT_EQ(find(1, 0, false), (Times{31, 51}));
  EXPECT_EQ(find(1, 1, false), (Times{52, 71}));
}

TEST(Pipeline, IdlenessOfTheOwnHostIsNoBubble) {
  std::vector<RankFacts> ranks = gpipe();
  StepFacts& step = ranks[1].steps[0];
  step.device.span_ns += 8 * kMs;
  step.device_end_ns += 8 * kMs;
  step.device.idle_ns = step.time.idle_ns = 8 * kMs;
  step.idle_by_cause[static_cast<size_t>(IdleCause::kHostLaunch)] = 6 * kMs;
  step.idle_by_cause[static_cast<size_t>(IdleCause::kStreamWait)] = 2 * kMs;
  const JobFacts job = measure_job(ranks, {}, {});
  EXPECT_EQ(job.pipeline->by_stage[1].host_bound_ns, 6 * kMs);
  EXPECT_EQ(job.pipeline->by_stage[1].bubble_ns, 12 * kMs);
}

TEST(Pipeline, ForwardAndBackwardInTurnOnTheLastStageAre1F1B) {
  RankFacts a = hand_made_rank(0, 2), b = hand_made_rank(1, 2);
  add_step(a, 1, 0, 100 * kMs);
  work(a, Phase::kForward, 0, 20);
  message(a, "send", 1, 10, 11);
  message(a, "send_receive", 1, 20, 42);
  work(a, Phase::kBackward, 42, 62);
  message(a, "receive", 1, 62, 72);
  work(a, Phase::kBackward, 72, 92);
  add_step(b, 1, 0, 75 * kMs);
  message(b, "receive", 0, 0, 11);
  work(b, Phase::kForward, 11, 21);
  work(b, Phase::kBackward, 21, 41);
  message(b, "send_receive", 0, 41, 42);
  work(b, Phase::kForward, 42, 52);
  work(b, Phase::kBackward, 52, 71);
  message(b, "send", 0, 71, 72);
  const JobFacts job = measure_job({a, b}, {}, {});
  ASSERT_TRUE(job.pipeline.has_value());
  EXPECT_EQ(job.pipeline->order, "1f1b");
  EXPECT_EQ(job.pipeline->micro_batches, 2);
  EXPECT_EQ(job.pipeline->cells.size(), 8u);
}

TEST(Pipeline, StagesOfSeveralReplicasFollowTheirMessages) {
  std::vector<RankFacts> ranks;
  for (int32_t r = 0; r < 6; ++r) {
    ranks.push_back(hand_made_rank(r, 6));
    add_step(ranks.back(), 1, 0, 100 * kMs);
  }
  // Ranks 0-2-4 and 1-3-5 are chains.
  for (int32_t r = 0; r < 4; ++r) {
    message(ranks[static_cast<size_t>(r + 2)], "receive", r, 10 * (r / 2), 10 * (r / 2) + 5);
    message(ranks[static_cast<size_t>(r)], "send", r + 2, 10 * (r / 2) + 4, 10 * (r / 2) + 5);
  }
  const auto map = find_stages(ranks);
  ASSERT_TRUE(map.has_value());
  EXPECT_EQ(map->stages, 3);
  EXPECT_EQ(map->stage_of, (std::vector<int32_t>{0, 0, 1, 1, 2, 2}));
}

// Three stages of two chunks, three micro-batches: activations go round twice.
TEST(Pipeline, MessagesFromTheLastStageToTheFirstAreChunksOfAnInterleavedOrder) {
  std::vector<RankFacts> ranks;
  for (int32_t r = 0; r < 3; ++r) {
    ranks.push_back(hand_made_rank(r, 3));
    add_step(ranks.back(), 1, 0, 200 * kMs);
  }
  int64_t time = 0;
  for (int32_t chunk = 0; chunk < 2; ++chunk) {
    for (int32_t r = 0; r < 3; ++r) {
      if (chunk == 1 && r == 2) continue;  // the loss is here
      const int32_t next = (r + 1) % 3;
      for (int32_t micro_batch = 0; micro_batch < 3; ++micro_batch, time += 2) {
        message(ranks[static_cast<size_t>(r)], "send", next, time, time + 1);
        message(ranks[static_cast<size_t>(next)], "receive", r, time, time + 1);
      }
    }
  }
  const JobFacts job = measure_job(ranks, {}, {});
  ASSERT_TRUE(job.pipeline.has_value());
  EXPECT_EQ(job.pipeline->stages, 3);
  EXPECT_EQ(job.pipeline->micro_batches, 3);
  EXPECT_EQ(job.pipeline->order, "interleaved");
  EXPECT_NEAR(job.pipeline->ideal_bubble, 2.0 / 8, 1e-12);
}

TEST(Pipeline, ExchangesInARingAreNoPipeline) {
  std::vector<RankFacts> ranks;
  for (int32_t r = 0; r < 4; ++r) {
    ranks.push_back(hand_made_rank(r, 4));
    add_step(ranks.back(), 1, 0, 100 * kMs);
    message(ranks.back(), "send_receive", (r + 1) % 4, 1, 2);
  }
  EXPECT_FALSE(measure_job(ranks, {}, {}).pipeline.has_value());
}

}  // namespace
}  // namespace vitrine
