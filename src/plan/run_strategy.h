// A run file's strategy as one that is planned for a cluster, and back.
#pragma once

#include "config/run_config.h"
#include "plan/cluster_strategy.h"

namespace vitrine {

// As the engine runs it: own_engine, its fused loss, its dtypes and buckets.
ClusterStrategy strategy_of_run(const RunConfig& config);
// What the engine is given for it; of strategies that it runs (engine_runs()).
Strategy engine_strategy(const ClusterStrategy& strategy);

}  // namespace vitrine
