// Blocks of a model of this engine, from the tapes that it runs itself.
#pragma once

#include "plan/shard_blocks.h"

namespace vitrine {

// `shape` has an engine_section. Whole tensor and context ranks alone: mesh.tensor and mesh.context
// are 1. Throws what build_model throws.
ShardModel engine_model(const ModelShape& shape, const ClusterStrategy& strategy);

}  // namespace vitrine
