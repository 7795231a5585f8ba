// Shifts of the ranks, and the first moment.
#include "report/page_clock.h"

#include <algorithm>
#include <limits>

namespace vitrine {

PageClock::PageClock(const ReportInput& input) {
  if (input.job != nullptr) {
    for (size_t i = 0; i < input.job->ranks.size(); ++i) {
      shifts_[input.job->ranks[i].rank] =
          i < input.job->clocks.size() ? input.job->clocks[i].offset_ns : 0;
    }
  } else if (std::all_of(input.timelines.begin(), input.timelines.end(), [](const auto& blob) {
               return blob.wall_anchor_ns != 0;
             })) {
    for (const auto& blob : input.timelines) shifts_[blob.rank] = blob.wall_anchor_ns;
  }
  int64_t first = std::numeric_limits<int64_t>::max(), last = std::numeric_limits<int64_t>::min();
  const auto cover = [&](int32_t rank, int64_t begin, int64_t end) {
    if (begin >= end) return;
    first = std::min(first, begin + shift(rank));
    last = std::max(last, end + shift(rank));
  };
  for (const auto& blob : input.timelines) cover(blob.rank, blob.begin_ns, blob.end_ns);
  if (first > last && input.job != nullptr) {
    for (const auto& rank : input.job->ranks) {
      cover(rank.rank, rank.begin_ns, rank.end_ns);
      for (const auto& step : rank.steps) {
        cover(rank.rank, step.start_ns, step.start_ns + step.duration_ns);
      }
    }
  }
  if (first > last) return;
  origin_ = first;
  end_ = last;
}

int64_t PageClock::shift(int32_t rank) const {
  const auto it = shifts_.find(rank);
  return it == shifts_.end() ? 0 : it->second;
}

}  // namespace vitrine
