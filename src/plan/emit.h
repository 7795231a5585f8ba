// Strategies written for others: DeepSpeed configurations, Megatron-LM arguments, run files.
#pragma once

#include <string>
#include <vector>

#include "machines/cluster.h"
#include "plan/cluster_strategy.h"
#include "plan/model_shape.h"

namespace vitrine {

struct Emitted {
  std::string text;
  std::vector<std::string> notes;  // what of the strategy it cannot say, and where that is said
};

// JSON that DeepSpeed and strategy_from_deepspeed() take: read back for the same mesh and sequence
// it gives the same strategy, as far as DeepSpeed's keys go (notes say what they leave out).
Emitted emit_deepspeed(const ModelShape& model, const ClusterStrategy& strategy);

// Arguments of Megatron-LM's pretrain_gpt.py (core 0.9 and later), one a line with '\' behind.
// Throws ConfigError for models and choices that it has not: encoders of pictures, ZeRO-2 and -3
// through its own optimizer, ...
Emitted emit_megatron(const ModelShape& model,
                      const ClusterStrategy& strategy,
                      const Cluster& cluster);

// Sections of a run file: mesh and DeepSpeed's keys; with `model` where the engine has the model.
Emitted emit_vitrine(const ModelShape& model, const ClusterStrategy& strategy);

}  // namespace vitrine
