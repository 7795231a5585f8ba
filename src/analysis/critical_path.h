// The critical path of a rank's steps and what-if: from the timeline, then once more when the other
// ranks are known.
#pragma once

#include "analysis/job_facts.h"
#include "analysis/rank_parts.h"

namespace vitrine {

// Looks at the longest run of ordinary steps (none over 1.5 times the median) whose launches and
// kernels number at most `most_nodes`, so that its cost doesn't grow with the trace.
constexpr size_t kMostPathNodes = 200'000;
PathFacts measure_path(const RankParts& parts,
                       const std::vector<CollectiveUse>& uses,
                       size_t most_nodes = kMostPathNodes);

// Parts waiting from moving data on the path, and answers what communication that is twice as fast
// or never waits would bring. Where most of a rank's communication was not matched: "not known".
void finish_paths(std::vector<RankFacts>& ranks, const std::vector<MatchedCollective>& collectives);

}  // namespace vitrine
