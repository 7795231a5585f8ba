// A run file's strategy as one that is planned for a cluster.
#pragma once

#include "config/run_config.h"
#include "plan/cluster_strategy.h"

namespace vitrine {

// As the engine runs it: own_engine, its fused loss, its dtypes and buckets.
ClusterStrategy strategy_of_run(const RunConfig& config);

}  // namespace vitrine
