// The step of the engine in time: discrete events over the schedules of all ranks, on one host
// whose processors they share.
#pragma once

#include <vector>

#include "plan/engine_memory.h"
#include "plan/measured_costs.h"
#include "schedule/action.h"

namespace vitrine {

// Begin and end of an action on its rank, from the step's start. `work_ns`: what it takes where
// nothing else runs and nobody is waited for; of the norm without its exchange.
struct ActionTime {
  double begin_ns = 0, end_ns = 0, work_ns = 0;
  double recompute_share = 0;  // of a backward's work
};

// The compute lane of a rank, which is the step: its parts add up to it.
struct EngineStepParts {
  double forward_ns = 0, recompute_ns = 0, backward_ns = 0;
  double optimizer_ns = 0;      // updates, and the norm without its exchange
  double communication_ns = 0;  // waiting for other lanes, and what communicates on this one
};

struct EngineRankTime {
  std::vector<ActionTime> actions;  // as in the schedule
  std::vector<ActionMoment> order;  // of their beginnings and ends: for engine_memory
  EngineStepParts parts;
  double end_ns = 0;
};

struct EngineStepTime {
  std::vector<EngineRankTime> ranks;
  double step_ns = 0;  // of the slowest rank
};

// `schedules`: of every rank of the mesh, by rank. How it runs: actions as the runner takes them; a
// collective begins when all its ranks have come to it, a send when its receiver has; a lane that
// waited for another takes the time of a hand-over. Where more is running than there are
// processors, everything slows alike. The next batch is there when it is asked for.
EngineStepTime simulate_engine(const Graph& graph,
                               const Strategy& strategy,
                               const std::vector<Schedule>& schedules,
                               const MeasuredCosts& costs);

}  // namespace vitrine
