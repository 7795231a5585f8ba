// The recorder keeps what the schedule asks for, from many threads, in order, and cheaply.
#include "timeline/recorder.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace vitrine {
namespace {

RecorderOptions by_hand() {
  RecorderOptions options;
  options.active = 0;
  return options;
}

SpanRecord now_span(int32_t lane, StringId name, int32_t micro_batch = -1) {
  SpanRecord record;
  record.start_ns = now_ns();
  record.duration_ns = 5;
  record.lane = lane;
  record.name = name;
  record.micro_batch = micro_batch;
  record.kind = SpanKind::kForward;
  return record;
}

// Runs `steps` steps with one span each; returns the steps whose span was kept, take by take.
std::vector<std::vector<int32_t>> kept_steps(const RecorderOptions& options,
                                             int64_t first,
                                             int steps) {
  Recorder recorder(0, 1, options);
  const int32_t lane = recorder.lane("compute");
  const StringId name = recorder.intern("body.0");
  std::vector<std::vector<int32_t>> takes;
  for (int i = 0; i < steps; ++i) {
    recorder.begin_step(first + i);
    SpanRecord record = now_span(lane, name);
    record.step = recorder.step();
    recorder.span(record);
    if (!recorder.end_step()) continue;
    const RankTimeline timeline = recorder.take();
    takes.emplace_back();
    for (size_t s = 0; s < timeline.spans.size(); ++s) {
      if (timeline.spans.kind[s] == SpanKind::kForward)
        takes.back().push_back(timeline.spans.step[s]);
    }
  }
  return takes;
}

TEST(Recorder, FollowsWaitWarmupActiveRepeat) {
  RecorderOptions options;
  options.skip_first = 1, options.wait = 2, options.warmup = 1, options.active = 2,
  options.repeat = 2;
  const std::vector<std::vector<int32_t>> expected = {{4, 5}, {9, 10}};
  EXPECT_EQ(kept_steps(options, 0, 30), expected);
}

TEST(Recorder, CountsScheduleStepsFromItsBirthSoThatAResumedRunIsRecordedToo) {
  RecorderOptions options;
  options.wait = 1, options.warmup = 0, options.active = 1, options.repeat = 1;
  const std::vector<std::vector<int32_t>> expected = {{1001}};
  EXPECT_EQ(kept_steps(options, 1000, 5), expected);
}

TEST(Recorder, RepeatsWithoutEndWhenRepeatIsZero) {
  RecorderOptions options;
  options.wait = 1, options.warmup = 1, options.active = 1, options.repeat = 0;
  EXPECT_EQ(kept_steps(options, 0, 30).size(), 10u);
}

TEST(Recorder, RecordsOneStepSpanAStep) {
  RecorderOptions options;
  options.wait = 0, options.warmup = 0, options.active = 3;
  Recorder recorder(0, 1, options);
  for (int step = 0; step < 3; ++step) {
    recorder.begin_step(step);
    recorder.end_step();
  }
  const RankTimeline timeline = recorder.take();
  ASSERT_EQ(timeline.spans.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(timeline.spans.kind[i], SpanKind::kStep);
    EXPECT_EQ(timeline.spans.step[i], static_cast<int32_t>(i));
    EXPECT_EQ(timeline.lanes[static_cast<size_t>(timeline.spans.lane[i])].name, "steps");
  }
}

TEST(Recorder, StartsAndStopsByHandInTheMiddleOfAStep) {
  Recorder recorder(0, 1, by_hand());
  const int32_t lane = recorder.lane("compute");
  const StringId before = recorder.intern("before"), inside = recorder.intern("inside");
  recorder.begin_step(7);
  recorder.span(now_span(lane, before));
  EXPECT_FALSE(recorder.active());
  recorder.start();
  EXPECT_TRUE(recorder.active());
  recorder.span(now_span(lane, inside));
  recorder.stop();
  recorder.span(now_span(lane, before));
  EXPECT_FALSE(recorder.end_step());
  const RankTimeline timeline = recorder.take();
  ASSERT_EQ(timeline.spans.size(), 1u);
  EXPECT_EQ(timeline.strings[timeline.spans.name[0]], "inside");
}

TEST(Recorder, TakesEverySpanOfManyThreadsOnceAndSorted) {
  constexpr int kThreads = 4, kSpans = 5000;
  Recorder recorder(3, 8, by_hand());
  const StringId name = recorder.intern("x");
  recorder.start();
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      const int32_t lane = recorder.lane("lane " + std::to_string(t));
      for (int i = 0; i < kSpans; ++i) recorder.span(now_span(lane, name, i));
    });
  }
  std::vector<RankTimeline> takes;
  takes.push_back(recorder.take());  // while the threads write
  for (auto& thread : threads) thread.join();
  takes.push_back(recorder.take());
  std::vector<std::vector<int>> seen(kThreads, std::vector<int>(kSpans));
  for (const RankTimeline& timeline : takes) {
    EXPECT_EQ(timeline.rank, 3);
    EXPECT_EQ(timeline.world_size, 8);
    EXPECT_TRUE(std::is_sorted(timeline.spans.start_ns.begin(), timeline.spans.start_ns.end()));
    for (size_t i = 0; i < timeline.spans.size(); ++i) {
      const std::string& lane = timeline.lanes[static_cast<size_t>(timeline.spans.lane[i])].name;
      ++seen[static_cast<size_t>(std::stoi(lane.substr(5)))]
            [static_cast<size_t>(timeline.spans.micro_batch[i])];
    }
  }
  for (const auto& lane : seen) {
    EXPECT_EQ(std::count(lane.begin(), lane.end(), 1), kSpans);
  }
}

