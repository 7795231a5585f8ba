// What the recorder recorded comes back from the file, span by span.
#include <gtest/gtest.h>

#include "readers/kineto.h"
#include "support/temporary_folder.h"
#include "timeline/chrome_writer.h"
#include "timeline/recorder.h"
#include "timeline/synthetic_run.h"

namespace vitrine {
namespace {

RankTimeline written_and_read(const RankTimeline& timeline) {
  const TemporaryFolder folder;
  write_chrome_trace(timeline, folder / "rank0.json.gz");
  return read_kineto(folder / "rank0.json.gz");
}

// Everything of a span, with strings instead of their numbers and wall time instead of monotonic.
std::string describe(const RankTimeline& t, size_t i) {
  const Spans& s = t.spans;
  const Lane& lane = t.lanes[static_cast<size_t>(s.lane[i])];
  std::string text = std::to_string(s.start_ns[i] + t.wall_anchor_ns) + "+" +
                     std::to_string(s.duration_ns[i]) + " " + span_kind_name(s.kind[i]) + " \"" +
                     t.strings[s.name[i]] + "\" on " + lane.name +
                     (lane.device ? " (device) " : " ") + std::to_string(s.step[i]) + "/" +
                     std::to_string(s.micro_batch[i]) + " " + t.strings[s.block[i]];
  if (s.collective[i] < 0) return text;
  const Collective& c = t.collectives[static_cast<size_t>(s.collective[i])];
  text += " " + t.strings[c.name] + " " + t.strings[c.group] + " " + t.strings[c.dtype] + " of";
  for (const int32_t rank : c.ranks) text += " " + std::to_string(rank);
  for (const int64_t number :
       {c.sequence, c.in_elements, c.out_elements, c.sent_bytes, int64_t{c.peer}}) {
    text += " " + std::to_string(number);
  }
  return text;
}

void expect_same(const RankTimeline& expected, const RankTimeline& found) {
  EXPECT_EQ(found.rank, expected.rank);
  EXPECT_EQ(found.world_size, expected.world_size);
  EXPECT_EQ(found.source, expected.source);
  EXPECT_EQ(found.collectives.size(), expected.collectives.size());
  ASSERT_EQ(found.spans.size(), expected.spans.size());
  for (size_t i = 0; i < found.spans.size(); ++i) {
    EXPECT_EQ(describe(found, i), describe(expected, i));
    EXPECT_EQ(found.spans.correlation[i], expected.spans.correlation[i]);
  }
  ASSERT_EQ(found.memory.size(), expected.memory.size());
  for (size_t i = 0; i < found.memory.size(); ++i) {
    EXPECT_EQ(found.memory[i].time_ns + found.wall_anchor_ns,
              expected.memory[i].time_ns + expected.wall_anchor_ns);
    EXPECT_EQ(found.memory[i].bytes, expected.memory[i].bytes);
  }
  ASSERT_EQ(found.counters.size(), expected.counters.size());
  for (size_t i = 0; i < found.counters.size(); ++i) {
    EXPECT_EQ(found.counters[i].value, expected.counters[i].value);
    EXPECT_EQ(found.strings[found.counters[i].name], expected.strings[expected.counters[i].name]);
  }
  for (const auto& [key, value] : expected.info) EXPECT_EQ(found.info.at(key), value) << key;
}

TEST(RoundTrip, ASyntheticRunComesBackWhole) {
  const Timeline run = synthetic_run();
  for (const RankTimeline& rank : run.ranks) expect_same(rank, written_and_read(rank));
}

TEST(RoundTrip, WhatTheRecorderTookComesBackWhole) {
  RecorderOptions options;
  options.wait = 0, options.warmup = 0, options.active = 2;
  Recorder recorder(1, 2, options);
  recorder.set_info("device", "cpu \"test\"");
  const int32_t compute = recorder.lane("compute"), reduce = recorder.lane("reduce"),
                copy = recorder.lane("copy-in"), host = recorder.lane("loader", false);
  const int32_t group = recorder.group("stage0.reduce", {0, 1});
  bool closed = false;
  for (int64_t step = 5; step < 7; ++step) {
    recorder.begin_step(step);
    const auto span = [&](SpanKind kind, const char* name, int32_t lane) {
      SpanRecord record;
      record.start_ns = now_ns();
      while (now_ns() == record.start_ns) {
      }
      record.duration_ns = now_ns() - record.start_ns;
      record.name = recorder.intern(name);
      record.kind = kind;
      record.lane = lane;
      record.step = static_cast<int32_t>(step);
      record.micro_batch = 0;
      record.block = recorder.intern("body.1");
      return record;
    };
    recorder.span(span(SpanKind::kData, "next batch", host));
    recorder.span(span(SpanKind::kData, "next batch", compute));
    recorder.span(span(SpanKind::kForward, "forward body.1", compute));
    recorder.span(span(SpanKind::kSync, "wait for communication", compute));
    recorder.span(span(SpanKind::kCopy, "batch", copy));
    CollectiveRecord collective;
    collective.name = recorder.intern("reduce_scatter");
    collective.dtype = recorder.intern("f32");
    collective.group = group;
    collective.sequence = step - 5;
    collective.in_elements = 1001, collective.out_elements = 501, collective.sent_bytes = 2000;
    recorder.collective(span(SpanKind::kReduce, "reduce body.1", reduce), collective);
    recorder.memory_sample(now_ns(), {1, 2, 3, step, 5, 6, 7, 8});
    recorder.counter(recorder.intern("loss"), 0.1);
    closed = recorder.end_step();
  }
  ASSERT_TRUE(closed);
  const RankTimeline recorded = recorder.take();
  ASSERT_EQ(recorded.spans.size(), 14u);
  expect_same(recorded, written_and_read(recorded));
}

TEST(RoundTrip, ASecondRoundChangesNothing) {
  const RankTimeline once = written_and_read(synthetic_run().ranks[2]);
  expect_same(once, written_and_read(once));
}

}  // namespace
}  // namespace vitrine
