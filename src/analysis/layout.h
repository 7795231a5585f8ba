// How the job's ranks share the work, inferred from its process groups and their traffic.
#pragma once

#include <vector>

#include "analysis/job_facts.h"

namespace vitrine {

// Degrees by the groups' descriptions (Megatron-LM, DeepSpeed, torchtitan and vLLM words) where
// they say it; else by what is sent: one-way messages from rank to rank are a pipeline, all-to-all
// is expert parallelism, all-gathers with reduce-scatters shard the data ranks' parameters,
// all-reduces only in backward are data parallelism, many in forward are tensor parallelism. The
// product is checked with the world size. `pipeline`: as measure_pipeline found it.
LayoutFacts infer_layout(const std::vector<RankFacts>& ranks,
                         int32_t world_size,
                         const std::vector<MatchedCollective>& collectives,
                         int32_t pipeline_stages);

}  // namespace vitrine
