// Builders of hand-made facts of ranks for tests of the job's measures.
#pragma once

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "analysis/job_facts.h"

namespace vitrine {

constexpr int64_t kUs = 1000, kMs = 1'000'000;

// A rank of a job of `world`, in one group "0" of all ranks.
inline RankFacts hand_made_rank(int32_t rank, int32_t world) {
  RankFacts facts;
  facts.rank = rank;
  facts.world_size = world;
  facts.source = "rank" + std::to_string(rank) + ".json";
  facts.device = "NVIDIA H200";
  facts.device_work = true;
  GroupUse group{"0", "default_pg", {}, world};
  for (int32_t r = 0; r < world; ++r) group.ranks.push_back(r);
  facts.groups.push_back(group);
  return facts;
}

inline CollectiveUse& add_use(RankFacts& rank,
                              const std::string& name,
                              int64_t start_ns,
                              int64_t end_ns,
                              int64_t bytes = 0,
                              int32_t step = -1) {
  CollectiveUse use;
  use.name = name;
  use.start_ns = start_ns;
  use.duration_ns = end_ns - start_ns;
  use.exposed_ns = use.duration_ns;
  use.lane = 1;
  use.step = step;
  use.group = 0;
  use.bytes = bytes;
  use.phase = Phase::kBackward;
  rank.collectives.push_back(use);
  rank.end_ns = std::max(rank.end_ns, end_ns);
  return rank.collectives.back();
}

inline StepFacts& add_step(RankFacts& rank, int32_t step, int64_t start_ns, int64_t duration_ns) {
  StepFacts facts;
  facts.name = "ProfilerStep#" + std::to_string(step);
  facts.step = step;
  facts.start_ns = start_ns;
  facts.duration_ns = duration_ns;
  facts.time.span_ns = facts.device.span_ns = duration_ns;
  facts.device_begin_ns = start_ns;
  facts.device_end_ns = start_ns + duration_ns;
  rank.steps.push_back(facts);
  return rank.steps.back();
}

}  // namespace vitrine
