// Memory of every pipeline stage at its peak.
#include "plan/stage_memory.h"

#include <algorithm>

#include "core/format.h"
#include "plan/engine_stage_memory.h"
#include "plan/predict.h"

namespace vitrine {
namespace {

// Blocks that ZeRO-3 holds gathered at once: the one in use and the one fetched ahead.
constexpr int kGatheredBlocks = 2;
// Of what comes and goes within a step, what the allocator cannot use between its blocks. States
// lie in few large blocks from the start.
constexpr double kFragmentation = 0.12;
// Buffers of one communicator of NCCL on a card.
constexpr double kCommunicatorBytes = 200e6;

double real(int64_t value) { return static_cast<double>(value); }

int in_flight(const ClusterStrategy& s, int stage) {
  const int p = s.mesh.pipeline;
  const auto m = static_cast<int>(std::min<int64_t>(s.accumulation(), 1 << 28));
  if (p == 1) return s.pipeline == PipelineKind::kGPipe ? m : 1;
  switch (s.pipeline) {
    case PipelineKind::kGPipe:
      return m;
    case PipelineKind::k1F1B:
      return std::min(m, p - stage);
    case PipelineKind::kInterleaved:
      // Chunks; of `interleave` chunks a stage.
      return std::min(m * s.interleave, 2 * (p - stage - 1) + (s.interleave - 1) * p + 1);
    case PipelineKind::kZbH1:
    case PipelineKind::kZb1p:
      return std::min(m, p);
    case PipelineKind::kZbH2:
      return std::min(m, 2 * p - 1);
    case PipelineKind::kZb2p:
      return std::min(m, 2 * p);
    case PipelineKind::kZbV:
      return std::min(2 * m, 2 * p);
  }
  return 1;
}

}  // namespace

double usable_bytes(const Accelerator& card) {
  return real(card.memory_bytes) * 1.073741824 * 0.99;
}

double StageMemory::total() const {
  double sum = context_bytes + fragmentation_bytes;
  for (const int64_t b : bytes) sum += real(b);
  return sum;
}

Shards shards_of(const ClusterStrategy& s, const Cluster& cluster) {
  Shards shards;
  const int64_t ranks = static_cast<int64_t>(s.mesh.data) * s.mesh.context;
  shards.dense = ranks;
  shards.expert = std::max<int64_t>(1, ranks * s.mesh.tensor / s.expert);
  shards.dense_values = s.shard_group > 0 ? std::min(s.shard_group, ranks) : ranks;
  shards.expert_values = std::max<int64_t>(1, shards.dense_values * s.mesh.tensor / s.expert);
  const int64_t t = s.mesh.tensor;
  shards.dense_group = place_group(cluster, static_cast<int>(ranks), t);
  shards.expert_group = place_group(cluster, static_cast<int>(shards.expert), s.expert);
  shards.values_group = place_group(cluster, static_cast<int>(shards.dense_values), t);
  shards.replica_group =
      place_group(cluster, static_cast<int>(ranks / shards.dense_values), t * shards.dense_values);
  return shards;
}

std::vector<StageMemory> Planner::memory(const ClusterStrategy& strategy) {
  check_strategy(strategy, model_, cluster_);
  return memory_of(blocks(strategy), strategy);
}

bool Planner::fits(const ClusterStrategy& strategy) {
  for (const StageMemory& stage : memory(strategy)) {
    if (stage.total() > usable_bytes(*cluster_.card)) return false;
  }
  return true;
}

std::vector<StageMemory> Planner::memory_of(const Blocks& costs, const ClusterStrategy& s) const {
  if (s.own_engine && engine_runs(model_, s)) return engine_stage_memory(model_, s, cluster_);
  const int p = s.mesh.pipeline, chunks = pipeline_chunks(s);
  const auto cut = cut_positions(*costs.shard, p * chunks, s.balance_parameters);
  const PipelineSize size{p, chunks, 1};
  const Shards shards = shards_of(s, cluster_);
  const int weight_kept =
      s.zero_stage == 3 && s.weight_shard_bytes >= 0 ? s.weight_shard_bytes : s.weight_bytes;
  std::vector<StageMemory> stages;
  for (int stage = 0; stage < p; ++stage) {
    StageMemory memory;
    StageParameters par;
    // Kept from forward to backward by all blocks but the head; by the head; scratch.
    double kept = 0, head_kept = 0, scratch = 0, head_scratch = 0;
    std::string head_name, scratch_name;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int position = pipeline_position(size, stage, chunk, s.pipeline == PipelineKind::kZbV);
      for (int b = cut[static_cast<size_t>(position)].first;
           b < cut[static_cast<size_t>(position)].second;
           ++b) {
        const auto kind = static_cast<size_t>(costs.shard->blocks[static_cast<size_t>(b)]);
        const ShardBlock& block = costs.shard->kinds[kind];
        const BlockCost& cost = costs.cost[kind];
        par.dense +=
            block.parameters - block.frozen_parameters - (p == 1 ? block.tied_parameters : 0);
        par.expert += block.expert_parameters;
        par.frozen += block.frozen_parameters;
        par.largest_block = std::max(par.largest_block, block.parameters + block.expert_parameters);
        double own = real(cost.kept_bytes + cost.input_bytes);
        const double needs =
            real(std::max(cost.backward_bytes, cost.forward_bytes) + cost.recomputed_bytes);
        if (s.activation_tier != Tier::kDevice && block.output_bytes > 0)
          own -= real(cost.input_bytes);
        if (block.output_bytes == 0) {
          head_kept += own;
          head_scratch = needs;
          head_name = block.name;
        } else {
          kept += own;
          if (needs > scratch) {
            scratch = needs;
            scratch_name = block.name;
          }
        }
      }
    }
    const int flight = s.stage_buffers > 0 && stage + 1 < p ? s.stage_buffers : in_flight(s, stage);
    double whole = kept * flight / chunks;
    if (s.keep_stage_outputs && stage + 1 < p) {
      const auto middle = static_cast<size_t>(costs.shard->blocks[costs.shard->blocks.size() / 2]);
      whole += real(costs.shard->kinds[middle].output_bytes) * flight;
    }
    const double head_flight =
        s.pipeline == PipelineKind::kGPipe && p > 1 ? real(s.accumulation()) : 1;
    const bool head_peak = head_kept * head_flight + head_scratch > scratch;
    const double activations = whole + (head_peak ? head_kept * head_flight : 0);
    memory.in_flight = flight;
    memory.parameters = par.dense + par.expert + par.frozen;
    const auto set = [&](MemoryCategory category, double bytes) {
      memory.bytes[static_cast<size_t>(category)] += static_cast<int64_t>(bytes);
    };
    const auto split =
        [&](double bytes_each, bool sharded, int64_t dense_over, int64_t expert_over) {
          return bytes_each * (real(par.dense) / (sharded ? real(dense_over) : 1) +
                               real(par.expert) / (sharded ? real(expert_over) : 1));
        };
    const bool z1 = s.zero_stage >= 1, z2 = s.zero_stage >= 2, z3 = s.zero_stage >= 3;
    if (s.parameter_tier == Tier::kDevice) {
      set(MemoryCategory::kParameters,
          split(z3 ? weight_kept : s.weight_bytes, z3, shards.dense_values, shards.expert_values) +
              real(par.frozen) * s.weight_bytes / (z3 ? real(shards.dense_values) : 1));
    }
    if (s.gradient_tier == Tier::kDevice) {
      set(MemoryCategory::kGradients,
          split(s.gradient_bytes,
                z2,
                z3 ? shards.dense_values : shards.dense,
                z3 ? shards.expert_values : shards.expert));
    }
    if (s.optimizer_tier == Tier::kDevice) {
      set(MemoryCategory::kOptimizer,
          split(s.master_bytes + s.moment_bytes + s.update_gradient_bytes,
                z1,
                z3 ? shards.dense_values : shards.dense,
                z3 ? shards.expert_values : shards.expert));
    }
    if (z3 && shards.dense_values > 1) {
      set(MemoryCategory::kGathered, real(kGatheredBlocks * par.largest_block) * s.weight_bytes);
    }
    if (z2 && shards.dense > 1) {
      const int64_t bucket = z3 ? par.largest_block : std::min(s.reduce_bucket, par.dense);
      set(MemoryCategory::kCommunication, real(bucket) * s.reduce_bytes);
    }
    set(MemoryCategory::kActivations, activations);
    set(MemoryCategory::kWorkspace, head_peak ? head_scratch : scratch);
    if (p > 1) {
      // Received and sent activations, one each way.
      const auto kind = static_cast<size_t>(costs.shard->blocks[costs.shard->blocks.size() / 2]);
      set(MemoryCategory::kCommunication, 2 * real(costs.shard->kinds[kind].output_bytes));
    }
    memory.context_bytes = cluster_.context_bytes;
    for (const int degree :
         {s.mesh.tensor, s.mesh.context, s.mesh.data, s.mesh.pipeline, s.expert}) {
      if (degree > 1) memory.context_bytes += kCommunicatorBytes;
    }
    const auto held = [&](MemoryCategory category) {
      return real(memory.bytes[static_cast<size_t>(category)]);
    };
    memory.fragmentation_bytes =
        (s.arena ? 0 : kFragmentation) *
        (held(MemoryCategory::kActivations) + held(MemoryCategory::kWorkspace) +
         held(MemoryCategory::kGathered) + held(MemoryCategory::kCommunication));
    memory.peak_moment = format("backward of %s%s, %d micro-batch%s in flight",
                                head_peak ? head_name.c_str() : scratch_name.c_str(),
                                chunks > 1 ? " (chunks counted)" : "",
                                flight,
                                flight == 1 ? "" : "es");
    stages.push_back(std::move(memory));
  }
  return stages;
}

}  // namespace vitrine
