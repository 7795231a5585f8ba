// A strategy for tests of whole steps: four micro-batches of one sequence a stage and data rank.
#pragma once

#include "plan/cluster_strategy.h"

namespace vitrine {

inline ClusterStrategy step_strategy(int data, int tensor, int pipeline, int zero) {
  ClusterStrategy s;
  s.mesh = {data, tensor, pipeline, 1};
  s.sequence = 2048;
  s.sequence_parallel = tensor > 1;
  s.zero_stage = zero;
  s.micro_batch = 1;
  s.global_batch = int64_t{data} * 4 * pipeline;
  return s;
}

}  // namespace vitrine
