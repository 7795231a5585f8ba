// Steps that took much longer than a rank's others, and what they have more of.
#pragma once

#include <vector>

#include "analysis/job_facts.h"

namespace vitrine {

// Of a rank with at least 4 steps, those over 10 % and over 5 robust standard deviations (1.4826
// median deviations, at least 1 %) longer than the median. The first recorded step is told apart:
// starting the profiler and the caches make it long; its cause is "first step", unless the
// allocator explains it. Else the cause is the part of the step with the largest excess, "unknown"
// where that is less than a third; a longer "compute" with as many kernels is the card's clock or
// another job. "collective" is followed: what other ranks were waited for is in the evidence.
std::vector<OutlierStep> find_outliers(const std::vector<RankFacts>& ranks,
                                       const std::vector<MatchedCollective>& collectives);

}  // namespace vitrine
