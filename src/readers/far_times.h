// Times that can't be those of one recording.
#pragma once

#include "timeline/timeline.h"

namespace vitrine {

// No recording lasts 2^50 ns (13 days), and its spans together no 2^55 ns (417 days on all
// threads and streams): a clock that was not set, or damage, gives such times. Spans, samples and
// allocations that lie further than that from the middle one, and spans that last longer or would
// lead beyond the sum, are left out with one warning. What stays can be summed.
constexpr int64_t kLongestRecordingNs = int64_t{1} << 50;
constexpr int64_t kMostSpanTimeNs = int64_t{1} << 55;
void leave_out_far_times(RankTimeline& timeline);

}  // namespace vitrine
