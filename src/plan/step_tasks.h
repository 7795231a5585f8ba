// The tasks of one step: every piece of work, collective and message, and what each waits for.
#pragma once

#include <vector>

#include "plan/unfold.h"

namespace vitrine {

constexpr int kStepLanes = 3;

struct StepTask {
  StepEvent event;  // without times
  double duration = 0;
  std::vector<int> after;  // tasks
};

// In the order of their lanes. Throws ConfigError where the events would be over 20 million.
std::vector<StepTask> step_tasks(const ClusterStrategy& strategy, const StepPieces& pieces);

}  // namespace vitrine
