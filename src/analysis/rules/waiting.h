// What ranks wait for in collectives, and the late rank's own reason. Shared by straggler and
// collective_wait.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "analysis/rules/job_view.h"

namespace vitrine {

// What the rank has beyond the usual of the others: the largest of its idle causes and its compute.
struct OwnReason {
  // "host", "input", "compute", "copy", "region"; "" where it has nothing beyond the others.
  std::string kind;
  std::string text;  // with numbers
  int64_t excess_ns = 0;
};
OwnReason own_reason(const JobView& view, int32_t rank);

// Exposed waiting over all ranks by whom they waited for, most first.
std::vector<std::pair<int32_t, int64_t>> waited_for(const JobFacts& job);
// The longest waits, as places to jump to.
void add_longest_waits(const JobView& view, size_t most, std::vector<Evidence>& out);
// Ways to mend it by its kind.
std::vector<std::string> fixes_for(const std::string& kind);

// Part of the mean waiting in which the waiting rank's own host was loading data: charged to
// input_starvation already.
int64_t starvation_seen_as_wait(const JobView& view);

}  // namespace vitrine
