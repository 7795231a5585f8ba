// The critical path of a rank's steps and what-if: from the timeline, then once more when the other
// ranks are known.
#pragma once

#include "analysis/job_facts.h"
#include "analysis/rank_parts.h"

namespace vitrine {

// Looks at the first of the longest run of ordinary steps (none over 1.5 times the median): as many
// as have 40,000 launches and kernels, so that the cost doesn't grow with the trace, and one at
// least where it has no more than `most_nodes`.
constexpr size_t kMostPathNodes = 200'000;
PathFacts measure_path(const RankParts& parts,
                       const std::vector<CollectiveUse>& uses,
                       size_t most_nodes = kMostPathNodes);

// Parts waiting from moving data on the path, and answers what communication that is twice as fast
// or never waits would bring. Where most of a rank's communication was not matched: "not known".
void finish_paths(std::vector<RankFacts>& ranks, const std::vector<MatchedCollective>& collectives);

}  // namespace vitrine
