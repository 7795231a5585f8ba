// A pipeline's bubbles by stage, against what its schedule has to have.
#pragma once

#include <optional>
#include <vector>

#include "analysis/job_facts.h"
#include "analysis/pipeline_stages.h"

namespace vitrine {

// Nothing when the ranks form no pipeline.
//
// A stage's step is the time from its first to its last device work: compute, exposed transfer of
// messages, bubble, idle because of its own host, and the rest (other collectives, copies). The
// bubble is exposed waiting in messages, and idleness that its host does not explain. Of it, what a
// balanced pipeline of the same compute would have, (p - 1) times a micro-batch's mean forward and
// backward over the stages and chunks, is the schedule's; the rest is waiting for a late stage.
//
// Order: the compute of the last stage tells: all forwards before the first backward are GPipe,
// forward and backward in turn are 1F1B; several chunks are interleaved.
std::optional<PipelineFacts> measure_pipeline(const std::vector<RankFacts>& ranks,
                                              const std::vector<RankClock>& clocks,
                                              const std::vector<MatchedCollective>& collectives);

// The chart's cells: compute of one micro-batch in one direction on one rank. Where the trace names
// micro-batches they are taken from it; else forwards end at the send of their activations,
// backwards at the send of their gradients, and those of a stage that sends none begin where what
// they need was received.
std::vector<PipelineFacts::Cell> pipeline_cells(const std::vector<RankFacts>& ranks,
                                                const std::vector<RankClock>& clocks,
                                                const StageMap& map,
                                                bool alternating);

}  // namespace vitrine
