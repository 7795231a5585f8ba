// Sums that stop at their bound.
#include "inspect/job_sums.h"

#include <algorithm>

namespace vitrine {
namespace {

constexpr int64_t kElementBytes = 8;  // of the widest dtype

void add(int64_t value, int64_t& sum) {
  const int64_t size = value < 0 ? (value == INT64_MIN ? INT64_MAX : -value) : value;
  sum = size > JobSums::kMost - sum ? JobSums::kMost : sum + size;
}

void add_elements(int64_t count, int64_t& sum) {
  add(std::clamp<int64_t>(count, 0, JobSums::kMost / kElementBytes) * kElementBytes, sum);
}

}  // namespace

RankSums sums_of(const RankTimeline& timeline) {
  RankSums out;
  const Spans& spans = timeline.spans;
  int64_t first = INT64_MAX, last = INT64_MIN;
  for (size_t i = 0; i < spans.size(); ++i) {
    add(spans.duration_ns[i], out.time_ns);
    add(spans.bytes[i], out.bytes);
    first = std::min(first, spans.start_ns[i]);
    last = std::max(last, spans.start_ns[i]);
  }
  int64_t window = 0;
  if (first <= last) {
    add(__builtin_sub_overflow(last, first, &window) ? JobSums::kMost : window, out.time_ns);
  }
  for (const Collective& collective : timeline.collectives) {
    add_elements(collective.in_elements, out.bytes);
    add_elements(collective.out_elements, out.bytes);
    add(collective.sent_bytes, out.bytes);
  }
  for (const AllocationEvent& event : timeline.allocations) add(event.bytes, out.bytes);
  return out;
}

bool JobSums::add(const RankSums& rank) {
  if (rank.time_ns > kMost - sums_.time_ns || rank.bytes > kMost - sums_.bytes) return false;
  sums_.time_ns += rank.time_ns, sums_.bytes += rank.bytes;
  return true;
}

}  // namespace vitrine
