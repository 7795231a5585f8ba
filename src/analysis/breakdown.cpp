// Four interval sets a rank, cut by step windows.
#include "analysis/breakdown.h"

#include <algorithm>
#include <limits>

#include "analysis/device_time.h"

namespace vitrine {

namespace {

struct Sets {
  DeviceSets device;
  IntervalSet data;
};

Sets sets_of(const RankTimeline& timeline) {
  std::vector<Interval> work[3], data;
  const Spans& spans = timeline.spans;
  for (size_t i = 0; i < spans.size(); ++i) {
    const Interval interval{spans.start_ns[i], spans.start_ns[i] + spans.duration_ns[i]};
    const SpanKind kind = spans.kind[i];
    if (kind == SpanKind::kData) data.push_back(interval);
    if (!timeline.lanes[static_cast<size_t>(spans.lane[i])].device) continue;
    const DeviceUse use = device_use(kind);
    if (use != DeviceUse::kNone) work[static_cast<size_t>(use)].push_back(interval);
  }
  return {{IntervalSet(std::move(work[0])),
           IntervalSet(std::move(work[1])),
           IntervalSet(std::move(work[2]))},
          IntervalSet(std::move(data))};
}

Breakdown within(const Sets& sets, Interval window) {
  Breakdown out = breakdown_within(sets.device, window);
  const DeviceSets& device = sets.device;
  const IntervalSet busy =
      unite(unite(device.compute.clip(window), device.communication.clip(window)),
            device.copy.clip(window));
  out.data_wait_ns = subtract(sets.data.clip(window), busy).length();
  out.idle_ns -= out.data_wait_ns;
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
