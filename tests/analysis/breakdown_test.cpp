// Intervals and the breakdown against a count of every single nanosecond.
#include <gtest/gtest.h>

#include <random>

#include "analysis/intervals.h"
#include "analysis/rank_facts.h"
#include "timeline/synthetic_run.h"

namespace vitrine {
namespace {

constexpr int64_t kEnd = 200;

std::vector<Interval> random_intervals(std::mt19937& random, int count) {
  std::vector<Interval> out;
  for (int i = 0; i < count; ++i) {
    const auto begin = static_cast<int64_t>(random() % kEnd);
    out.push_back({begin, std::min(kEnd, begin + static_cast<int64_t>(random() % 30))});
  }
  return out;
}

bool covers(const std::vector<Interval>& intervals, int64_t t) {
  return std::any_of(intervals.begin(), intervals.end(), [t](const Interval& i) {
    return i.begin <= t && t < i.end;
  });
}

TEST(Intervals, AgreeWithACountOfEveryPoint) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    const auto a = random_intervals(random, round % 12), b = random_intervals(random, round % 7);
    const IntervalSet sa(a), sb(b);
    const Interval window{static_cast<int64_t>(random() % kEnd),
                          static_cast<int64_t>(random() % kEnd)};
    const auto both = intersect(sa, sb), either = unite(sa, sb), only = subtract(sa, sb),
               clipped = sa.clip(window);
    for (int64_t t = 0; t < kEnd; ++t) {
      const bool ina = covers(a, t), inb = covers(b, t);
      ASSERT_EQ(covers(sa.intervals(), t), ina);
      ASSERT_EQ(covers(both.intervals(), t), ina && inb);
      ASSERT_EQ(covers(either.intervals(), t), ina || inb);
      ASSERT_EQ(covers(only.intervals(), t), ina && !inb);
      ASSERT_EQ(covers(clipped.intervals(), t), ina && window.begin <= t && t < window.end);
    }
    ASSERT_EQ(both.length() + only.length(), sa.length());
    ASSERT_EQ(sa.length() + sb.length(), either.length() + both.length());
  }
}

TEST(Intervals, ForgetEmptyAndReversedOnesAndJoinTouchingOnes) {
  const IntervalSet set({{5, 5}, {9, 2}, {3, 4}, {1, 3}});
  EXPECT_EQ(set.intervals(), (std::vector<Interval>{{1, 4}}));
}

Breakdown counted(const RankTimeline& timeline, int64_t begin, int64_t end) {
  Breakdown out;
  out.span_ns = end - begin;
  const Spans& spans = timeline.spans;
  for (int64_t t = begin; t < end; ++t) {
    bool compute = false, communication = false, copy = false;
    for (size_t i = 0; i < spans.size(); ++i) {
      if (t < spans.start_ns[i] || t >= spans.start_ns[i] + spans.duration_ns[i]) continue;
      const SpanKind kind = spans.kind[i];
      if (!timeline.lanes[static_cast<size_t>(spans.lane[i])].device) continue;
      compute |= kind == SpanKind::kForward || kind == SpanKind::kBackward;
      communication |= kind == SpanKind::kGather || kind == SpanKind::kReduce;
      copy |= kind == SpanKind::kCopy;
    }
    out.compute_ns += compute;
    out.communication_ns += communication;
    out.overlap_ns += compute && communication;
    out.exposed_communication_ns += communication && !compute;
    out.exposed_copy_ns += copy && !compute && !communication;
    out.idle_ns += !compute && !communication && !copy;
  }
  return out;
}

void expect_equal(const Breakdown& a, const Breakdown& b) {
  EXPECT_EQ(a.span_ns, b.span_ns);
  EXPECT_EQ(a.compute_ns, b.compute_ns);
  EXPECT_EQ(a.exposed_communication_ns, b.exposed_communication_ns);
  EXPECT_EQ(a.exposed_copy_ns, b.exposed_copy_ns);
  EXPECT_EQ(a.idle_ns, b.idle_ns);
  EXPECT_EQ(a.communication_ns, b.communication_ns);
  EXPECT_EQ(a.overlap_ns, b.overlap_ns);
}

TEST(Breakdown, AgreesWithACountOfEveryNanosecond) {
  std::mt19937 random(2);
  const SpanKind kinds[] = {SpanKind::kForward,
                            SpanKind::kBackward,
                            SpanKind::kGather,
                            SpanKind::kReduce,
                            SpanKind::kCopy,
                            SpanKind::kData,
                            SpanKind::kHost};
  for (int round = 0; round < 100; ++round) {
    RankTimeline timeline;
    timeline.lanes = {{"compute", true, 0}, {"gather", true, 1}, {"host", false, 2}};
    for (int32_t step = 0; step < 2; ++step) {
      add_span(timeline, step * 100, 97 - step, SpanKind::kStep, "step", 2, step);
    }
    for (const Interval& i : random_intervals(random, round % 20)) {
      add_span(timeline,
               i.begin,
               i.end - i.begin,
               kinds[random() % std::size(kinds)],
               "x",
               static_cast<int32_t>(random() % 3),
               0);
    }
    const RankFacts found = measure_rank(timeline);
    if (!found.device_work) continue;
    ASSERT_EQ(found.steps.size(), 2u);
    expect_equal(found.steps[0].time, counted(timeline, 0, 97));
    expect_equal(found.steps[1].time, counted(timeline, 100, 196));
    expect_equal(found.total, counted(timeline, found.begin_ns, found.end_ns));
  }
}

TEST(Breakdown, PartsAddUpToTheSpanOfAWholeRun) {
  for (const RankTimeline& rank : synthetic_run().ranks) {
    const Breakdown all = measure_rank(rank).total;
    EXPECT_GT(all.overlap_ns, 0);
    EXPECT_EQ(all.compute_ns + all.exposed_communication_ns + all.exposed_copy_ns + all.idle_ns,
              all.span_ns);
  }
}

TEST(Breakdown, WithoutStepsTheWindowIsThatOfTheDevicesWork) {
  RankTimeline timeline;
  timeline.lanes = {{"compute", true, 0}};
  add_span(timeline, 10, 5, SpanKind::kKernel, "a", 0, -1);
  add_span(timeline, 20, 5, SpanKind::kKernel, "b", 0, -1);
  const RankFacts found = measure_rank(timeline);
  EXPECT_TRUE(found.steps.empty());
  EXPECT_EQ(found.total.span_ns, 15);
  EXPECT_EQ(found.total.compute_ns, 10);
  EXPECT_EQ(found.total.idle_ns, 5);
  EXPECT_EQ(measure_rank(RankTimeline{}).total.span_ns, 0);
}

}  // namespace
}  // namespace vitrine
