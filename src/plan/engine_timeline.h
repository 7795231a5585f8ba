// A simulated step of the engine as the recorder would have recorded it.
#pragma once

#include "plan/engine_time.h"
#include "timeline/timeline.h"

namespace vitrine {

// Lanes, names, kinds, collectives and memory samples are those of a recorded run, so that readers
// and the analysis need not know the difference. `description`: of the model.
RankTimeline engine_timeline(const Graph& graph,
                             const Strategy& strategy,
                             const Schedule& schedule,
                             const EngineRankTime& time,
                             const EngineMemory& memory,
                             const std::string& description);

}  // namespace vitrine
