// Four interval sets a rank, cut by step windows.
#include "analysis/breakdown.h"

#include <algorithm>
#include <limits>

#include "analysis/intervals.h"

namespace vitrine {

namespace {

struct Sets {
  IntervalSet compute, communication, copy, data;
};

bool is_compute(SpanKind kind) {
  return kind == SpanKind::kForward || kind == SpanKind::kRecompute ||
         kind == SpanKind::kBackward || kind == SpanKind::kOptimizer ||
         kind == SpanKind::kOperation || kind == SpanKind::kKernel;
}

Sets sets_of(const RankTimeline& timeline) {
  std::vector<Interval> compute, communication, copy, data;
  const Spans& spans = timeline.spans;
  for (size_t i = 0; i < spans.size(); ++i) {
    const Interval interval{spans.start_ns[i], spans.start_ns[i] + spans.duration_ns[i]};
    const SpanKind kind = spans.kind[i];
    if (kind == SpanKind::kData) data.push_back(interval);
    if (!timeline.lanes[static_cast<size_t>(spans.lane[i])].device) continue;
    if (is_compute(kind)) compute.push_back(interval);
    if (is_communication(kind)) communication.push_back(interval);
    if (kind == SpanKind::kCopy || kind == SpanKind::kDisk) copy.push_back(interval);
  }
  return {IntervalSet(std::move(compute)),
          IntervalSet(std::move(communication)),
          IntervalSet(std::move(copy)),
          IntervalSet(std::move(data))};
}

Breakdown within(const Sets& sets, Interval window) {
  const IntervalSet compute = sets.compute.clip(window);
  const IntervalSet communication = sets.communication.clip(window);
  Breakdown out;
  out.span_ns = window.end - window.begin;
  out.compute_ns = compute.length();
  out.communication_ns = communication.length();
  out.overlap_ns = intersect(compute, communication).length();
  out.exposed_communication_ns = out.communication_ns - out.overlap_ns;
  IntervalSet busy = unite(compute, communication);
  const IntervalSet copy = sets.copy.clip(window);
  out.exposed_copy_ns = subtract(copy, busy).length();
  busy = unite(busy, copy);
  const IntervalSet data = sets.data.clip(window);
  out.data_wait_ns = subtract(data, busy).length();
  out.idle_ns = out.span_ns - unite(busy, data).length();
  return out;
}

void add(Breakdown& sum, const Breakdown& part) {
  sum.span_ns += part.span_ns;
  sum.compute_ns += part.compute_ns;
  sum.exposed_communication_ns += part.exposed_communication_ns;
  sum.exposed_copy_ns += part.exposed_copy_ns;
  sum.data_wait_ns += part.data_wait_ns;
  sum.idle_ns += part.idle_ns;
  sum.communication_ns += part.communication_ns;
  sum.overlap_ns += part.overlap_ns;
}

}  // namespace

RankBreakdown breakdown(const RankTimeline& timeline) {
  RankBreakdown out;
  out.rank = timeline.rank;
  const Sets sets = sets_of(timeline);
  const Spans& spans = timeline.spans;
  Interval all{std::numeric_limits<int64_t>::max(), std::numeric_limits<int64_t>::min()};
  for (size_t i = 0; i < spans.size(); ++i) {
    const Interval window{spans.start_ns[i], spans.start_ns[i] + spans.duration_ns[i]};
    all.begin = std::min(all.begin, window.begin);
    all.end = std::max(all.end, window.end);
    if (spans.kind[i] != SpanKind::kStep) continue;
    out.steps.push_back({spans.step[i], window.begin, within(sets, window)});
  }
  std::sort(out.steps.begin(), out.steps.end(), [](const StepBreakdown& a, const StepBreakdown& b) {
    return a.start_ns < b.start_ns;
  });
  for (const StepBreakdown& step : out.steps) add(out.whole, step.time);
  if (out.steps.empty() && spans.size() > 0) out.whole = within(sets, all);
  return out;
}

}  // namespace vitrine
