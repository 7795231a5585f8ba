// Whether what is summed over all ranks of a job fits 64 bits: asked once, of the whole of each
// rank, so that nothing that adds ranks up has to.
#pragma once

#include <cstdint>

#include "timeline/timeline.h"

namespace vitrine {

// Bounds of everything that is added up of a rank: the length of its spans and of its window, and
// the bytes that it moves or allocates. Readers bound both of one file (readers/far_times.h,
// readers/amounts.h); damaged files one after another still reach further than an integer.
struct RankSums {
  int64_t time_ns = 0, bytes = 0;
};
RankSums sums_of(const RankTimeline& timeline);

class JobSums {
 public:
  // A quarter of int64: sums of a sum and a few constants fit too.
  static constexpr int64_t kMost = int64_t{1} << 61;
  // False, and nothing is added, when it would lead beyond.
  bool add(const RankSums& rank);

 private:
  RankSums sums_;
};

}  // namespace vitrine
