// Waiting told from transfer inside matched collectives.
#pragma once

#include <vector>

#include "analysis/job_facts.h"

namespace vitrine {

// Fills the members' waits, transfer and skews of every collective; bandwidths are bandwidth.h's.
// The collectives' times are on the job's clock.
//
// A member waits until the latest one arrives, but never so long that less of its kernel is left
// than the quickest member needed for the whole: the transfer. In a broadcast the root waits for
// nobody, and a buffered send for no receive: their kernels are short, and so is their wait.
//
// Which part of a collective is exposed is known in length only: what this rank's compute does
// inside it is looked up in RankFacts::work, spread evenly over a piece, within the bounds that
// CollectiveUse::exposed_ns leaves; without pieces compute is taken to come first, so that the
// transfer is exposed before the wait.
void tell_waits(const std::vector<RankFacts>& ranks, std::vector<MatchedCollective>& collectives);

// Per rank: waits by whom they were for, exposed transfer, and communication that was not matched.
std::vector<RankWaits> sum_waits(const std::vector<RankFacts>& ranks,
                                 const std::vector<MatchedCollective>& collectives);

// Whether the order of arrival of this collective names a latest rank that others waited for.
// Skews below the clocks' uncertainty do not.
bool arrival_known(const MatchedCollective& collective, const std::vector<RankClock>& clocks);

}  // namespace vitrine
