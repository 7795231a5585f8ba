// The prediction: memory of every pipeline stage and the time of a step, with what they are made
// of.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "plan/block_cost.h"
#include "plan/simulate.h"
#include "plan/stage_memory.h"

namespace vitrine {

struct StepTime {
  double step_ns = 0;
  TimeParts work;                       // of all micro-batches on the stage that bounds the step
  double bubble_ns = 0;                 // that stage waits for others
  double transfer_ns = 0;               // of that, activations and gradients between stages
  double gather_ns = 0, reduce_ns = 0;  // data-parallel communication that nothing hides
  double optimizer_ns = 0;
  double offload_ns = 0;  // copies to host or disk, and the host's optimizer, that nothing hides
  double overlap_ns = 0;  // products run slower beside communication
  int bounding_stage = 0;
  double bubble_rate = 0;
};

// Bytes that a card sends in one step.
struct StepTraffic {
  double gather = 0, reduce = 0, publish = 0, pipeline = 0, tensor = 0, context = 0, expert = 0,
         offload = 0;
  double total() const {
    return gather + reduce + publish + pipeline + tensor + context + expert + offload;
  }
};

struct Prediction {
  std::vector<StageMemory> memory;  // by stage; empty: not asked for
  int fullest_stage = 0;
  bool fits = true;
  double capacity_bytes = 0;
  double host_bytes = 0, disk_bytes = 0;  // a node
  StepTime time;
  StepTraffic traffic;
  double model_flops = 0;     // of the step, all cards
  double executed_flops = 0;  // with recomputation
  double mfu = 0, hfu = 0;    // against the peak of bf16 (of the precision where it has another)
  double tflops_per_gpu = 0;  // model FLOPs
  double tokens_per_s = 0;
  double samples_per_s = 0;
};

// What a rank does in a step, block by block: what the prediction puts together in closed form,
// and the unfolded simulation event by event. Nanoseconds.
struct BlockPiece {
  int block = 0;                                 // index into ShardModel::blocks
  double forward = 0, backward = 0, weight = 0;  // weight: 0 where it is part of backward
  double gather = 0, reduce = 0;                 // of ZeRO-3, for each forward and each backward
  double slow = 0, slow_back = 0;                // products beside them take so much longer
};
struct StagePieces {
  std::vector<std::vector<BlockPiece>> chunks;
  // Once a step: gradients, new weights, spread over the blocks in equal parts.
  double reduce = 0, publish = 0;
  double optimizer = 0, offload = 0;
  double slow = 0;  // the last backward beside the reduction
};
struct StepPieces {
  PipelineTimes times;
  std::vector<StagePieces> stages;
  bool overlap_gather = true, overlap_reduce = true;
  double reduce_rounds = 1;  // the reduction is done so often, each time after a backward
};

// What the costs of one (model, cluster, strategy) are made of; blocks and their costs are shared
// by strategies that only differ in how they are spread.
class Planner {
 public:
  // The blocks of one rank and what each kind of them costs.
  struct Blocks {
    std::shared_ptr<const ShardModel> shard;
    std::vector<BlockCost> cost;  // by kind
  };
  // `cluster` and `model` are copied.
  Planner(ModelShape model, Cluster cluster);

  // Throws what check_strategy throws.
  Prediction predict(const ClusterStrategy& strategy);
  // And what it is put together from.
  Prediction predict(const ClusterStrategy& strategy, StepPieces& pieces);
  // Memory alone: much faster.
  std::vector<StageMemory> memory(const ClusterStrategy& strategy);
  bool fits(const ClusterStrategy& strategy);
  // The pipeline of one step, with every piece of work as a span.
  PipelineResult timeline(const ClusterStrategy& strategy);

  // Valid until set_efficiency(); throws what shard_model throws.
  const Blocks& blocks(const ClusterStrategy& strategy);

  // Predicts from now on with other constants; blocks stay recorded.
  void set_efficiency(const Efficiency& efficiency);

  const ModelShape& model() const { return model_; }
  const Cluster& cluster() const { return cluster_; }

 private:
  std::vector<StageMemory> memory_of(const Blocks& blocks, const ClusterStrategy& strategy) const;

  ModelShape model_;
  Cluster cluster_;
  std::map<ClusterStrategy, std::shared_ptr<const ShardModel>> shards_;
  std::map<ClusterStrategy, std::shared_ptr<const Blocks>> costs_;
};

// Chunks of a stage (virtual stages); 1 without a pipeline.
int pipeline_chunks(const ClusterStrategy& strategy);
// Whether gradients of weights are work of their own (zero-bubble schedules).
bool weight_gradients_apart(const ClusterStrategy& strategy);
// Whether a stage waits for all others before its update (their gradients' norm). Zero-bubble
// schedules do not: they update at once and check afterwards (Qi et al., section 4), so that a
// stage that begins late may end late, and a step lasts as long as its longest stage.
bool stages_end_together(const ClusterStrategy& strategy);
// Each stage's work in its order, for times.size.micros micro-batches.
PipelineOrders pipeline_orders(const ClusterStrategy& strategy, const PipelineTimes& times);

// Bytes of a card that a job can use before its own context: makers sell GB and mean GiB, of which
// the driver keeps about 1 % ("80 GB" A100: 79.15 GiB, "141 GB" H200: 139.8 GiB for the framework).
double usable_bytes(const Accelerator& card);

// Blocks of each position (stage x chunk): transformer layers as even as they go, what embeds first
// and the head last; `by_parameters`: the fullest position holds as few parameters as it can. Pairs
// [begin, end) of ShardModel::blocks.
std::vector<std::pair<int, int>> cut_positions(const ShardModel& model,
                                               int positions,
                                               bool by_parameters = false);

}  // namespace vitrine
