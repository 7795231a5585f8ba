// Which rank the others wait for, beyond chance, and why it is late.
#pragma once

#include <string>
#include <vector>

#include "analysis/job_facts.h"

namespace vitrine {

// Blame for each wait in a collective goes to the rank that arrived last; as far as that rank was
// itself kept waiting since their last common collective, longer than the one that waits now, the
// blame is passed on to the ranks it had waited for. Waits in messages between single ranks (a
// pipeline's) are followed but not counted: there waiting is part of the schedule.
//
// A straggler is blamed more often than a fair die of that many ranks would have it: a binomial
// test over steps, or, with fewer than 10 of them, over collectives with a noticeable wait (over 20
// us, over the clocks' uncertainty and over 0.1 % of the step), fewer by how much they hang
// together; p < 0.01 after correction for the number of ranks. It is so in more than half of the
// steps, and costs the others at least 1 % of the step in exposed waiting, but no more than what it
// has more of than they (they may wait for it with work of their own still to do).
StragglerFacts find_stragglers(const std::vector<RankFacts>& ranks,
                               const std::vector<RankClock>& clocks,
                               const std::vector<MatchedCollective>& collectives);

// Fills reason, evidence and `more`: what this rank has more of, a step, than the median of the
// others; "unknown" where nothing makes up a third of the cost.
void explain_straggler(const std::vector<RankFacts>& ranks, Straggler& straggler);

}  // namespace vitrine
