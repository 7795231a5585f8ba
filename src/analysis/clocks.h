// How far the ranks' clocks are apart, as far as their common collectives tell.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/job_facts.h"

namespace vitrine {

// Offsets by the wall-clock anchors alone: what is added to a rank's own times to count from the
// first rank's anchor. Files without an anchor have times since the epoch, or of a clock unknown.
std::vector<int64_t> anchor_offsets(const std::vector<RankFacts>& ranks);
// Whether those offsets can be trusted to some milliseconds: the ranks' windows then lie within an
// hour of each other. Else the anchors are of clocks that have nothing in common.
bool anchors_agree(const std::vector<RankFacts>& ranks, const std::vector<int64_t>& offsets);

// Clock of every rank against the first one's. No member of an all-reduce (all-gather,
// reduce-scatter, all-to-all, barrier) ends before the last one has come, and all end within some
// microseconds: the median difference of ends is the difference of the clocks, half the range of
// the middle 80 % its uncertainty. Ranks that share no collective with the first are reached
// through others, uncertainties add up. `collectives`: with times by `offsets`.
std::vector<RankClock> estimate_clocks(const std::vector<RankFacts>& ranks,
                                       const std::vector<int64_t>& offsets,
                                       bool same_clock,
                                       const std::vector<MatchedCollective>& collectives);

// Moves the members' times from `offsets` to `clocks`, and sorts members and collectives by start.
void apply_clocks(const std::vector<int64_t>& offsets,
                  const std::vector<RankClock>& clocks,
                  std::vector<MatchedCollective>& collectives);

}  // namespace vitrine
