// Looks for them in one pass; only a trace that has some pays for more.
#include "readers/far_times.h"

#include <algorithm>
#include <cstddef>

#include "core/format.h"

namespace vitrine {
namespace {

bool within(int64_t time, int64_t middle) {
  // In unsigned arithmetic, since the distance may not fit.
  const uint64_t distance = time < middle
                                ? static_cast<uint64_t>(middle) - static_cast<uint64_t>(time)
                                : static_cast<uint64_t>(time) - static_cast<uint64_t>(middle);
  return distance <= static_cast<uint64_t>(kLongestRecordingNs);
}

// The middle of what there is most of.
int64_t middle_of(const RankTimeline& timeline) {
  std::vector<int64_t> times = timeline.spans.start_ns;
  if (times.empty()) {
    for (const auto& event : timeline.allocations) times.push_back(event.time_ns);
    for (const auto& sample : timeline.counters) times.push_back(sample.time_ns);
    for (const auto& sample : timeline.memory) times.push_back(sample.time_ns);
  }
  if (times.empty()) return 0;
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

struct Range {
  int64_t first = INT64_MAX, last = INT64_MIN;
  void add(int64_t time) { first = std::min(first, time), last = std::max(last, time); }
};

bool all_near(const RankTimeline& timeline) {
  Range range;
  int64_t longest = 0;
  uint64_t sum = 0;
  const Spans& spans = timeline.spans;
  for (size_t i = 0; i < spans.size(); ++i) {
    range.add(spans.start_ns[i]);
    longest = std::max(longest, spans.duration_ns[i]);
    // Of those that are no longer than they may be, 2^14 fit.
    sum = std::min<uint64_t>(sum + static_cast<uint64_t>(std::clamp<int64_t>(
                                       spans.duration_ns[i], 0, kLongestRecordingNs)),
                             uint64_t{1} << 62);
  }
  for (const auto& event : timeline.allocations) range.add(event.time_ns);
  for (const auto& sample : timeline.counters) range.add(sample.time_ns);
  for (const auto& sample : timeline.memory) range.add(sample.time_ns);
  if (range.first > range.last) return true;
  return within(range.last, range.first) && longest <= kLongestRecordingNs &&
         sum <= static_cast<uint64_t>(kMostSpanTimeNs);
}

template <typename T>
void keep(std::vector<T>& column, const std::vector<uint32_t>& kept) {
  for (size_t i = 0; i < kept.size(); ++i) column[i] = column[kept[i]];
  column.resize(kept.size());
}

}  // namespace

void leave_out_far_times(RankTimeline& timeline) {
  if (all_near(timeline)) return;
  const int64_t middle = middle_of(timeline);
  Spans& spans = timeline.spans;
  size_t left_out = 0;
  int64_t first = 0, sum = 0;
  const auto leave = [&](int64_t time) {
    if (left_out++ == 0) first = time;
  };
  std::vector<uint32_t> kept;
  for (size_t i = 0; i < spans.size(); ++i) {
    const int64_t duration = spans.duration_ns[i];
    if (!within(spans.start_ns[i], middle) || duration > kLongestRecordingNs ||
        std::max<int64_t>(0, duration) > kMostSpanTimeNs - sum) {
      leave(spans.start_ns[i]);
      continue;
    }
    sum += std::max<int64_t>(0, duration);
    kept.push_back(static_cast<uint32_t>(i));
  }
  keep(spans.start_ns, kept), keep(spans.duration_ns, kept), keep(spans.name, kept);
  keep(spans.kind, kept), keep(spans.lane, kept), keep(spans.step, kept);
  keep(spans.micro_batch, kept), keep(spans.block, kept), keep(spans.collective, kept);
  keep(spans.correlation, kept), keep(spans.bytes, kept), keep(spans.shapes, kept);
  const auto erase = [&](auto& samples) {
    std::erase_if(samples, [&](const auto& sample) {
      if (within(sample.time_ns, middle)) return false;
      leave(sample.time_ns);
      return true;
    });
  };
  erase(timeline.allocations), erase(timeline.counters), erase(timeline.memory);
  timeline.warnings.push_back(
      format("%zu events lie more than 13 days from the others, or last longer than a recording "
             "can: they are left out (the first at %lld ns)",
             left_out,
             static_cast<long long>(first)));
}

}  // namespace vitrine
