// A DeepSpeed configuration as a strategy to plan with.
#pragma once

#include <string>
#include <vector>

#include "config/remark.h"
#include "core/json_fwd.h"
#include "plan/cluster_strategy.h"

namespace vitrine {

struct DeepSpeedPlan {
  ClusterStrategy strategy;
  std::vector<Remark> remarks;  // an answer for every key, from the planner's side
};

// Reads `file` (a DeepSpeed configuration, or a run file with such keys) for a job on `mesh`. What
// is left out or "auto" is DeepSpeed's default, not the engine's: buckets of 5e8 elements,
// gradients in the 16-bit type. Throws ConfigError with every wrong key and contradiction, one a
// line.
//
// hpZ and MiCS become shard_group; NVMe is the disk tier; gradients go to the host with the
// optimizer, as in ZeRO-Offload.
DeepSpeedPlan strategy_from_deepspeed(const Json& file, const Mesh& mesh, int64_t sequence);

}  // namespace vitrine
