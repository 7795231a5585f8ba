// Phases, recomputation, launches, collectives, steps and the outline, by timelines made by hand.
#include <gtest/gtest.h>

#include "analysis/rank_facts.h"
#include "hand_trace.h"
#include "timeline/synthetic_run.h"

namespace vitrine {
namespace {

int64_t of(const std::array<int64_t, kPhases>& phases, Phase phase) {
  return phases[static_cast<size_t>(phase)];
}

TEST(MeasureRank, AnEmptyTimelineHasNoFacts) {
  const RankFacts facts = measure_rank(RankTimeline{});
  EXPECT_FALSE(facts.device_work);
  EXPECT_EQ(facts.total.span_ns, 0);
  EXPECT_TRUE(facts.steps.empty());
  EXPECT_TRUE(facts.kernels.empty());
  RankTimeline lanes_only;
  lanes_only.lanes = {{"stream 7", true, 7, 0}};
  EXPECT_EQ(measure_rank(lanes_only).total.span_ns, 0);
}

TEST(MeasureRank, PhasesComeFromRegionsAutogradsOperatorsAndOptimizers) {
  HandTrace trace;
  trace.host(SpanKind::kRegion, "forward", 0, 100);
  trace.kernel("k", 10, 40, 5);
  trace.host(SpanKind::kRegion, "backward", 100, 300);
  trace.host(SpanKind::kOperation,
             "autograd::engine::evaluate_function: MmBackward0",
             110,
             200,
             HandTrace::kAutograd);
  trace.kernel("k", 120, 170, 115, HandTrace::kStream, HandTrace::kAutograd);
  trace.kernel("k", 210, 220, 205);
  trace.host(SpanKind::kRegion, "Optimizer.step#AdamW.step", 300, 400);
  trace.kernel("k", 310, 317, 305);
  trace.kernel("k", 500, 502, 450);  // in no context
  const RankFacts facts = measure_rank(trace.timeline);
  EXPECT_EQ(of(facts.phase_ns, Phase::kForward), 30 * kUs);
  EXPECT_EQ(of(facts.phase_ns, Phase::kBackward), 60 * kUs);
  EXPECT_EQ(of(facts.phase_ns, Phase::kOptimizer), 7 * kUs);
  EXPECT_EQ(of(facts.phase_ns, Phase::kOther), 2 * kUs);
  ASSERT_FALSE(facts.notes.empty());
  EXPECT_NE(facts.notes.back().find("backward by autograd"), std::string::npos);
}

TEST(MeasureRank, WithoutRegionsOperatorsThatLaunchAreForward) {
  HandTrace trace;
  trace.host(SpanKind::kOperation, "aten::mm", 0, 20);
  trace.kernel("k", 10, 40, 5);
  trace.host(SpanKind::kOperation, "AddmmBackward", 50, 90, HandTrace::kAutograd);
  trace.host(SpanKind::kOperation, "aten::mm", 51, 80, HandTrace::kAutograd);
  trace.kernel("k", 60, 90, 55, HandTrace::kStream, HandTrace::kAutograd);
  trace.host(SpanKind::kOperation, "aten::_foreach_add_", 100, 120);
  trace.kernel("k", 110, 120, 105);
  const RankFacts facts = measure_rank(trace.timeline);
  EXPECT_EQ(of(facts.phase_ns, Phase::kForward), 30 * kUs);
  EXPECT_EQ(of(facts.phase_ns, Phase::kBackward), 30 * kUs);
  EXPECT_EQ(of(facts.phase_ns, Phase::kOptimizer), 10 * kUs);
}

// One node of the graph in which a forward is done again, then its own backward.
void add_checkpointed_node(HandTrace& trace, bool whole_forward) {
  const int32_t thread = HandTrace::kAutograd;
  trace.host(
      SpanKind::kOperation, "autograd::engine::evaluate_function: MmBackward0", 0, 300, thread);
  trace.host(SpanKind::kOperation, "MmBackward0", 1, 299, thread);
  trace.host(SpanKind::kOperation, "aten::linear", 10, 30, thread);
  trace.kernel("gemm", 20, 40, 15, HandTrace::kStream, thread);
  trace.host(SpanKind::kOperation, "aten::add", 50, 60, thread);
  trace.kernel("add", 60, 67, 52, HandTrace::kStream, thread);
  const char* second = whole_forward ? "aten::gelu" : "aten::linear";
  trace.host(SpanKind::kOperation, second, 70, 90, thread);
  trace.kernel("gelu", 80, 85, 75, HandTrace::kStream, thread);
  trace.host(SpanKind::kOperation, "aten::mm", 200, 230, thread);
  trace.kernel("gemm", 220, 290, 210, HandTrace::kStream, thread);
}

TEST(MeasureRank, AForwardInsideBackwardIsRecomputation) {
  HandTrace trace;
  add_checkpointed_node(trace, true);
  const RankFacts facts = measure_rank(trace.timeline);
  EXPECT_EQ(facts.recompute_ns, (20 + 7 + 5) * kUs);
  EXPECT_EQ(facts.recompute_evidence,
            "forward operators launched inside backward: aten::linear, aten::gelu");
  EXPECT_EQ(of(facts.phase_ns, Phase::kBackward), (20 + 7 + 5 + 70) * kUs);
}

TEST(MeasureRank, OneForwardOperatorInAHandWrittenBackwardIsNone) {
  HandTrace trace;
  add_checkpointed_node(trace, false);
  const RankFacts facts = measure_rank(trace.timeline);
  EXPECT_EQ(facts.recompute_ns, 0);
  EXPECT_EQ(facts.recompute_evidence, "");
}

TEST(MeasureRank, OwnRunsSayThePhaseAndTheRecomputation) {
  RankTimeline timeline;
  timeline.lanes = {{"compute", true, 0}, {"host", false, 1}};
  add_span(timeline, 0, 100, SpanKind::kForward, "forward body.0", 0, 0, 3, "body.0");
  add_span(timeline, 100, 90, SpanKind::kRecompute, "recompute body.0", 0, 0, 3, "body.0");
  add_span(timeline, 190, 200, SpanKind::kBackward, "backward body.0", 0, 0, 3, "body.0");
  add_span(timeline, 390, 10, SpanKind::kOptimizer, "update", 0, 0);
  const RankFacts facts = measure_rank(timeline);
  EXPECT_EQ(facts.origin, "Vitrine");
  EXPECT_EQ(facts.phase_ns, (std::array<int64_t, kPhases>{100, 290, 10, 0}));
  EXPECT_EQ(facts.recompute_ns, 90);
  EXPECT_EQ(facts.recompute_evidence, "spans of recomputation");
  ASSERT_EQ(facts.work.size(), 3u);
  EXPECT_EQ(facts.work[1].micro_batch, 3);
  EXPECT_EQ(facts.work[1].busy_ns, 290);
}

TEST(MeasureRank, OwnRunsStepsAreTheirsAndAddUp) {
  for (const RankTimeline& timeline : synthetic_run().ranks) {
    const RankFacts facts = measure_rank(timeline);
    ASSERT_EQ(facts.steps.size(), 4u);
    EXPECT_EQ(facts.steps[2].name, "step 2");
    int64_t data = 0;
    for (const StepFacts& step : facts.steps) {
      EXPECT_GT(step.time.compute_ns, 0);
      data += step.data_ns;
    }
    EXPECT_GT(data, 0);
    // Only the slow third batch is longer than the gathers that run meanwhile.
    EXPECT_GT(facts.steps[2].idle_by_cause[static_cast<size_t>(IdleCause::kDataLoading)], 0);
    EXPECT_EQ(of(facts.phase_ns, Phase::kForward) + of(facts.phase_ns, Phase::kBackward) +
                  of(facts.phase_ns, Phase::kOptimizer),
              facts.total.compute_ns);
    EXPECT_EQ(facts.groups.size(), 1u);
    int64_t gathers = 0;  // a block is gathered once for forward and once for backward
    for (const CollectiveUse& use : facts.collectives) {
      if (use.name == "reduce_scatter") {
        EXPECT_EQ(use.phase, Phase::kBackward);
        continue;
      }
      ASSERT_NE(use.phase, Phase::kOther);
      gathers += use.phase == Phase::kForward ? 1 : -1;
    }
    EXPECT_EQ(gathers, 0);
    EXPECT_FALSE(facts.collectives.empty());
  }
}

TEST(MeasureRank, LaunchesQueueAndStarvationAreExact) {
  HandTrace trace;
  trace.kernel("a", 10, 100, 0);     // finds nothing queued, an idle device
  trace.kernel("b", 100, 105, 20);   // queue 0, device busy
  trace.kernel("c", 105, 110, 30);   // b waits: queue 1
  trace.kernel("d", 110, 112, 40);   // b, c wait: queue 2
  trace.kernel("e", 202, 203, 200);  // starved
  const LaunchFacts launch = measure_rank(trace.timeline).launch;
  EXPECT_EQ(launch.launches, 5);
  EXPECT_EQ(launch.kernels, 5);
  EXPECT_EQ(launch.delay_median_ns, 65 * kUs);  // of 5, 75, 70, 65, 0
  EXPECT_EQ(launch.short_kernels, 4);
  EXPECT_EQ(launch.kernel_median_ns, 5 * kUs);
  EXPECT_EQ(launch.launch_median_ns, 5 * kUs);
  EXPECT_DOUBLE_EQ(launch.queue_mean, 3.0 / 5);
  EXPECT_EQ(launch.queue_max, 2);
  EXPECT_DOUBLE_EQ(launch.starved_share, 2.0 / 5);
  EXPECT_EQ(launch.before_launch, 0);
}

TEST(MeasureRank, KernelsBeforeTheirLaunchAreCounted) {
  HandTrace trace;
  trace.kernel("a", 10, 20, 12);
  const LaunchFacts launch = measure_rank(trace.timeline).launch;
  EXPECT_EQ(launch.before_launch, 1);
  EXPECT_EQ(launch.delay_median_ns, 0);
}

int32_t add_collective(RankTimeline& timeline,
                       const char* name,
                       const char* group,
                       std::vector<int32_t> ranks,
                       int64_t in,
                       int64_t out) {
  Collective collective;
  collective.name = timeline.strings.intern(name),
  collective.group = timeline.strings.intern(group);
  collective.ranks = std::move(ranks);
  collective.in_elements = in, collective.out_elements = out;
  collective.dtype = timeline.strings.intern("bf16");
  collective.sequence = static_cast<int64_t>(timeline.collectives.size());
  timeline.collectives.push_back(collective);
  return static_cast<int32_t>(timeline.collectives.size()) - 1;
}

TEST(MeasureRank, CollectivesSayWhatComputeDidNotHide) {
  HandTrace trace;
  trace.timeline.groups = {{"0", "default_pg", {0, 1}, 2}, {"1", "TENSOR", {}, 2}};
  trace.kernel("a", 0, 100, -20);
  trace.kernel("b", 120, 150, -10);
  const int32_t other = HandTrace::kOtherStream;
  trace.device("nccl",
               50,
               130,
               trace.call("cudaLaunchKernel", 0, 5),
               other,
               SpanKind::kReduce,
               add_collective(trace.timeline, "all_reduce", "0", {0, 1}, 1000, 1000));
  trace.device("nccl",
               140,
               200,
               trace.call("cudaLaunchKernel", 10, 15),
               other,
               SpanKind::kGather,
               add_collective(trace.timeline, "all_gather", "1", {0, 1}, 500, 1000));
  trace.device("nccl",
               200,
               210,
               trace.call("cudaLaunchKernel", 20, 25),
               other,
               SpanKind::kGather,
               add_collective(trace.timeline, "all_gather", "2", {0, 3}, 500, 1000));
  trace.device("ncclDevKernel_ReduceScatter_Sum(x)", 220, 230, 0, other, SpanKind::kReduce);
  const RankFacts facts = measure_rank(trace.timeline);
  ASSERT_EQ(facts.collectives.size(), 4u);
  EXPECT_EQ(facts.collectives[0].exposed_ns, 20 * kUs);
  EXPECT_EQ(facts.collectives[1].exposed_ns, 50 * kUs);
  EXPECT_EQ(facts.collectives[0].bytes, 2000);
  EXPECT_EQ(facts.collectives[1].bytes, 2000);
  EXPECT_EQ(facts.collectives[0].launch_ns, 0);
  EXPECT_EQ(facts.collectives[3].launch_ns, -1);
  EXPECT_EQ(facts.collectives[3].name, "reduce_scatter");
  EXPECT_EQ(facts.collectives[3].group, -1);
  ASSERT_EQ(facts.groups.size(), 3u);
  EXPECT_EQ(facts.groups[0].description, "default_pg");
  EXPECT_EQ(facts.groups[1].ranks, (std::vector<int32_t>{0, 1}));  // learnt by use
  EXPECT_EQ(facts.groups[2].name, "2");
  EXPECT_EQ(facts.collectives[2].group, 2);
  EXPECT_EQ(facts.total.exposed_communication_ns, (20 + 50 + 10 + 10) * kUs);
}

TEST(MeasureRank, AStepsDeviceWorkIsWhatItLaunchedWhereverItRan) {
  HandTrace trace;
  trace.step(4, 0, 100);
  trace.device("launched before the recording", 10, 40, 0);
  trace.kernel("a", 90, 180, 20);
  trace.device("Memcpy HtoD",
               180,
               190,
               trace.call("cudaMemcpyAsync", 30, 32),
               HandTrace::kStream,
               SpanKind::kCopy);
  trace.step(5, 100, 260);
  trace.kernel("b", 200, 250, 120);
  const RankFacts facts = measure_rank(trace.timeline);
  ASSERT_EQ(facts.steps.size(), 2u);
  EXPECT_EQ(facts.steps[0].name, "ProfilerStep#4");
  EXPECT_EQ(facts.steps[0].time.compute_ns, 40 * kUs);
  EXPECT_EQ(facts.steps[0].device.compute_ns, 90 * kUs);
  EXPECT_EQ(facts.steps[0].device_begin_ns, 90 * kUs);
  EXPECT_EQ(facts.steps[0].device_end_ns, 190 * kUs);
  EXPECT_EQ(facts.steps[0].copy_ns, 10 * kUs);
  EXPECT_EQ(facts.steps[0].kernels, 1);
  EXPECT_EQ(facts.steps[1].time.compute_ns, (80 + 50) * kUs);
  EXPECT_EQ(facts.steps[1].device.compute_ns, 50 * kUs);
}

TEST(MeasureRank, OperatorsHaveTheirOwnTimeAndDirectKernels) {
  HandTrace trace;
  trace.host(SpanKind::kOperation, "aten::linear", 0, 100);
  trace.timeline.spans.shapes.back() = trace.timeline.strings.intern("[[8, 16], [4, 16], []]");
  trace.host(SpanKind::kOperation, "aten::mm", 20, 80);
  trace.timeline.spans.shapes.back() = trace.timeline.strings.intern("[[8, 16], [16, 4]]");
  trace.kernel("gemm", 40, 90, 30);
  const RankFacts facts = measure_rank(trace.timeline);
  ASSERT_EQ(facts.operators.size(), 2u);
  EXPECT_EQ(facts.operators[0].name, "aten::mm");
  EXPECT_EQ(facts.operators[0].device_ns, 50 * kUs);
  EXPECT_EQ(facts.operators[0].shapes, "[[8, 16], [16, 4]]");
  EXPECT_EQ(facts.operators[1].host_ns, 100 * kUs);
  EXPECT_EQ(facts.operators[1].host_self_ns, 40 * kUs);
  EXPECT_EQ(facts.operators[1].device_ns, 0);
  EXPECT_DOUBLE_EQ(facts.operators[0].flops, 2.0 * 8 * 16 * 4);
  EXPECT_DOUBLE_EQ(facts.flops, 2.0 * 8 * 16 * 4);  // once, though two operators tell
  EXPECT_DOUBLE_EQ(facts.flops_covered, 1);
}

TEST(MeasureRank, TheOutlineJoinsNeighboursButNotOverATransfer) {
  HandTrace trace;
  trace.kernel("a", 0, 10, -20);
  trace.kernel("b", 15, 30, -15);
  trace.device("nccl",
               31,
               33,
               trace.call("cudaLaunchKernel", -10, -5),
               HandTrace::kStream,
               SpanKind::kReceive);
  trace.kernel("c", 34, 40, -5);
  const RankFacts facts = measure_rank(trace.timeline);
  ASSERT_EQ(facts.work.size(), 2u);
  EXPECT_EQ(facts.work[0].begin_ns, 0);
  EXPECT_EQ(facts.work[0].end_ns, 30 * kUs);
  EXPECT_EQ(facts.work[0].busy_ns, 25 * kUs);
  EXPECT_EQ(facts.work[1].busy_ns, 6 * kUs);
}

TEST(MeasureRank, TheOutlineStaysSmall) {
  HandTrace trace;
  for (int64_t i = 0; i < 50000; ++i) trace.device("k", 100 * i, 100 * i + 50, 0);
  const RankFacts facts = measure_rank(trace.timeline);
  EXPECT_LE(facts.work.size(), 20000u);
  int64_t busy = 0;
  for (const WorkPiece& piece : facts.work) busy += piece.busy_ns;
  EXPECT_EQ(busy, 50000 * 50 * kUs);
}

TEST(MeasureRank, WithoutADeviceTopLevelOperatorsAreTheWork) {
  HandTrace trace;
  trace.step(0, 0, 200);
  trace.host(SpanKind::kOperation, "aten::linear", 10, 50);
  trace.host(SpanKind::kOperation, "aten::mm", 20, 40);
  trace.host(SpanKind::kData, "enumerate(DataLoader)", 60, 120);
  trace.host(SpanKind::kOperation, "aten::stack", 70, 80);
  trace.host(SpanKind::kOperation, "aten::add", 130, 150);
  const RankFacts facts = measure_rank(trace.timeline);
  EXPECT_FALSE(facts.device_work);
  EXPECT_EQ(facts.total.compute_ns, 60 * kUs);
  EXPECT_EQ(facts.total.span_ns, 140 * kUs);
  EXPECT_EQ(facts.idle_by_cause[static_cast<size_t>(IdleCause::kDataLoading)], 60 * kUs);
  ASSERT_EQ(facts.steps.size(), 1u);
  EXPECT_EQ(facts.steps[0].time.compute_ns, 60 * kUs);
  ASSERT_FALSE(facts.notes.empty());
  EXPECT_NE(facts.notes[0].find("operators of the host count as compute"), std::string::npos);
}

TEST(MeasureRank, CopiesCountersAndKernelsAreSummed) {
  HandTrace trace;
  trace.device("Memcpy HtoD (Pinned -> Device)", 0, 10, 0, HandTrace::kStream, SpanKind::kCopy);
  trace.timeline.spans.bytes.back() = 4096;
  trace.device("Memcpy DtoH (Device -> Pageable)", 10, 12, 0, HandTrace::kStream, SpanKind::kCopy);
  trace.timeline.spans.bytes.back() = 8;
  trace.device("gemm", 20, 30, 0), trace.device("gemm", 40, 70, 0);
  const StringId power = trace.timeline.strings.intern("power");
  trace.timeline.counters = {{0, power, 100}, {1, power, 300}};
  const RankFacts facts = measure_rank(trace.timeline);
  EXPECT_EQ(facts.copy_bytes_to_host_device, (std::vector<int64_t>{8, 4096}));
  ASSERT_EQ(facts.kernels.size(), 3u);
  EXPECT_EQ(facts.kernels[0].name, "gemm");
  EXPECT_EQ(facts.kernels[0].total_ns, 40 * kUs);
  EXPECT_EQ(facts.kernels[0].min_ns, 10 * kUs);
  EXPECT_EQ(facts.kernels[0].max_ns, 30 * kUs);
  ASSERT_EQ(facts.counters.size(), 1u);
  EXPECT_DOUBLE_EQ(facts.counters[0].mean, 200);
  EXPECT_DOUBLE_EQ(facts.counters[0].max, 300);
}

}  // namespace
}  // namespace vitrine
