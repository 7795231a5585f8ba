// Time of a step.
#include "plan/predict.h"

#include <algorithm>
#include <cmath>

#include "plan/exposed_time.h"

namespace vitrine {
namespace {

// A product beside a collective of the data-parallel group runs this much slower: the collective
// takes some multiprocessors and bandwidth.
constexpr double kOverlapSlowdown = 0.06;
// Of the host's memory bandwidth, what an update over many arrays reaches; operations a parameter
// of Adam in fp32, square root and division counted as the passes of a pipeline that they take.
constexpr double kHostPass = 0.6, kAdamFlops = 30;
// Of this engine's update with stochastic rounding, instructions a parameter (optim/gpu/update.cu);
// the peak of fp32 counts two operations for one.
constexpr double kRoundedUpdate = 90;

double real(int64_t value) { return static_cast<double>(value); }

}  // namespace

Prediction Planner::predict(const ClusterStrategy& s) {
  StepPieces pieces;
  return predict(s, pieces);
}

Prediction Planner::predict(const ClusterStrategy& s, StepPieces& pieces) {
  check_strategy(s, model_, cluster_);
  const Blocks& costs = blocks(s);
  Prediction out;
  out.memory = memory_of(costs, s);
  out.capacity_bytes = usable_bytes(*cluster_.card);
  for (size_t i = 0; i < out.memory.size(); ++i) {
    if (out.memory[i].total() > out.memory[static_cast<size_t>(out.fullest_stage)].total()) {
      out.fullest_stage = static_cast<int>(i);
    }
  }
  out.fits = out.memory[static_cast<size_t>(out.fullest_stage)].total() <= out.capacity_bytes;

  const int p = s.mesh.pipeline, chunks = pipeline_chunks(s);
  const int64_t micros = s.accumulation();
  const bool apart = weight_gradients_apart(s),
             v_shaped = s.pipeline == PipelineKind::kZbV && p > 1;
  const auto cut = cut_positions(*costs.shard, p * chunks, s.balance_parameters);
  const Shards shards = shards_of(s, cluster_);
  const CardModel card = card_model(cluster_, s);
  // This engine's collectives within a node are copies, which take nothing from products; its sums
  // are passes of all multiprocessors over every rank's piece (ADR 0016).
  const bool copies = s.own_engine && shards.dense_group.nodes() == 1;
  const auto sums_ns = [&](double bytes) {
    const double n = real(shards.dense);
    return n > 1 ? memory_ns(card, bytes * (n + 1) / n) : 0;
  };
  const bool z3 = s.zero_stage >= 3 && shards.dense_values * std::max(1, s.mesh.context) > 1;
  const double wire_weight = s.weight_bytes * (s.quantized_gather ? 0.5 : 1.0);
  const double wire_reduce = s.reduce_bytes * (s.quantized_reduce ? 0.25 : 1.0);

  PipelineTimes times;
  times.size = {p, chunks, 1};
  times.v_shaped = v_shaped;
  std::vector<TimeParts> work(static_cast<size_t>(p));  // of one micro-batch
  std::vector<double> gather(static_cast<size_t>(p)), reduce(static_cast<size_t>(p)),
      overlap(static_cast<size_t>(p));
  std::vector<StageParameters> par(static_cast<size_t>(p));
  std::vector<double> last_backward(static_cast<size_t>(p));
  double boundary_bytes = 0, weight_held = 0;
  // Of ZeRO-3, by kind of block.
  std::vector<double> gather_price, reduce_price;
  for (const ShardBlock& block : costs.shard->kinds) {
    if (!z3) break;
    const double values = real(block.parameters) * wire_weight;
    const double expert_values = real(block.expert_parameters) * wire_weight;
    const double parts = s.gathers_per_block;
    double one =
        parts *
        collective_ns(cluster_, PlanCollective::kAllGather, values / parts, shards.values_group);
    if (expert_values > 0) {
      one +=
          collective_ns(cluster_, PlanCollective::kAllGather, expert_values, shards.expert_group);
    }
    double back = 0;
    if (s.reduce_each_micro_batch || micros == 1) {
      back = parts * collective_ns(cluster_,
                                   PlanCollective::kReduceScatter,
                                   real(block.parameters) * wire_reduce / parts,
                                   shards.values_group);
      if (block.expert_parameters > 0) {
        back += collective_ns(cluster_,
                              PlanCollective::kReduceScatter,
                              real(block.expert_parameters) * wire_reduce,
                              shards.expert_group);
      }
      if (shards.replica_group.ranks > 1) {
        back += collective_ns(cluster_,
                              PlanCollective::kAllReduce,
                              real(block.parameters) * wire_reduce / real(shards.dense_values),
                              shards.replica_group) /
                (s.reduce_each_micro_batch ? real(micros) : 1);
      }
    }
    gather_price.push_back(one);
    reduce_price.push_back(back);
  }
  pieces = {};
  pieces.overlap_gather = s.overlap_gather;
  pieces.overlap_reduce = s.overlap_reduce;
  pieces.stages.resize(static_cast<size_t>(p));
  for (int stage = 0; stage < p; ++stage) {
    const auto at = static_cast<size_t>(stage);
    for (int chunk = 0; chunk < chunks; ++chunk) {
      const int position = pipeline_position(times.size, stage, chunk, v_shaped);
      ChunkTimes c;
      double kept = 0, held = 0;
      std::vector<BlockPiece>& blocks_here = pieces.stages[at].chunks.emplace_back();
      for (int b = cut[static_cast<size_t>(position)].first;
           b < cut[static_cast<size_t>(position)].second;
           ++b) {
        const auto kind = static_cast<size_t>(costs.shard->blocks[static_cast<size_t>(b)]);
        const ShardBlock& block = costs.shard->kinds[kind];
        const BlockCost& cost = costs.cost[kind];
        const double forward = cost.forward_ns();
        const double backward = cost.backward_input.total() + cost.recompute.total();
        const double weight = cost.backward_weight.total();
        c.forward += forward;
        c.backward += apart ? backward : backward + weight;
        c.weight += apart ? weight : 0;
        work[at] += cost.forward;
        work[at] += cost.backward_input;
        work[at] += cost.backward_weight;
        work[at] += cost.recompute;
        par[at].dense +=
            block.parameters - block.frozen_parameters - (p == 1 ? block.tied_parameters : 0);
        par[at].expert += block.expert_parameters;
        par[at].frozen += block.frozen_parameters;
        par[at].largest_block =
            std::max(par[at].largest_block, block.parameters + block.expert_parameters);
        kept += real(cost.kept_bytes + cost.input_bytes);
        held += real(cost.weight_bytes);
        if (block.output_bytes > 0) boundary_bytes = real(block.output_bytes);
        out.executed_flops +=
            cost.flops * real(micros) * s.mesh.data * s.mesh.tensor * s.mesh.context;
        out.traffic.tensor += cost.tensor_bytes * real(micros) / p;
        out.traffic.context += cost.context_bytes * real(micros) / p;
        out.traffic.expert += cost.expert_bytes * real(micros) / p;
        BlockPiece piece{b, forward, backward + (apart ? 0 : weight), apart ? weight : 0};
        if (z3) {
          piece.gather = gather_price[kind];
          piece.reduce = reduce_price[kind];
          const bool reduces = reduce_price[kind] > 0;
          piece.slow =
              s.overlap_gather && !copies ? std::min(piece.gather, forward) * kOverlapSlowdown : 0;
          piece.slow_back =
              copies ? (reduces ? sums_ns(real(block.parameters) * wire_reduce) : 0)
              : s.overlap_reduce
                  ? std::min(piece.gather + piece.reduce, backward + weight) * kOverlapSlowdown
                  : 0;
        }
        blocks_here.push_back(piece);
      }
      if (z3) {
        const SharedPass pass = shared_pass(blocks_here, chunk == 0, s, micros);
        gather[at] += pass.gather;
        reduce[at] += pass.reduce;
        overlap[at] += pass.slow_forward + pass.slow_backward;
        c.forward += pass.forward + pass.slow_forward;
        c.backward += pass.backward + pass.slow_backward;
      }
      last_backward[at] += c.backward + c.weight;
      weight_held = std::max(weight_held, kept > 0 ? std::min(1.0, held / kept) : 1.0);
      times.chunk.push_back(c);
    }
  }
  times.weight_held = weight_held;
  if (p > 1) {
    const bool near = cluster_.gpus_per_node >
                          static_cast<int64_t>(s.mesh.tensor) * s.mesh.context * s.mesh.data &&
                      cluster_.gpus <= cluster_.gpus_per_node;
    // Each tensor rank sends its part when the receiver gathers it over the faster link.
    times.transfer_ns = send_ns(cluster_, boundary_bytes, near);
    out.traffic.pipeline = 2 * boundary_bytes * real(micros) * (chunks * p - 1) / p;
  }
  Makespan run = run_pipeline(s, times, micros);
  pieces.times = times;
  pieces.times.size.micros = static_cast<int>(std::min<int64_t>(micros, 1 << 28));

  // What comes after each stage's last backward: reduction, optimizer, publication.
  StepTime& time = out.time;
  const bool together = stages_end_together(s);
  const auto begins = [&](size_t stage) { return together ? 0 : run.result.begin_ns[stage]; };
  double end = 0;
  for (int stage = 0; stage < p; ++stage) {
    const auto at = static_cast<size_t>(stage);
    const double dense = real(par[at].dense), expert = real(par[at].expert);
    double reduce_ns = 0, publish_ns = 0, exposed_reduce = 0, exposed_publish = 0, slow = 0;
    if (!z3 && shards.dense > 1) {
      const PlanCollective kind = s.zero_stage == 0 || s.all_reduce_gradients
                                      ? PlanCollective::kAllReduce
                                      : PlanCollective::kReduceScatter;
      reduce_ns = collective_ns(cluster_, kind, dense * wire_reduce, shards.dense_group);
      if (expert > 0)
        reduce_ns += collective_ns(cluster_, kind, expert * wire_reduce, shards.expert_group);
      const double rounds = s.reduce_each_micro_batch ? real(micros) : 1;
      pieces.reduce_rounds = rounds;
      if (s.overlap_reduce) {
        exposed_reduce = rounds * exposed_after(pieces.stages[at], reduce_ns, run.result, stage);
        slow = rounds * kOverlapSlowdown * std::min(reduce_ns, last_backward[at]);
      } else {
        exposed_reduce = rounds * reduce_ns;
      }
      if (copies) slow = rounds * sums_ns(dense * wire_reduce);
      if (s.zero_stage >= 1) {
        publish_ns = collective_ns(
            cluster_, PlanCollective::kAllGather, dense * s.weight_bytes, shards.dense_group);
        if (expert > 0) {
          publish_ns += collective_ns(
              cluster_, PlanCollective::kAllGather, expert * s.weight_bytes, shards.expert_group);
        }
        exposed_publish = s.overlap_gather
                              ? exposed_before(pieces.stages[at], publish_ns, run.result, stage)
                              : publish_ns;
      }
    } else if (z3 && !s.reduce_each_micro_batch && micros > 1) {
      reduce_ns = collective_ns(
          cluster_, PlanCollective::kReduceScatter, dense * wire_reduce, shards.values_group);
      exposed_reduce = s.overlap_reduce
                           ? exposed_after(pieces.stages[at], reduce_ns, run.result, stage)
                           : reduce_ns;
    }
    // The optimizer's pass over its shard: gradient, master copy and moments read and written, the
    // weights written; and one pass for the norm, unless the pass that sums takes its squares.
    const bool z1 = s.zero_stage >= 1;
    const double owned = dense / (z1 ? real(z3 ? shards.dense_values : shards.dense) : 1) +
                         expert / (z1 ? real(z3 ? shards.expert_values : shards.expert) : 1);
    const bool squared = copies && shards.dense > 1 && (!s.reduce_each_micro_batch || micros == 1);
    const double pass = (squared ? 1.0 : 2.0) * s.gradient_bytes +
                        2.0 * (s.master_bytes + s.moment_bytes) +
                        s.weight_bytes * (s.master_bytes > 0 ? 1 : 2);
    double optimizer = 0, offload = 0;
    if (s.optimizer_tier == Tier::kDevice) {
      optimizer = memory_ns(card, owned * pass);
      const bool rounded = s.own_engine && s.master_bytes == 0 && s.moment_bytes == 4;
      const double issue = cluster_.card->fp32_flops_per_s;
      if (rounded && issue > 0) {
        optimizer = std::hypot(optimizer, 2 * kRoundedUpdate * owned / issue * 1e9);
      }
    } else {
      // Gradients down, weights up over the host link; the node's memory is shared by its cards.
      const double cards = std::min(cluster_.gpus, cluster_.gpus_per_node);
      const double sharing = std::min<double>(cards, cluster_.cards_per_host_link);
      const double link =
          owned * (s.gradient_bytes + s.weight_bytes) * sharing / cluster_.pcie_bytes_per_s * 1e9;
      // All ranks of the node update at once: they share its memory and its cores.
      double host = 0;
      if (cluster_.host_bytes_per_s > 0) {
        host = owned * pass * cards / (cluster_.host_bytes_per_s * kHostPass) * 1e9;
      }
      if (cluster_.host_flops_per_s > 0) {
        host = std::max(host, owned * kAdamFlops * cards / cluster_.host_flops_per_s * 1e9);
      }
      double disk = 0;
      if (s.optimizer_tier == Tier::kDisk && cluster_.disk_bytes_per_s > 0) {
        disk =
            2 * owned * (s.master_bytes + s.moment_bytes) * cards / cluster_.disk_bytes_per_s * 1e9;
      }
      // Gradients come down beside the backward; the update follows the norm, and what it makes
      // goes up behind it.
      const double up = link * s.weight_bytes / (s.gradient_bytes + s.weight_bytes);
      const double down = std::max(0.0, link - up - last_backward[at]);
      offload = down + std::max({host, disk, up});
      out.traffic.offload = owned * (s.gradient_bytes + s.weight_bytes);
    }
    if (s.parameter_tier != Tier::kDevice) {
      const double rate =
          s.parameter_tier == Tier::kDisk && cluster_.disk_bytes_per_s > 0
              ? cluster_.disk_bytes_per_s / std::min(cluster_.gpus, cluster_.gpus_per_node)
              : cluster_.pcie_bytes_per_s /
                    std::min<double>(std::min(cluster_.gpus, cluster_.gpus_per_node),
                                     cluster_.cards_per_host_link);
      const double fetched =
          2 * (dense + expert) / real(shards.dense_values) * s.weight_bytes * real(micros);
      const double busy = work[at].total() * real(micros);
      offload += std::max(0.0, fetched / rate * 1e9 - busy);
      out.traffic.offload += fetched;
    }
    StagePieces& own = pieces.stages[at];
    own.reduce = reduce_ns;
    own.publish = publish_ns;
    own.optimizer = optimizer;
    own.offload = offload;
    own.slow = slow;
    const double finish =
        run.end_ns[at] - begins(at) + slow + exposed_reduce + optimizer + offload + exposed_publish;
    if (finish > end) {
      end = finish;
      time.overlap_ns = slow;
      time.gather_ns = exposed_publish + gather[at] * real(micros);
      time.reduce_ns = exposed_reduce + reduce[at] * real(micros);
      time.optimizer_ns = optimizer;
      time.offload_ns = offload;
      time.bounding_stage = stage;
      const double n = real(shards.dense);
      out.traffic.reduce = dense * wire_reduce * (n - 1) / n * (s.zero_stage == 0 ? 2 : 1);
      out.traffic.publish =
          s.zero_stage == 1 || s.zero_stage == 2 ? dense * s.weight_bytes * (n - 1) / n : 0;
      if (z3) {
        const double v = real(shards.dense_values);
        out.traffic.gather = 2 * dense * wire_weight * (v - 1) / v * real(micros);
        out.traffic.reduce *= s.reduce_each_micro_batch ? real(micros) : 1;
      }
    }
  }
  const auto bound = static_cast<size_t>(time.bounding_stage);
  time.work = work[bound];
  const double m = real(micros);
  for (double& c : time.work.compute) c *= m;
  time.work.launch *= m;
  time.work.tensor *= m;
  time.work.context *= m;
  time.work.expert *= m;
  time.step_ns = end;
  if (z3) time.overlap_ns += overlap[bound] * m;
  const double spent =
      time.work.total() + (z3 ? (gather[bound] + reduce[bound] + overlap[bound]) * m : 0);
  time.bubble_ns = std::max(0.0, run.end_ns[bound] - begins(bound) - spent);
  time.transfer_ns = std::min(time.bubble_ns, 2 * times.transfer_ns * (p - 1) * chunks);
  const double span = run.total_ns - begins(bound);
  time.bubble_rate = span > 0 ? time.bubble_ns / span : 0;

  const double samples = real(s.global_batch);
  out.model_flops = costs.shard->model_flops * samples;
  const double seconds = time.step_ns * 1e-9;
  const double cards = s.world();
  out.tflops_per_gpu = out.model_flops / seconds / cards * 1e-12;
  out.mfu = out.model_flops / seconds / cards / card.narrow_flops_per_s;
  out.hfu = out.executed_flops / seconds / cards / card.narrow_flops_per_s;
  out.samples_per_s = samples / seconds;
  out.tokens_per_s = samples * real(costs.shard->tokens) / seconds;
  const double node_cards = std::min(cluster_.gpus, cluster_.gpus_per_node);
  const StageMemory& fullest = out.memory[static_cast<size_t>(out.fullest_stage)];
  const double owned = real(fullest.parameters) / (s.zero_stage >= 1 ? real(shards.dense) : 1);
  const auto tier = [&](Tier where, double bytes) {
    if (where == Tier::kHost) out.host_bytes += bytes * node_cards;
    if (where == Tier::kDisk) out.disk_bytes += bytes * node_cards;
  };
  tier(s.optimizer_tier, owned * (s.master_bytes + s.moment_bytes));
  tier(s.gradient_tier, owned * s.gradient_bytes);
  tier(s.parameter_tier, owned * s.weight_bytes);
  return out;
}

}  // namespace vitrine
