// The planner's parts: how blocks are cut into stages, what is recorded of their costs, the order
// of each stage's work.
#include <algorithm>

#include "core/error.h"
#include "core/format.h"
#include "plan/predict.h"
#include "plan/zero_bubble_search.h"

namespace vitrine {

namespace {

// Contiguous parts whose largest weight is smallest, by bisection on that weight; every part has at
// least one of `weights`.
std::vector<std::pair<int, int>> balanced_parts(const std::vector<int64_t>& weights, int parts) {
  const int count = static_cast<int>(weights.size());
  const auto cut_at = [&](int64_t most) {
    std::vector<std::pair<int, int>> cut;
    int begin = 0;
    int64_t sum = 0;
    for (int i = 0; i < count; ++i) {
      const int64_t weight = weights[static_cast<size_t>(i)];
      const int parts_after = parts - static_cast<int>(cut.size()) - 1;
      if (i > begin && (sum + weight > most || count - i <= parts_after)) {
        cut.emplace_back(begin, i);
        begin = i;
        sum = 0;
      }
      sum += weight;
    }
    cut.emplace_back(begin, count);
    return cut;
  };
  int64_t low = *std::max_element(weights.begin(), weights.end()), high = low;
  for (const int64_t w : weights) high += w;
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (static_cast<int>(cut_at(middle).size()) <= parts) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return cut_at(low);
}

}  // namespace

std::vector<std::pair<int, int>> cut_positions(const ShardModel& model,
                                               int positions,
                                               bool by_parameters) {
  const int count = static_cast<int>(model.blocks.size());
  const auto kind = [&](int b) -> const ShardBlock& {
    return model.kinds[static_cast<size_t>(model.blocks[static_cast<size_t>(b)])];
  };
  // What embeds stays with the first layer, what has no output with the last.
  int first = 0, last = count;
  if (count > 2) {
    while (first < count && (kind(first).name == "embed" || kind(first).name == "patches")) ++first;
    while (last > first && kind(last - 1).output_bytes == 0) --last;
  }
  const int layers = last - first;
  if (by_parameters && positions > 1 && positions <= layers) {
    // What embeds and the head may have a position to themselves.
    std::vector<int64_t> weights;
    for (int b = 0; b < count; ++b) {
      weights.push_back(kind(b).parameters + kind(b).expert_parameters);
    }
    return balanced_parts(weights, positions);
  }
  // Where layers do not divide but layers, embedding and head together do, the ends count as layers
  // (Megatron's account-for-embedding-and-loss-in-pipeline-split, BLOOM's "transformer|embedding").
  const bool ends = first > 0 && last < count;
  const bool with_ends = ends && layers % positions != 0 && (layers + 2) % positions == 0;
  const int units = with_ends ? layers + 2 : layers;
  if (positions > std::max(1, units)) {
    throw ConfigError(format("%d pipeline stages x chunks for %d layers: at most one each; use %d",
                             positions,
                             layers,
                             layers));
  }
  // What does not divide goes to the middle: the ends have the embedding and the head besides.
  std::vector<int> share(static_cast<size_t>(positions), units / positions);
  int rest = units % positions;
  const int from = (positions - rest) / 2;
  for (int i = from; rest > 0; ++i, --rest) ++share[static_cast<size_t>(i)];
  if (with_ends) {
    --share.front();
    --share.back();
  }
  std::vector<std::pair<int, int>> cut;
  int at = first;
  for (int i = 0; i < positions; ++i) {
    const int begin = i == 0 ? 0 : at;
    at += share[static_cast<size_t>(i)];
    cut.emplace_back(begin, i == positions - 1 ? count : at);
  }
  return cut;
}

Planner::Planner(ModelShape model, Cluster cluster)
    : model_(std::move(model)), cluster_(std::move(cluster)) {}

void Planner::set_efficiency(const Efficiency& efficiency) {
  cluster_.efficiency = efficiency;
  costs_.clear();
}

namespace {

// The strategy with everything as by default that the costs of a block do not depend on: what is
// forgotten here costs time, not correctness.
ClusterStrategy cost_key(const ClusterStrategy& strategy) {
  const ClusterStrategy plain;
  ClusterStrategy s = strategy;
  s.mesh.data = s.mesh.pipeline = 1;
  const bool narrow = s.precision == Precision::kF8 || s.precision == Precision::kF4;
  const bool cast_anew = narrow && s.zero_stage >= 3 && !s.quantized_gather;
  s.zero_stage = cast_anew ? 3 : plain.zero_stage;  // weights, for every pass
  s.shard_group = plain.shard_group;
  s.global_batch = plain.global_batch;
  s.pipeline = plain.pipeline;
  s.interleave = plain.interleave;
  s.optimizer_tier = s.gradient_tier = s.parameter_tier = s.activation_tier = Tier::kDevice;
  s.quantized_gather = s.quantized_reduce = false;
  s.overlap_reduce = s.overlap_gather = true;
  s.reduce_each_micro_batch = plain.reduce_each_micro_batch;
  s.balance_parameters = false;
  if (strategy.accumulation() <= 1) {
    s.accumulate_bytes = plain.accumulate_bytes;
    s.accumulate_apart = false;
  } else {
    s.global_batch = 2 * s.micro_batch;  // several micro-batches, however many
  }
  return s;
}

// And that their tapes do not depend on.
ClusterStrategy shape_key(const ClusterStrategy& strategy) {
  ClusterStrategy s = strategy;
  s.recompute = Recompute::kNone;
  s.recompute_needed = false;
  // This engine's tapes say which products are in fp8.
  if (s.precision != Precision::kF32 && !s.own_engine) s.precision = Precision::kBF16;
  s.zero_stage = ClusterStrategy().zero_stage;
  s.metric_bytes = 0;
  s.global_batch = ClusterStrategy().global_batch;
  s.accumulate_bytes = ClusterStrategy().accumulate_bytes;
  s.accumulate_apart = false;
  s.dispatcher = Dispatcher::kNodes;
  s.overlap_tensor = s.overlap_expert = s.graphs = s.current_scaling = s.eager_ring = false;
  s.static_graphs = s.router_graphs = false;
  s.attention_generation = 0;
  return s;
}

}  // namespace

const Planner::Blocks& Planner::blocks(const ClusterStrategy& s) {
  const ClusterStrategy key = cost_key(s);
  auto& entry = costs_[key];
  if (!entry) {
    auto& shard = shards_[shape_key(key)];
    if (!shard) shard = std::make_shared<const ShardModel>(shard_model(model_, s));
    auto made = std::make_shared<Blocks>();
    made->shard = shard;
    const CardModel card = card_model(cluster_, s);
    for (const ShardBlock& block : shard->kinds) {
      made->cost.push_back(block_cost(block, s, cluster_, card));
    }
    entry = std::move(made);
  }
  return *entry;
}

int pipeline_chunks(const ClusterStrategy& s) {
  if (s.mesh.pipeline == 1) return 1;
  if (s.pipeline == PipelineKind::kZbV) return 2;
  return s.pipeline == PipelineKind::kInterleaved ? s.interleave : 1;
}

bool weight_gradients_apart(const ClusterStrategy& s) {
  return s.mesh.pipeline > 1 &&
         (s.pipeline == PipelineKind::kZbH1 || s.pipeline == PipelineKind::kZbH2 ||
          s.pipeline == PipelineKind::kZbV || s.pipeline == PipelineKind::kZb1p ||
          s.pipeline == PipelineKind::kZb2p);
}

bool stages_end_together(const ClusterStrategy& s) { return !weight_gradients_apart(s); }

PipelineOrders pipeline_orders(const ClusterStrategy& s, const PipelineTimes& times) {
  if (s.pipeline == PipelineKind::kZbV && s.mesh.pipeline > 1) {
    return zero_bubble_v_orders(times, 2 * s.mesh.pipeline);
  }
  const bool twice = s.pipeline == PipelineKind::kZb2p;
  if (s.mesh.pipeline > 1 && (twice || s.pipeline == PipelineKind::kZb1p)) {
    return zero_bubble_search_orders(times, (twice ? 2 : 1) * s.mesh.pipeline);
  }
  PipelineOrders orders;
  for (int stage = 0; stage < times.size.stages; ++stage) {
    switch (s.mesh.pipeline == 1 ? PipelineKind::k1F1B : s.pipeline) {
      case PipelineKind::kGPipe:
        orders.push_back(gpipe_order(times.size, stage));
        break;
      case PipelineKind::kZbH1:
        orders.push_back(zero_bubble_order(times.size, stage, false));
        break;
      case PipelineKind::kZbH2:
        orders.push_back(zero_bubble_order(times.size, stage, true));
        break;
      case PipelineKind::kInterleaved:
        orders.push_back(interleaved_order(times.size, stage));
        break;
      default:
        orders.push_back(one_f_one_b_order(times.size, stage));
    }
  }
  return orders;
}

PipelineResult Planner::timeline(const ClusterStrategy& s) {
  check_strategy(s, model_, cluster_);
  const Blocks& costs = blocks(s);
  const int p = s.mesh.pipeline, chunks = pipeline_chunks(s);
  const bool apart = weight_gradients_apart(s);
  PipelineTimes times;
  times.size = {p, chunks, static_cast<int>(s.accumulation())};
  times.v_shaped = s.pipeline == PipelineKind::kZbV && p > 1;
  const auto cut = cut_positions(*costs.shard, p * chunks, s.balance_parameters);
  for (int stage = 0; stage < p; ++stage) {
    for (int chunk = 0; chunk < chunks; ++chunk) {
      ChunkTimes c;
      const auto [begin, stop] =
          cut[static_cast<size_t>(pipeline_position(times.size, stage, chunk, times.v_shaped))];
      for (int b = begin; b < stop; ++b) {
        const BlockCost& cost =
            costs.cost[static_cast<size_t>(costs.shard->blocks[static_cast<size_t>(b)])];
        c.forward += cost.forward_ns();
        const double weight = cost.backward_weight.total();
        c.backward += cost.backward_ns() - (apart ? weight : 0);
        c.weight += apart ? weight : 0;
      }
      times.chunk.push_back(c);
    }
  }
  return simulate_pipeline(times, pipeline_orders(s, times), true);
}

}  // namespace vitrine
