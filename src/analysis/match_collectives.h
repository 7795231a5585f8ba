// Which calls of the ranks are one collective.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/job_facts.h"

namespace vitrine {

// Collectives with at least two members, by start of their first; members in order of arrival, with
// start and end but no waits yet. Times of rank i are its own plus offsets[i]; `same_clock` says
// whether these offsets come from wall clocks (a difference of the clocks that remains is tolerated
// by all but one-way links).
//
// Calls belong together by process group (its ranks; by name where these are not known; a kernel
// without arguments belongs to the only group of its lane), then by recorded sequence number, else
// by order (analysis/align_uses.h). Sends pair with their peer's receives. Kernels of no known
// group are tried as collectives of all ranks, and kept when the ranks leave them together; a
// "send_receive" of three or more ranks is then named "all_to_all", which NCCL makes of them.
//
// What can't be matched stays out; `warnings` says how much and why.
std::vector<MatchedCollective> match_collectives(const std::vector<RankFacts>& ranks,
                                                 const std::vector<int64_t>& offsets,
                                                 bool same_clock,
                                                 int32_t world_size,
                                                 std::vector<std::string>& warnings);

}  // namespace vitrine
