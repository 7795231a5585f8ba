// What bounds the step of a strategy from below, and what a slower one pays for.
#pragma once

#include <string>

#include "plan/predict.h"

namespace vitrine {

// Nanoseconds; no step of the strategy is shorter: the work of the stage that has most of it, and
// where stages end together what the others do before its first and after its last micro-batch.
double least_step_ns(Planner& planner, const ClusterStrategy& strategy);

// "slower: pipeline bubble": the largest thing that the strategy pays and the best (of step
// `best_ns`) does not, from what bounds their steps.
std::string slower_because(Planner& planner,
                           const ClusterStrategy& strategy,
                           const ClusterStrategy& best,
                           double best_ns);

}  // namespace vitrine
