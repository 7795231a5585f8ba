// Memory of a job that this engine runs on GPUs: each stage's own schedule, replayed.
#pragma once

#include <vector>

#include "plan/model_shape.h"
#include "plan/stage_memory.h"

namespace vitrine {

// Whether the engine runs such a strategy of such a model (one of its own; data ranks and pipeline
// stages, ZeRO 0 to 3, everything in the card's memory).
bool engine_runs(const ModelShape& model, const ClusterStrategy& strategy);

// By stage; of the rank that holds most. What communicates is done before the compute lane goes on,
// as a host that runs ahead of its card allocates. `bytes` is what the engine's ledger counts;
// scratch of kernels is with the context. Without loading of data. Throws what the engine
// throws for a strategy that it does not run.
std::vector<StageMemory> engine_stage_memory(const ModelShape& model,
                                             const ClusterStrategy& strategy,
                                             const Cluster& cluster);

}  // namespace vitrine
