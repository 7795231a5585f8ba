// Collectives by kind: how often, how long, how fast against the link.
#pragma once

#include <string>
#include <vector>

#include "analysis/job_facts.h"

namespace vitrine {

// What a collective of `ranks` members moves over each link for every byte of its message, as
// nccl-tests have it: all-reduce 2 (n - 1) / n; all-gather, reduce-scatter, all-to-all (n - 1) / n;
// else 1. 0 where the name is not known.
double bus_factor(const std::string& name, int32_t ranks);

// Fills algorithm and bus bandwidth of whole collectives whose message is known: bytes over the
// transfer, which is without waiting.
void fill_bandwidths(std::vector<MatchedCollective>& collectives);

// By name and group, matched or not; most exposed first. The expected bandwidth is given where all
// ranks have the same known card with a link of its own, lie on one host as far as is known, and
// are no more than such a host has (8).
std::vector<CollectiveKind> collective_kinds(const std::vector<RankFacts>& ranks,
                                             const std::vector<RankClock>& clocks,
                                             const std::vector<MatchedCollective>& collectives);

}  // namespace vitrine
