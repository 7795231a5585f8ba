// The blocks of a model as one rank of a tensor, context and expert group runs them: tapes of local
// shapes, one for each kind of block, and how often each stands in the model.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "plan/cluster_strategy.h"
#include "plan/model_shape.h"
#include "tape/tape.h"

namespace vitrine {

struct ShardBlock {
  std::string name;  // "embed", "dense", "experts", "head", "tower", "body.3" (an engine's block)
  std::shared_ptr<const Tape> tape;
  int64_t parameters = 0;         // elements on this rank, experts left out
  int64_t expert_parameters = 0;  // elements of this rank's experts
  int64_t frozen_parameters = 0;  // of `parameters`: without gradient and state
  int64_t tied_parameters = 0;    // of `parameters`: the embedding's, where one rank has both
  int64_t output_bytes = 0;       // of one micro-batch, handed to the next block and kept for it
  bool trains = true;
};

struct ShardModel {
  std::vector<ShardBlock> kinds;
  std::vector<int> blocks;  // kinds in the order of the model
  int64_t tokens = 0;       // of a sample, all ranks
  // Model FLOPs of a sample, forward and backward, all ranks, by the usual convention: 3 x the
  // matrix products and attention (causal counted half), nothing for recomputation.
  double model_flops = 0;
};

// Model FLOPs, by that convention, of one sample of `tokens` in the decoder (layers and head), as
// Megatron-LM's own reports count them: heads x head_dim wide, without the table of embeddings.
double decoder_flops(const ModelShape& model, int64_t tokens);

// Throws what check_strategy throws for shapes that do not divide.
ShardModel shard_model(const ModelShape& model, const ClusterStrategy& strategy);

}  // namespace vitrine
