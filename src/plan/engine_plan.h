// The plan of a run file on CPU ranks: the engine's own schedules, their memory and their time.
#pragma once

#include <string>
#include <vector>

#include "config/run_config.h"
#include "core/json_fwd.h"
#include "machines/measured.h"
#include "plan/engine_memory.h"
#include "plan/engine_time.h"
#include "timeline/timeline.h"

namespace vitrine {

struct EnginePlanRank {
  int rank = 0;
  // Of the prompt and the late order the fuller one, each category at the higher of both: compute
  // threads take all processors, so that gathers run ahead while reductions lag behind (measured;
  // the simulated order, which the timeline's samples follow, has it less).
  EngineMemory memory;
  // Each category at the lower of both orders: what a run shows lies between (how far a reduction
  // lags is up to the system's scheduler, and differs between ranks of one run).
  MemoryByCategory least{};
  std::string peak_moment;  // "backward of body.2, micro-batch 0"
  int64_t most_bytes = 0;   // the highest of the late, the prompt and the simulated order
  TrafficCount traffic;     // of a step
  double step_ns = 0;       // 0 without a profile
  EngineStepParts parts;
};

struct EnginePlan {
  std::string description;     // of the model
  std::string unit;            // "tokens", "frames"
  int ranks = 1, threads = 0;  // compute threads of a rank; 0 without a profile
  int64_t parameters = 0, global_batch = 0;
  std::vector<EnginePlanRank> by_rank;
  double step_ns = 0, units_per_s = 0;  // 0 without a profile
  Timeline timeline;                    // origin "predicted"; without ranks where no profile is
  std::vector<std::string> notes;       // what the prediction assumes or had to guess
  int fullest_rank() const;
};

// Of one step of `config` on `ranks` local ranks (the mesh of `config` must be of as many). A world
// model that is unrolled in phases is planned at its longest unroll, beside the scratch of the
// others. `profile` null: memory alone. Throws ConfigError for what
// the engine would refuse, and for a profile that lacks what the plan needs.
EnginePlan plan_engine(const RunConfig& config, int ranks, const MeasuredMachine* profile);

// All figures, without the timeline.
Json engine_plan_json(const EnginePlan& plan);
// For a terminal, some twenty lines.
std::string engine_plan_text(const EnginePlan& plan);

}  // namespace vitrine