TEST(Recorder, KeepsCollectivesWithTheirGroup) {
  Recorder recorder(1, 4, by_hand());
  recorder.start();
  const int32_t lane = recorder.lane("gather");
  CollectiveRecord collective;
  collective.name = recorder.intern("all_gather");
  collective.dtype = recorder.intern("bf16");
  collective.group = recorder.group("data", {1, 3});
  collective.sequence = 11;
  collective.in_elements = 100, collective.out_elements = 200, collective.sent_bytes = 200;
  recorder.span(now_span(lane, recorder.intern("plain")));
  recorder.collective(now_span(lane, recorder.intern("gather body.0")), collective);
  const RankTimeline timeline = recorder.take();
  ASSERT_EQ(timeline.spans.size(), 2u);
  ASSERT_EQ(timeline.collectives.size(), 1u);
  EXPECT_EQ(timeline.spans.collective[0], -1);
  EXPECT_EQ(timeline.spans.collective[1], 0);
  const Collective& kept = timeline.collectives[0];
  EXPECT_EQ(timeline.strings[kept.name], "all_gather");
  EXPECT_EQ(timeline.strings[kept.group], "data");
  EXPECT_EQ(kept.ranks, (std::vector<int32_t>{1, 3}));
  EXPECT_EQ(kept.sequence, 11);
  EXPECT_EQ(kept.out_elements, 200);
}

TEST(Recorder, DropsAndCountsSpansBeyondItsMemory) {
  RecorderOptions options = by_hand();
  options.max_bytes = 200 << 10;
  Recorder recorder(0, 1, options);
  recorder.start();
  const int32_t lane = recorder.lane("compute");
  constexpr int kSpans = 20000;
  for (int i = 0; i < kSpans; ++i) recorder.span(now_span(lane, kNoString));
  const RankTimeline timeline = recorder.take();
  const int64_t dropped = std::stoll(timeline.info.at("recorder.dropped"));
  EXPECT_GT(dropped, 0);
  EXPECT_EQ(static_cast<int64_t>(timeline.spans.size()) + dropped, kSpans);
}

TEST(Recorder, RegionsTimeTheirScopeUnlessSwitchedOff) {
  RecorderOptions options = by_hand();
  for (const bool wanted : {true, false}) {
    options.regions = wanted;
    Recorder recorder(0, 1, options);
    recorder.start();
    { const Region region(recorder, recorder.intern("load"), recorder.lane("host", false)); }
    EXPECT_EQ(recorder.take().spans.size(), wanted ? 1u : 0u);
  }
}

TEST(Recorder, SamplesMemoryAndCountersOnlyInsideAWindow) {
  Recorder recorder(0, 1, by_hand());
  const StringId loss = recorder.intern("loss");
  MemoryByCategory bytes{};
  bytes[0] = 42;
  recorder.memory_sample(now_ns(), bytes);
  recorder.counter(loss, 1.0);
  recorder.start();
  recorder.memory_sample(now_ns(), bytes);
  recorder.counter(loss, 2.0);
  const RankTimeline timeline = recorder.take();
  ASSERT_EQ(timeline.memory.size(), 1u);
  EXPECT_EQ(timeline.memory[0].bytes[0], 42);
  ASSERT_EQ(timeline.counters.size(), 1u);
  EXPECT_EQ(timeline.counters[0].value, 2.0);
}

// Generous, and the best of several, since machines are shared; usual figures:
// docs/formats/trace.md.
TEST(Recorder, ASpanCostsFarLessThanAMicrosecond) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "sanitizers slow it down";
#endif
  constexpr int kSpans = 1000, kRounds = 15;
  static_assert(kSpans * kRounds < Recorder::kReadySpans);
  Recorder recorder(0, 1, by_hand());
  recorder.attach_thread();
  recorder.start();
  const int32_t lane = recorder.lane("compute");
  double best = 1e9;
  for (int round = 0; round < kRounds; ++round) {
    const int64_t start = now_ns();
    for (int i = 0; i < kSpans; ++i) recorder.span(now_span(lane, kNoString));
    best = std::min(best, static_cast<double>(now_ns() - start) / kSpans);
  }
  RecordProperty("ns_per_span", std::to_string(best));
  EXPECT_LT(best, 1000);
}

}  // namespace
}  // namespace vitrine
