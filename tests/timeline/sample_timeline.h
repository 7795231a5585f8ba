// A small timeline of two steps with every kind of record, for tests.
#pragma once

#include "timeline/timeline.h"

namespace vitrine {

inline void add_span(RankTimeline& timeline,
                     int64_t start,
                     int64_t duration,
                     SpanKind kind,
                     const std::string& name,
                     int32_t lane,
                     int32_t step,
                     int32_t micro_batch = -1,
                     const std::string& block = "",
                     int64_t correlation = 0,
                     int32_t collective = -1) {
  Spans& spans = timeline.spans;
  spans.start_ns.push_back(start), spans.duration_ns.push_back(duration);
  spans.kind.push_back(kind), spans.name.push_back(timeline.strings.intern(name));
  spans.lane.push_back(lane), spans.step.push_back(step), spans.micro_batch.push_back(micro_batch);
  spans.block.push_back(timeline.strings.intern(block)), spans.correlation.push_back(correlation);
  spans.bytes.push_back(0), spans.shapes.push_back(kNoString);
  spans.collective.push_back(collective);
}

// Times begin at 1 ms; `rank` of two ranks.
inline RankTimeline sample_timeline(int32_t rank = 0) {
  RankTimeline out;
  out.rank = rank, out.world_size = 2, out.source = "recorded";
  out.wall_anchor_ns = 1700000000000000000;
  out.info = {{"device", "cpu"}, {"backend", "gloo"}};
  out.lanes = {{"compute", true, 0}, {"gather", true, 1}, {"steps", false, 2}, {"host", false, 3}};
  for (int32_t step = 0; step < 2; ++step) {
    const int64_t t = 1000000 + step * 100000;
    Collective gather;
    gather.name = out.strings.intern("all_gather");
    gather.group = out.strings.intern("data");
    gather.ranks = {0, 1};
    gather.sequence = step;
    gather.in_elements = 500, gather.out_elements = 1000, gather.sent_bytes = 1000;
    gather.dtype = out.strings.intern("bf16");
    out.collectives.push_back(gather);
    add_span(out, t, 90001, SpanKind::kStep, "step", 2, step);
    add_span(out, t + 1000, 5000, SpanKind::kData, "next batch", 3, step);
    add_span(
        out, t + 7000, 20123, SpanKind::kGather, "gather body.0", 1, step, 0, "body.0", 0, step);
    add_span(out, t + 20000, 30000, SpanKind::kForward, "forward body.0", 0, step, 0, "body.0");
    add_span(out, t + 50000, 35000, SpanKind::kBackward, "backward body.0", 0, step, 0, "body.0");
    out.memory.push_back({t, {100, 200, 300, 400, 0, 0, 50, 0}});
    out.memory.push_back({t + 50000, {100, 200, 300, 900, 0, 10, 50, 0}});
    out.counters.push_back({t + 90000, out.strings.intern("loss"), 2.5 - step});
  }
  return out;
}

}  // namespace vitrine
