// Which units ZeRO-3 gathers when: intervals over the order of compute.
#pragma once

#include <string>
#include <vector>

#include "schedule/action.h"

namespace vitrine {

// Consecutive uses of one sharded unit that one gather serves.
struct GatherInterval {
  int unit = -1;
  int first = 0, last = 0;  // positions in the order of compute
  int start = 0;            // the position before which the gather may be issued
};

struct GatherPlan {
  std::vector<GatherInterval> intervals;  // by first use, and by start
  std::vector<std::string> skipped;  // "embed in backward: kept from its forward", ... each once
};

// Units whose values a block's forward (or backward) reads.
std::vector<int> units_read(const Graph& graph, int block, bool backward, bool recompute);

// As early as `prefetch_elements` (of what is in flight before a unit) and `max_live_elements`
// allow, kept where the next use is within `max_reuse_distance`; without overlap right before the
// first use.
GatherPlan plan_gathers(const Graph& graph,
                        const Strategy& strategy,
                        const std::vector<int>& blocks,
                        const std::vector<ComputeOp>& order);

}  // namespace vitrine
