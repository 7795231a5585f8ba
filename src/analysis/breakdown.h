// Where the time of a rank and of each of its steps goes, exact in integer nanoseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "timeline/timeline.h"

namespace vitrine {

// Each moment counts once, for the first of: compute, communication, copy, data wait; else it is
// idle:
//   compute + exposed_communication + exposed_copy + data_wait + idle == span.
// Compute, communication and copies are spans on device lanes (the engine's lanes are device
// lanes); data waits count on any lane. Unions, never sums: two kernels at once are busy once.
struct Breakdown {
  int64_t span_ns = 0;
  int64_t compute_ns = 0;
  int64_t exposed_communication_ns = 0;  // not hidden behind compute
  int64_t exposed_copy_ns = 0;           // copies and disk, not hidden behind either
  int64_t data_wait_ns = 0;
  int64_t idle_ns = 0;

  int64_t communication_ns = 0;  // hidden or not
  int64_t overlap_ns = 0;        // communication hidden behind compute
};

struct StepBreakdown {
  int32_t step;
  int64_t start_ns;
  Breakdown time;
};

struct RankBreakdown {
  int32_t rank = 0;
  // Over all steps of the timeline; without step spans, from the first span's start to the last
  // one's end.
  Breakdown whole;
  std::vector<StepBreakdown> steps;  // in order of start
};

RankBreakdown breakdown(const RankTimeline& timeline);

}  // namespace vitrine
