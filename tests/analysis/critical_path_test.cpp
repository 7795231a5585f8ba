// Critical paths and what-if by hand-made traces with exact times, and by making a trace's parts
// faster by hand and measuring again.
#include "analysis/critical_path.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "analysis/dependency_graph.h"
#include "hand_trace.h"

namespace vitrine {
namespace {

constexpr const char* kMatmulName = "ampere_sgemm_128x64_nn";

PathFacts path_of(const HandTrace& trace) { return measure_rank(trace.timeline).critical_path; }

int64_t part(const PathFacts& path, PathPart of) { return path.part_ns[static_cast<size_t>(of)]; }
int64_t sum(const PathFacts& path) {
  return std::accumulate(path.part_ns.begin(), path.part_ns.end(), int64_t{0});
}
int64_t answer(const PathFacts& path, Change change) {
  const WhatIf* found = path.find(change);
  return found == nullptr ? -2 : found->span_ns;
}

// Two products, the second one queued behind the first; then the host waits for both. Durations in
// microseconds, each an even number.
struct TwoKernels {
  int64_t code = 20, call = 4, product = 200, after = 170;

  HandTrace trace() const {
    HandTrace out;
    const int64_t launch = code, first = launch + call + 6;  // 6 us until the device begins
    const int64_t end_first = first + product, second = end_first + 2;
    const int64_t end_second = second + product, synced = end_second + 8;
    out.step(0, 0, synced + after);
    out.device(kMatmulName, first, end_first, out.call("cudaLaunchKernel", launch, launch + call));
    const int64_t next = launch + call;
    out.device(kMatmulName, second, end_second, out.call("cudaLaunchKernel", next, next + call));
    out.host(SpanKind::kRuntime, "cudaDeviceSynchronize", next + call, synced);
    return out;
  }
};

TEST(CriticalPath, FollowsHostLaunchKernelsAndTheWaitForThem) {
  const PathFacts path = path_of(TwoKernels().trace());
  ASSERT_TRUE(path.known()) << path.unknown;
  EXPECT_EQ(path.steps, 1);
  EXPECT_EQ(path.span_ns(), 610 * kUs);
  EXPECT_EQ(part(path, PathPart::kHost), (20 + 4 + 8 + 170) * kUs);
  EXPECT_EQ(part(path, PathPart::kLaunch), 6 * kUs);
  EXPECT_EQ(part(path, PathPart::kCompute), 400 * kUs);
  EXPECT_EQ(part(path, PathPart::kBetween), 2 * kUs);
  EXPECT_EQ(sum(path), path.span_ns());
  EXPECT_EQ(path.class_ns[static_cast<size_t>(KernelClass::kMatmul)], 400 * kUs);
}

TEST(WhatIf, PredictsWhatTheTraceWithFasterPartsMeasures) {
  const TwoKernels now;
  const PathFacts path = path_of(now.trace());
  TwoKernels faster = now;
  faster.product /= 2;
  EXPECT_EQ(answer(path, Change::kFasterClass), path_of(faster.trace()).span_ns());
  EXPECT_EQ(path.find(Change::kFasterClass)->kind, KernelClass::kMatmul);
  faster = now;
  faster.code /= 2, faster.call /= 2, faster.after /= 2;
  EXPECT_EQ(answer(path, Change::kFasterHost), path_of(faster.trace()).span_ns());
  EXPECT_EQ(path.find(Change::kFasterCommunication), nullptr);
  EXPECT_EQ(path.find(Change::kInstantData), nullptr);
}

TEST(WhatIf, ALoaderThatTakesNoTimeLeavesOnlyWhatItHeldBack) {
  const auto trace = [](int64_t loading) {
    HandTrace out;
    out.step(0, 0, loading + 300);
    out.host(SpanKind::kData, "enumerate(DataLoader)", 0, loading);
    out.kernel(kMatmulName, loading + 20, loading + 220, loading + 10);
    out.host(SpanKind::kRuntime, "cudaDeviceSynchronize", loading + 20, loading + 230);
    return out;
  };
  const PathFacts path = path_of(trace(400));
  EXPECT_EQ(part(path, PathPart::kDataLoading), 400 * kUs);
  EXPECT_EQ(answer(path, Change::kInstantData), path_of(trace(0)).span_ns());
}

// A product, an all-reduce of its result on another stream, and a product that waits for that;
// beside the all-reduce a product of `beside` that does not.
HandTrace with_collective(int64_t transfer, int64_t beside) {
  HandTrace out;
  const int64_t first = 30, end_first = 130, reduce = 132, reduced = reduce + transfer;
  const int64_t end_beside = end_first + 2 + beside;
  const int64_t last = std::max(reduced, end_beside) + 2;
  out.step(0, 0, 400 + transfer + beside);
  out.kernel(kMatmulName, first, end_first, 20);
  out.host(SpanKind::kRuntime, "cudaStreamWaitEvent", 26, 27);
  out.device("ncclDevKernel_AllReduce",
             reduce,
             reduced,
             out.call("cudaLaunchKernel", 28, 32),
             HandTrace::kOtherStream,
             SpanKind::kCollective);
  out.kernel(kMatmulName, end_first + 2, end_beside, 34);
  out.host(SpanKind::kRuntime, "cudaStreamWaitEvent", 40, 41);
  out.kernel(kMatmulName, last, last + 100, 42);
  out.host(SpanKind::kRuntime, "cudaDeviceSynchronize", 50, last + 108);
  return out;
}

TEST(WhatIf, FasterCommunicationHelpsNoFurtherThanTheWorkBesideIt) {
  for (const int64_t beside : {20, 150, 190}) {
    HandTrace now = with_collective(200, beside);
    const PathFacts path = path_of(now);
    ASSERT_TRUE(path.known()) << path.unknown;
    const int64_t shorter = std::min<int64_t>(100, 200 - beside);
    EXPECT_EQ(answer(path, Change::kFasterCommunication), path.span_ns() - shorter * kUs) << beside;
    EXPECT_EQ(part(path, PathPart::kCommunication), 200 * kUs);
  }
}

TEST(WhatIf, HiddenCommunicationBringsNothing) {
  const PathFacts path = path_of(with_collective(100, 300));
  EXPECT_EQ(part(path, PathPart::kCommunication), 0);
  EXPECT_EQ(answer(path, Change::kFasterCommunication), path.span_ns());
}

TEST(CriticalPath, OneLaunchOfAGraphHasAllItsKernels) {
  HandTrace trace;
  trace.step(0, 0, 140);
  const int64_t graph = trace.call("cudaGraphLaunch", 100, 110);
  trace.device("a", 116, 200, graph);
  trace.device("b", 202, 300, graph);
  trace.device("c", 302, 390, graph);
  const PathFacts path = path_of(trace);
  EXPECT_EQ(part(path, PathPart::kCompute), (84 + 98 + 88) * kUs);
  // 100 us of code and the call of 10 us: 55 us less, all of which the kernels begin earlier.
  EXPECT_EQ(answer(path, Change::kFasterHost), path.span_ns() - 55 * kUs);
}

TEST(CriticalPath, AStreamThatWaitsByTheDevicesOwnRecordIsBelieved) {
  // The wait is called by another thread than the launch: only the row of the device ties them.
  HandTrace trace;
  trace.step(0, 0, 500);
  trace.kernel(kMatmulName, 30, 130, 20);
  const int64_t wait = trace.call("cudaStreamWaitEvent", 28, 29, HandTrace::kAutograd);
  trace.device("Stream Wait Event", 30, 130, wait, HandTrace::kOtherStream, SpanKind::kSync);
  trace.kernel("other", 135, 235, 40, HandTrace::kOtherStream);
  trace.host(SpanKind::kRuntime, "cudaDeviceSynchronize", 50, 240);
  const PathFacts path = path_of(trace);
  EXPECT_EQ(part(path, PathPart::kCompute), 200 * kUs);
  for (const std::string& said : path.inferred) {
    EXPECT_EQ(said.find("cuda_sync"), std::string::npos) << said;
  }
}

TEST(CriticalPath, ALongLaunchWithAFullQueueWaitsForTheDevice) {
  // 800 kernels of 10 us launched every 2 us; the last call returns only when the 400th has ended,
  // and 8 ms of host code after it bound the step.
  HandTrace trace;
  constexpr int64_t kKernels = 800, kReturns = 20 + 400 * 10 + 3;
  trace.step(0, 0, kReturns + 8000);
  for (int64_t i = 0; i < kKernels; ++i) {
    const int64_t at = 10 + 2 * i, end = i + 1 < kKernels ? at + 1 : kReturns;
    const int64_t launched = trace.call("cudaLaunchKernel", at, end);
    trace.device(kMatmulName, 20 + i * 10, 30 + i * 10, launched);
  }
  const PathFacts path = path_of(trace);
  ASSERT_TRUE(path.known());
  EXPECT_EQ(part(path, PathPart::kCompute), 4000 * kUs);
  EXPECT_EQ(answer(path, Change::kFasterClass), path.span_ns() - 2000 * kUs);
  EXPECT_TRUE(std::any_of(path.inferred.begin(), path.inferred.end(), [](const auto& said) {
    return said.find("full queue") != std::string::npos;
  }));
}

TEST(WhatIf, ALaunchCallThatTakesLongIsTheHosts) {
  HandTrace trace;
  trace.step(0, 0, 1500);
  trace.kernel(kMatmulName, 20, 30, 10);
  trace.device(kMatmulName, 1040, 1440, trace.call("cudaLaunchKernel", 40, 1040));
  trace.host(SpanKind::kRuntime, "cudaDeviceSynchronize", 1040, 1500);
  const PathFacts path = path_of(trace);
  // 40 us of code before it, the call of 1000 us.
  EXPECT_EQ(answer(path, Change::kFasterHost), path.span_ns() - 520 * kUs);
}

TEST(CriticalPath, WorkLaunchedBeforeTheStepIsNotPartOfIt) {
  HandTrace trace;
  trace.kernel(kMatmulName, 0, 180, -20);
  trace.step(0, 100, 400);
  trace.kernel(kMatmulName, 182, 382, 110);
  const PathFacts path = path_of(trace);
  EXPECT_EQ(path.begin_ns, 180 * kUs);
  EXPECT_EQ(path.end_ns, 400 * kUs);
  EXPECT_EQ(sum(path), path.span_ns());
}

TEST(CriticalPath, StatesWhatItCannotKnow) {
  HandTrace only_host;
  only_host.step(0, 0, 100);
  only_host.host(SpanKind::kOperation, "aten::mm", 10, 90);
  EXPECT_FALSE(path_of(only_host).known());
  EXPECT_FALSE(path_of(only_host).unknown.empty());

  HandTrace only_device;
  only_device.device("a", 0, 100, 0);
  only_device.device("b", 150, 250, 0);
  const PathFacts path = path_of(only_device);
  ASSERT_TRUE(path.known());
  EXPECT_EQ(answer(path, Change::kFasterHost), -1);
  EXPECT_FALSE(path.find(Change::kFasterHost)->unknown.empty());
  EXPECT_EQ(part(path, PathPart::kUnknown), 50 * kUs);
  EXPECT_EQ(answer(path, Change::kFasterClass), 150 * kUs);
}

TEST(CriticalPath, AStepOfTooMuchWorkIsNotLookedAt) {
  const HandTrace trace = TwoKernels().trace();
  const SpanOrder order(trace.timeline.spans);
  const StepIndex steps(trace.timeline.spans, order);
  HostWalk host = walk_host(trace.timeline, order, steps);
  const auto device = walk_device(trace.timeline, order, host);
  const RankParts parts{trace.timeline, steps, host, device, {}, {}};
  EXPECT_FALSE(measure_path(parts, {}, 3).known());
  EXPECT_TRUE(measure_path(parts, {}, 4).known());
}

// Rank 0 reaches the all-reduce `early` us before rank 1; moving the data takes 50 us.
HandTrace rank_of_two(int32_t rank, int64_t early) {
  HandTrace out;
  out.timeline.rank = rank, out.timeline.world_size = 2;
  Collective all_reduce;
  all_reduce.name = out.timeline.strings.intern("all_reduce");
  all_reduce.group = out.timeline.strings.intern("0");
  all_reduce.ranks = {0, 1};
  all_reduce.in_elements = all_reduce.out_elements = 1 << 20;
  all_reduce.dtype = out.timeline.strings.intern("f32");
  for (int32_t step = 0; step < 4; ++step) out.step(step, step * 1000, step * 1000 + 1000);
  for (int32_t step = 0; step < 4; ++step) {
    const int64_t at = step * 1000, wait = rank == 0 ? early : 0;
    all_reduce.sequence = step;
    out.timeline.collectives.push_back(all_reduce);
    out.kernel(kMatmulName, at + 30, at + 800 - wait, at + 20);
    out.device("ncclDevKernel_AllReduce",
               at + 802 - wait,
               at + 852,
               out.call("cudaLaunchKernel", at + 28, at + 32),
               HandTrace::kStream,
               SpanKind::kCollective,
               step);
    out.host(SpanKind::kRuntime, "cudaDeviceSynchronize", at + 50, at + 860);
  }
  return out;
}

TEST(WhatIf, WaitingForOtherRanksIsToldFromTransferOnceTheyAreKnown) {
  std::vector<RankFacts> ranks;
  for (int32_t rank = 0; rank < 2; ++rank) {
    ranks.push_back(measure_rank(rank_of_two(rank, 300).timeline));
  }
  EXPECT_EQ(answer(ranks[0].critical_path, Change::kNoWaiting), -1);
  const JobFacts job = measure_job(std::move(ranks), {}, {});
  const PathFacts& early = job.ranks[0].critical_path;
  EXPECT_EQ(early.span_ns(), 4000 * kUs);
  EXPECT_EQ(part(early, PathPart::kWaiting), 4 * 300 * kUs);
  EXPECT_EQ(part(early, PathPart::kCommunication), 4 * 50 * kUs);
  EXPECT_EQ(answer(early, Change::kNoWaiting), 4 * 700 * kUs);
  EXPECT_EQ(answer(early, Change::kFasterCommunication), 4 * 975 * kUs);
  const PathFacts& late = job.ranks[1].critical_path;
  EXPECT_EQ(answer(late, Change::kNoWaiting), late.span_ns());
  EXPECT_TRUE(early.links.empty());
}

}  // namespace
}  // namespace vitrine
