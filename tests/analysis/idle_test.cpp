// Every cause of idleness by hand-made timelines with exact numbers, and by counting every
// nanosecond of random ones.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "analysis/rank_facts.h"
#include "hand_trace.h"

namespace vitrine {
namespace {

// A kernel until 100 us, launched long before.
HandTrace busy_until_100() {
  HandTrace trace;
  trace.kernel("first", 0, 100, -20);
  return trace;
}

IdleByCause causes(std::initializer_list<std::pair<IdleCause, int64_t>> microseconds) {
  IdleByCause out{};
  for (const auto& [cause, time] : microseconds) out[static_cast<size_t>(cause)] += time * kUs;
  return out;
}

int64_t sum(const IdleByCause& idle) {
  return std::accumulate(idle.begin(), idle.end(), int64_t{0});
}

void expect_causes(const HandTrace& trace,
                   std::initializer_list<std::pair<IdleCause, int64_t>> microseconds) {
  const RankFacts facts = measure_rank(trace.timeline);
  EXPECT_EQ(facts.idle_by_cause, causes(microseconds));
  EXPECT_EQ(sum(facts.idle_by_cause), facts.total.idle_ns);
}

std::string longest_what(const HandTrace& trace) {
  const RankFacts facts = measure_rank(trace.timeline);
  return facts.gaps.empty() ? "no gap" : facts.gaps.front().what;
}

TEST(Idle, BeforeALateLaunchIsTheHostsOwnCode) {
  HandTrace trace = busy_until_100();
  trace.host(SpanKind::kOperation, "aten::mm", 290, 320);
  trace.kernel("second", 306, 400, 300);
  expect_causes(trace, {{IdleCause::kHostLaunch, 206}});
  const RankFacts facts = measure_rank(trace.timeline);
  EXPECT_EQ(facts.idle_by_what.at("host launching"), 200 * kUs);
  EXPECT_EQ(facts.idle_by_what.at("host launching: launch latency"), 6 * kUs);
  ASSERT_EQ(facts.gaps.size(), 1u);
  EXPECT_EQ(facts.gaps[0].begin_ns, 100 * kUs);
  EXPECT_EQ(facts.gaps[0].duration_ns, 206 * kUs);
  EXPECT_EQ(facts.gaps[0].what, "aten::mm");
}

TEST(Idle, ALongLaunchCallIsNamed) {
  HandTrace trace = busy_until_100();
  trace.device("second", 345, 400, trace.call("cudaLaunchKernel", 300, 340));
  expect_causes(trace, {{IdleCause::kHostLaunch, 245}});
  EXPECT_EQ(measure_rank(trace.timeline).idle_by_what.at("host launching: cudaLaunchKernel"),
            30 * kUs);
}

TEST(Idle, AfterAWaitForTheDeviceIsSynchronisation) {
  HandTrace trace = busy_until_100();
  trace.host(SpanKind::kRuntime, "cudaDeviceSynchronize", 50, 110);
  trace.kernel("second", 136, 200, 130);
  // 10 us until the call returns, 20 us of host code that the wait had held back.
  expect_causes(trace, {{IdleCause::kHostSync, 30}, {IdleCause::kHostLaunch, 6}});
  EXPECT_EQ(longest_what(trace), "cudaDeviceSynchronize");
}

TEST(Idle, AShortWaitHeldBackNoMoreThanItLasted) {
  HandTrace trace = busy_until_100();
  trace.host(SpanKind::kRuntime, "cudaStreamSynchronize", 95, 110);
  trace.kernel("second", 202, 300, 200);
  expect_causes(trace, {{IdleCause::kHostSync, 15}, {IdleCause::kHostLaunch, 87}});
}

TEST(Idle, AnOperatorThatReadsAValueBackNamesTheWait) {
  HandTrace trace = busy_until_100();
  trace.host(SpanKind::kOperation, "aten::item", 40, 120);
  trace.host(SpanKind::kOperation, "aten::_local_scalar_dense", 41, 119);
  trace.host(SpanKind::kRuntime, "cudaStreamSynchronize", 45, 118);
  trace.kernel("second", 132, 200, 130);
  expect_causes(trace, {{IdleCause::kHostSync, 30}, {IdleCause::kHostLaunch, 2}});
  EXPECT_EQ(longest_what(trace), "aten::item");
}

TEST(Idle, ACopyCallThatReturnsAfterItsCopyHasWaited) {
  HandTrace trace;
  trace.device("Memcpy DtoH (Device -> Pageable)",
               60,
               100,
               trace.call("cudaMemcpyAsync", 20, 108),
               HandTrace::kStream,
               SpanKind::kCopy);
  trace.kernel("second", 122, 200, 120);
  expect_causes(trace, {{IdleCause::kHostSync, 20}, {IdleCause::kHostLaunch, 2}});

  HandTrace queued;  // the same call, back before its copy: only slow
  queued.device("Memcpy DtoH (Device -> Pinned)",
                60,
                110,
                queued.call("cudaMemcpyAsync", 20, 108),
                HandTrace::kStream,
                SpanKind::kCopy);
  queued.kernel("second", 122, 200, 120);
  expect_causes(queued, {{IdleCause::kHostLaunch, 12}});
}

TEST(Idle, UnderDataLoadingIsDataLoading) {
  HandTrace trace = busy_until_100();
  trace.host(SpanKind::kData, "enumerate(DataLoader)", 90, 250);
  trace.kernel("second", 262, 300, 260);
  expect_causes(trace, {{IdleCause::kDataLoading, 150}, {IdleCause::kHostLaunch, 12}});
  EXPECT_EQ(longest_what(trace), "enumerate(DataLoader)");
}

TEST(Idle, AWaitInsideDataLoadingIsAWait) {
  HandTrace trace = busy_until_100();
  trace.step(3, -50, 400);
  trace.host(SpanKind::kData, "data", 30, 250);
  trace.host(SpanKind::kRuntime, "cudaStreamSynchronize", 95, 150);
  trace.kernel("second", 262, 300, 260);
  // After the wait: 100 us of loading; then 5 of the 10 us that the wait had held back.
  expect_causes(
      trace,
      {{IdleCause::kHostSync, 55}, {IdleCause::kDataLoading, 100}, {IdleCause::kHostLaunch, 7}});
  const StepFacts step = measure_rank(trace.timeline).steps.at(0);
  EXPECT_EQ(step.data_ns, 165 * kUs);
  EXPECT_EQ(step.sync_ns, 55 * kUs);
}

TEST(Idle, DataLoadingOfTheMainThreadHoldsAutogradsLaunchBack) {
  HandTrace trace = busy_until_100();
  trace.host(SpanKind::kData, "data", 120, 220);
  trace.kernel("second", 252, 300, 250, HandTrace::kStream, HandTrace::kAutograd);
  expect_causes(trace, {{IdleCause::kDataLoading, 100}, {IdleCause::kHostLaunch, 52}});
}

TEST(Idle, InsideAUsersRegionThatLaunchesNothingIsThatRegion) {
  HandTrace trace = busy_until_100();
  trace.host(SpanKind::kRegion, "train", -30, 900);
  trace.host(SpanKind::kRegion, "augment", 120, 500);
  trace.kernel("second", 512, 600, 510);
  expect_causes(trace, {{IdleCause::kRegion, 380}, {IdleCause::kHostLaunch, 32}});
  EXPECT_EQ(longest_what(trace), "augment");
}

TEST(Idle, ARegionThatLaunchesAllTheTimeIsLaunching) {
  HandTrace trace;
  trace.host(SpanKind::kRegion, "my pipeline", 0, 1000);
  for (int64_t i = 0; i < 10; ++i) {  // by another thread, as autograd does
    trace.kernel(
        "k", 100 * i + 12, 100 * i + 20, 100 * i + 10, HandTrace::kStream, HandTrace::kAutograd);
  }
  expect_causes(trace, {{IdleCause::kHostLaunch, 9 * 92}});
}

TEST(Idle, PhasesAndFrameworkRegionsAreNoCause) {
  for (const char* name : {"forward",
                           "Optimizer.step#AdamW.step",
                           "nccl:all_reduce",
                           "FSDP::pre_backward",
                           "DistributedDataParallel.forward"}) {
    HandTrace trace = busy_until_100();
    trace.host(SpanKind::kRegion, name, 100, 500);
    trace.kernel("second", 512, 600, 510);
    expect_causes(trace, {{IdleCause::kHostLaunch, 412}});
  }
}

TEST(Idle, LaunchedInTimeIsWaitingForAnotherStream) {
  HandTrace trace = busy_until_100();
  trace.kernel("second", 400, 500, 60);
  expect_causes(trace, {{IdleCause::kStreamWait, 300}});
  HandTrace close = busy_until_100();
  close.kernel("second", 103, 500, 60);
  expect_causes(close, {{IdleCause::kStreamWait, 3}});
  EXPECT_EQ(longest_what(close), "between kernels");
}

TEST(Idle, BetweenKernelsOfOneGraphIsReplay) {
  HandTrace trace;
  const int64_t graph = trace.call("cudaGraphLaunch", 0, 6);
  trace.device("a", 10, 20, graph);
  trace.device("b", 24, 30, graph);
  trace.kernel("after", 61, 70, 58);
  expect_causes(trace, {{IdleCause::kGraphReplay, 4}, {IdleCause::kHostLaunch, 31}});
  const LaunchFacts launch = measure_rank(trace.timeline).launch;
  EXPECT_EQ(launch.graph_launches, 1);
  EXPECT_EQ(launch.graph_kernels, 2);
}

TEST(Idle, WithoutAKnownLaunchTheCauseIsUnknown) {
  HandTrace trace = busy_until_100();
  trace.host(SpanKind::kData, "data", 100, 150);
  trace.device("launched before the recording", 160, 200, 0);
  expect_causes(trace, {{IdleCause::kUnknown, 60}});
}

TEST(Idle, WhereNoLaunchIsRecordedAtAllDataLoadingStillTells) {
  HandTrace trace;
  trace.device("a", 0, 100, 0);
  trace.host(SpanKind::kData, "next batch", 110, 150);
  trace.device("b", 160, 200, 0);
  expect_causes(trace, {{IdleCause::kDataLoading, 40}, {IdleCause::kUnknown, 20}});
}

TEST(Idle, TheProfilersOwnWorkIsTold) {
  HandTrace trace = busy_until_100();
  trace.host(SpanKind::kHost, "Buffer Flush", 150, 250, HandTrace::kProfiler);
  trace.kernel("second", 302, 400, 300);
  expect_causes(trace, {{IdleCause::kProfiler, 100}, {IdleCause::kHostLaunch, 102}});
  EXPECT_EQ(measure_rank(trace.timeline).profiler_ns, 100 * kUs);
}

TEST(Idle, AllocatorCallsAreNamedAndCounted) {
  HandTrace trace = busy_until_100();
  trace.step(0, -50, 500);
  trace.host(SpanKind::kRuntime, "cudaMalloc", 150, 250);
  trace.host(SpanKind::kRuntime, "cudaFree", 260, 270);
  trace.kernel("second", 302, 400, 300);
  // and 100 us after the last kernel, until the step ends
  const RankFacts facts = measure_rank(trace.timeline);
  EXPECT_EQ(facts.idle_by_cause, causes({{IdleCause::kHostLaunch, 202}}));
  EXPECT_EQ(facts.idle_by_what.at("host launching: cudaMalloc"), 100 * kUs);
  const StepFacts& step = facts.steps.at(0);
  EXPECT_EQ(step.allocator_calls, 2);
  EXPECT_EQ(step.allocator_ns, 110 * kUs);
  EXPECT_EQ(step.time.idle_ns, (50 + 202 + 100) * kUs);
  EXPECT_EQ(sum(step.idle_by_cause), step.time.idle_ns);
  EXPECT_EQ(step.idle_by_what.at("cudaMalloc"), 100 * kUs);
}

TEST(Idle, WorkOnAnyStreamIsNoGap) {
  HandTrace trace = busy_until_100();
  trace.kernel("other", 90, 200, 60, HandTrace::kOtherStream);
  trace.kernel("second", 200, 300, 70);
  expect_causes(trace, {});
}

// Random spans of all kinds on all lanes, unsorted, overlapping, some of negative length.
RankTimeline random_timeline(std::mt19937& random) {
  HandTrace trace;
  trace.step(0, 0, 100), trace.step(1, 105, 200);
  const SpanKind kinds[] = {SpanKind::kOperation,
                            SpanKind::kData,
                            SpanKind::kRegion,
                            SpanKind::kRuntime,
                            SpanKind::kSync,
                            SpanKind::kHost};
  const char* names[] = {"cudaMalloc",
                         "cudaDeviceSynchronize",
                         "aten::mm",
                         "mine",
                         "aten::item",
                         "Buffer Flush",
                         "autograd::engine::evaluate_function: MmBackward0"};
  for (int i = 0; i < 40; ++i) {
    const auto begin = static_cast<int64_t>(random() % 220);
    const auto end = begin + static_cast<int64_t>(random() % 40) - 2;
    if (i % 2 == 0) {
      trace.host(kinds[random() % std::size(kinds)],
                 names[random() % std::size(names)],
                 begin,
                 end,
                 HandTrace::kMain + static_cast<int32_t>(random() % 3));
      continue;
    }
    const int64_t correlation =
        random() % 4 == 0 ? 0
                          : trace.call(random() % 5 == 0 ? "cudaMemcpyAsync" : "cudaLaunchKernel",
                                       begin - static_cast<int64_t>(random() % 60),
                                       begin);
    const SpanKind device[] = {SpanKind::kKernel, SpanKind::kReduce, SpanKind::kCopy};
    trace.device("k",
                 begin,
                 std::min(end, begin + 4),
                 correlation,
                 static_cast<int32_t>(random() % 2),
                 device[random() % 3]);
  }
  return trace.timeline;
}

TEST(Idle, CausesAddUpToIdlenessInAnyTimeline) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    const RankTimeline timeline = random_timeline(random);
    const RankFacts facts = measure_rank(timeline);
    int64_t busy = 0;  // counted by the microsecond
    for (int64_t t = facts.begin_ns; t < facts.end_ns; t += kUs) {
      for (size_t i = 0; i < timeline.spans.size(); ++i) {
        if (!timeline.lanes[static_cast<size_t>(timeline.spans.lane[i])].device) continue;
        const int64_t begin = timeline.spans.start_ns[i];
        if (t < begin || t >= begin + timeline.spans.duration_ns[i]) continue;
        busy += kUs;
        break;
      }
    }
    ASSERT_EQ(facts.total.idle_ns, facts.total.span_ns - busy) << "round " << round;
    ASSERT_EQ(sum(facts.idle_by_cause), facts.total.idle_ns) << "round " << round;
    int64_t of_gaps = 0;
    for (const Gap& gap : facts.gaps) of_gaps += gap.duration_ns;
    ASSERT_EQ(of_gaps, facts.total.idle_ns) << "round " << round;
    for (const StepFacts& step : facts.steps) {
      ASSERT_EQ(sum(step.idle_by_cause), step.time.idle_ns) << "round " << round;
      ASSERT_EQ(step.time.compute_ns + step.time.exposed_communication_ns +
                    step.time.exposed_copy_ns + step.time.idle_ns,
                step.duration_ns);
    }
  }
}

}  // namespace
}  // namespace vitrine
