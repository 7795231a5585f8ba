// The page's clock: integer nanoseconds since the first thing that is shown of any rank.
#pragma once

#include <cstdint>
#include <map>

#include "report/report.h"

namespace vitrine {

class PageClock {
 public:
  // `input.timelines` decide where time begins; without them the measured windows do.
  explicit PageClock(const ReportInput& input);

  // A time of the rank's own clock. A rank that is not known has no shift.
  int64_t at(int32_t rank, int64_t ns) const { return ns + shift(rank) - origin_; }
  // A time of the job's common clock.
  int64_t at_job(int64_t ns) const { return ns - origin_; }
  int64_t end_ns() const { return end_ - origin_; }

 private:
  int64_t shift(int32_t rank) const;
  std::map<int32_t, int64_t> shifts_;
  int64_t origin_ = 0, end_ = 1;
};

}  // namespace vitrine
