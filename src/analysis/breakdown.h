// Where the time of a rank and of each of its steps goes, exact in integer nanoseconds.
#pragma once

#include <cstdint>

namespace vitrine {

// Each moment counts once, for the first of: compute, communication, copy; else it is idle:
//   compute + exposed_communication + exposed_copy + idle == span.
// Of device lanes (the engine's lanes are device lanes). Unions, never sums: two kernels at once
// are busy once. Why it was idle, IdleByCause tells.
struct Breakdown {
  int64_t span_ns = 0;
  int64_t compute_ns = 0;
  int64_t exposed_communication_ns = 0;  // not hidden behind compute
  int64_t exposed_copy_ns = 0;           // copies and disk, not hidden behind either
  int64_t idle_ns = 0;

  int64_t communication_ns = 0;  // hidden or not
  int64_t overlap_ns = 0;        // communication hidden behind compute
};

}  // namespace vitrine
