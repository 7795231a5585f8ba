// Strategies as JSON: what `vitrine plan --strategy FILE` reads and `--json` prints.
#pragma once

#include "core/json_fwd.h"
#include "plan/cluster_strategy.h"

namespace vitrine {

// Every field, under the names of docs/formats/plan.md.
Json strategy_json(const ClusterStrategy& strategy);

// The fields of `json` over `base`. Degrees that are left out stay `base`'s; `data` 0 is left for
// the caller to fill. Throws ConfigError naming the key, with the nearest known one.
ClusterStrategy strategy_from_json(const Json& json,
                                   const std::string& source,
                                   const ClusterStrategy& base);

// "data 8 x tensor 8 x pipeline 2, ZeRO-1, full recomputation, micro-batch 1, interleaved x 4".
std::string describe_strategy(const ClusterStrategy& strategy);

}  // namespace vitrine
