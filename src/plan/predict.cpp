// Memory and time of a step.
#include "plan/predict.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

// A product beside a collective of the data-parallel group runs this much slower: the collective
// takes some multiprocessors and bandwidth.
constexpr double kOverlapSlowdown = 0.06;
// Blocks that ZeRO-3 holds gathered at once: the one in use and the one fetched ahead.
constexpr int kGatheredBlocks = 2;
// Of what is allocated, what the allocator cannot use between blocks.
constexpr double kFragmentation = 0.03;
// Buffers of one communicator of NCCL on a card.
constexpr double kCommunicatorBytes = 200e6;
// Micro-batches beyond which a pipeline's steady state is continued in a straight line.
constexpr int kSteadyRounds = 6;

double real(int64_t value) { return static_cast<double>(value); }

}  // namespace

double StageMemory::total() const {
  double sum = context_bytes + fragmentation_bytes;
  for (const int64_t b : bytes) sum += real(b);
  return sum;
}

std::vector<std::pair<int, int>> cut_positions(const ShardModel& model, int positions) {
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
  s.zero_stage = plain.zero_stage;
  s.shard_group = plain.shard_group;
  s.global_batch = plain.global_batch;
  s.pipeline = plain.pipeline;
  s.interleave = plain.interleave;
  s.optimizer_tier = s.gradient_tier = s.parameter_tier = s.activation_tier = Tier::kDevice;
  s.quantized_gather = s.quantized_reduce = false;
  s.overlap_reduce = s.overlap_gather = true;
  s.reduce_each_micro_batch = plain.reduce_each_micro_batch;
  return s;
}

// And that their tapes do not depend on.
ClusterStrategy shape_key(const ClusterStrategy& strategy) {
  ClusterStrategy s = strategy;
  s.recompute = Recompute::kNone;
  if (s.precision != Precision::kF32) s.precision = Precision::kBF16;
  s.overlap_tensor = s.graphs = false;
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

namespace {

// What the parameters of a stage are, on one card.
struct StageParameters {
  int64_t dense = 0, expert = 0, frozen = 0, largest_block = 0;
};

// How many ranks share a parameter's states, and its values under ZeRO-3.
struct Shards {
  int64_t dense = 1, expert = 1;  // optimizer and gradients
  int64_t dense_values = 1, expert_values = 1;
  GroupPlace dense_group, expert_group, values_group, replica_group;
};

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
      return std::min(m, p);
    case PipelineKind::kZbH2:
      return std::min(m, 2 * p - 1);
    case PipelineKind::kZbV:
      return std::min(2 * m, 2 * p);
  }
  return 1;
}

}  // namespace

int pipeline_chunks(const ClusterStrategy& s) {
  if (s.mesh.pipeline == 1) return 1;
  if (s.pipeline == PipelineKind::kZbV) return 2;
  return s.pipeline == PipelineKind::kInterleaved ? s.interleave : 1;
}

bool weight_gradients_apart(const ClusterStrategy& s) {
  return s.mesh.pipeline > 1 &&
         (s.pipeline == PipelineKind::kZbH1 || s.pipeline == PipelineKind::kZbH2 ||
          s.pipeline == PipelineKind::kZbV);
}

PipelineOrders pipeline_orders(const ClusterStrategy& s, const PipelineTimes& times) {
  if (s.pipeline == PipelineKind::kZbV && s.mesh.pipeline > 1) {
    return zero_bubble_v_orders(times, 2 * s.mesh.pipeline);
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

std::vector<StageMemory> Planner::memory(const ClusterStrategy& strategy) {
  check_strategy(strategy, model_, cluster_);
  return memory_of(blocks(strategy), strategy);
}

bool Planner::fits(const ClusterStrategy& strategy) {
  for (const StageMemory& stage : memory(strategy)) {
    if (stage.total() > real(cluster_.card->memory_bytes)) return false;
  }
  return true;
}

std::vector<StageMemory> Planner::memory_of(const Blocks& costs, const ClusterStrategy& s) const {
  const int p = s.mesh.pipeline, chunks = pipeline_chunks(s);
  const auto cut = cut_positions(*costs.shard, p * chunks);
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
        par.dense += block.parameters - block.frozen_parameters;
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
    const int flight = in_flight(s, stage);
    const double whole = kept * flight / chunks;
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
          split(s.master_bytes + s.moment_bytes,
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
    memory.fragmentation_bytes = kFragmentation * (memory.total() - memory.context_bytes);
    memory.peak_moment = format("backward of %s%s, %d micro-batch%s in flight",
                                head_peak ? head_name.c_str() : scratch_name.c_str(),
                                chunks > 1 ? " (chunks counted)" : "",
                                flight,
                                flight == 1 ? "" : "es");
    stages.push_back(std::move(memory));
  }
  return stages;
}

namespace {

// Time of the pipeline with `micros` micro-batches; beyond some rounds the steady state goes on in
// a straight line.
struct Makespan {
  PipelineResult result;
  double total_ns = 0;
  std::vector<double> end_ns;
};

Makespan run_pipeline(const ClusterStrategy& s, PipelineTimes times, int64_t micros) {
  const int p = times.size.stages;
  const int64_t round = p, most = std::max<int64_t>(64, kSteadyRounds * round);
  const auto simulate = [&](int64_t m) {
    times.size.micros = static_cast<int>(m);
    return simulate_pipeline(times, pipeline_orders(s, times));
  };
  Makespan made;
  if (micros <= most + round) {
    made.result = simulate(micros);
    made.total_ns = made.result.makespan_ns;
    made.end_ns = made.result.end_ns;
    return made;
  }
  // The same remainder of whole rounds, so that the last round looks the same.
  const int64_t less = most / round * round + micros % round;
  const PipelineResult before = simulate(less - round);
  made.result = simulate(less);
  const double rounds = real(micros - less) / real(round);
  made.total_ns = made.result.makespan_ns + rounds * (made.result.makespan_ns - before.makespan_ns);
  made.end_ns = made.result.end_ns;
  for (size_t i = 0; i < made.end_ns.size(); ++i) {
    made.end_ns[i] += rounds * (made.result.end_ns[i] - before.end_ns[i]);
    made.result.busy_ns[i] += rounds * (made.result.busy_ns[i] - before.busy_ns[i]);
  }
  made.result.makespan_ns = made.total_ns;
  return made;
}

// What ZeRO-3's communication adds to one forward and one backward of a chunk. One lane of
// communication; the next block's gather, and the reduction of the block before, run beside a
// block's products.
struct SharedPass {
  double forward = 0, backward = 0;  // exposed, all
  double gather = 0, reduce = 0;     // of that
  double slow_forward = 0, slow_backward = 0;
};

SharedPass shared_pass(const std::vector<BlockPiece>& blocks,
                       bool first_chunk,
                       const ClusterStrategy& s,
                       int64_t micros) {
  SharedPass pass;
  const size_t n = blocks.size();
  for (size_t i = 0; i < n; ++i) {
    const BlockPiece& b = blocks[i];
    pass.slow_forward += b.slow;
    pass.slow_backward += b.slow_back;
    if (!s.overlap_gather) {
      pass.forward += b.gather;
    } else if (i + 1 < n) {
      pass.forward += std::max(0.0, blocks[i + 1].gather - b.forward - b.slow);
    }
    // Backward: the last block is still gathered from its forward.
    const double before = i > 0 && s.overlap_gather ? blocks[i - 1].gather : 0;
    const double after = i + 1 < n && s.overlap_reduce ? blocks[i + 1].reduce : 0;
    const double beside = std::max(0.0, before + after - b.backward - b.weight - b.slow_back);
    const double share = before + after > 0 ? before / (before + after) : 0;
    pass.gather += beside * share;
    pass.reduce += beside * (1 - share);
    if (!s.overlap_gather && i + 1 < n) pass.gather += b.gather;
    if (!s.overlap_reduce) pass.reduce += b.reduce;
  }
  pass.backward = pass.gather + pass.reduce;
  if (n > 0 && s.overlap_gather && first_chunk) pass.forward += blocks[0].gather;
  pass.gather += pass.forward;
  if (n > 0 && s.overlap_reduce && first_chunk) {
    // Behind the last backward of the step alone.
    const double last = blocks[0].reduce / real(micros);
    pass.backward += last;
    pass.reduce += last;
  }
  return pass;
}

// What of a reduction in equal parts, one after each block's last backward, ends after the stage's
// last work. A chunk that is done early hides its parts behind the others.
double exposed_after(const StagePieces& stage, double reduce, const PipelineResult& run, int at) {
  const size_t chunks = stage.chunks.size(), first = static_cast<size_t>(at) * chunks;
  size_t blocks = 0;
  bool apart = false;
  std::vector<size_t> order(chunks);
  for (size_t c = 0; c < chunks; ++c) {
    order[c] = c;
    blocks += stage.chunks[c].size();
    for (const BlockPiece& piece : stage.chunks[c]) apart = apart || piece.weight > 0;
  }
  if (blocks == 0) return reduce;
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return run.chunk_end_ns[first + a] < run.chunk_end_ns[first + b];
  });
  const auto length = [&](const BlockPiece& p) { return apart ? p.weight : p.backward; };
  double lane = 0;
  for (const size_t c : order) {
    double done = run.chunk_end_ns[first + c];
    for (const BlockPiece& piece : stage.chunks[c]) done -= length(piece);
    for (size_t i = stage.chunks[c].size(); i-- > 0;) {
      done += length(stage.chunks[c][i]);
      lane = std::max(lane, done) + reduce / real(static_cast<int64_t>(blocks));
    }
  }
  return std::max(0.0, lane - run.end_ns[static_cast<size_t>(at)]);
}

// How late gathers of new weights, in equal parts in the order of the blocks, make the next step's
// forwards.
double exposed_before(const StagePieces& stage, double publish, const PipelineResult& run, int at) {
  const size_t chunks = stage.chunks.size(), first = static_cast<size_t>(at) * chunks;
  size_t blocks = 0;
  for (const auto& chunk : stage.chunks) blocks += chunk.size();
  if (blocks == 0) return publish;
  double lane = 0, late = 0;
  for (size_t c = 0; c < chunks; ++c) {
    double wanted = run.chunk_begin_ns[first + c] - run.begin_ns[static_cast<size_t>(at)];
    for (const BlockPiece& piece : stage.chunks[c]) {
      lane += publish / real(static_cast<int64_t>(blocks));
      late = std::max(late, lane - wanted);
      wanted += piece.forward;
    }
  }
  return late;
}

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
  out.capacity_bytes = real(cluster_.card->memory_bytes);
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
  const auto cut = cut_positions(*costs.shard, p * chunks);
  const Shards shards = shards_of(s, cluster_);
  const CardModel card = card_model(cluster_, s);
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
  double boundary_bytes = 0;
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
        par[at].dense += block.parameters - block.frozen_parameters;
        par[at].expert += block.expert_parameters;
        par[at].frozen += block.frozen_parameters;
        par[at].largest_block =
            std::max(par[at].largest_block, block.parameters + block.expert_parameters);
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
          piece.slow = s.overlap_gather ? std::min(piece.gather, forward) * kOverlapSlowdown : 0;
          piece.slow_back =
              s.overlap_reduce
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
      times.chunk.push_back(c);
    }
  }
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
    // weights written; and one pass for the norm.
    const bool z1 = s.zero_stage >= 1;
    const double owned = dense / (z1 ? real(z3 ? shards.dense_values : shards.dense) : 1) +
                         expert / (z1 ? real(z3 ? shards.expert_values : shards.expert) : 1);
    const double pass = 2.0 * s.gradient_bytes + 2.0 * (s.master_bytes + s.moment_bytes) +
                        s.weight_bytes * (s.master_bytes > 0 ? 1 : 2);
    double optimizer = 0, offload = 0;
    if (s.optimizer_tier == Tier::kDevice) {
      optimizer = memory_ns(card, owned * pass);
    } else {
      // Gradients down, weights up over the host link; the node's memory is shared by its cards.
      const double cards = std::min(cluster_.gpus, cluster_.gpus_per_node);
      const double link =
          owned * (s.gradient_bytes + s.weight_bytes) / cluster_.pcie_bytes_per_s * 1e9;
      const double host = cluster_.host_bytes_per_s > 0
                              ? owned * pass * cards / cluster_.host_bytes_per_s * 1e9
                              : 0;
      double disk = 0;
      if (s.optimizer_tier == Tier::kDisk && cluster_.disk_bytes_per_s > 0) {
        disk =
            2 * owned * (s.master_bytes + s.moment_bytes) * cards / cluster_.disk_bytes_per_s * 1e9;
      }
      offload = std::max({host, disk, link});
      out.traffic.offload = owned * (s.gradient_bytes + s.weight_bytes);
    }
    if (s.parameter_tier != Tier::kDevice) {
      const double rate =
          s.parameter_tier == Tier::kDisk && cluster_.disk_bytes_per_s > 0
              ? cluster_.disk_bytes_per_s / std::min(cluster_.gpus, cluster_.gpus_per_node)
              : cluster_.pcie_bytes_per_s;
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
        run.end_ns[at] + slow + exposed_reduce + optimizer + offload + exposed_publish;
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
  time.bubble_ns = std::max(0.0, run.end_ns[bound] - spent);
  time.transfer_ns = std::min(time.bubble_ns, 2 * times.transfer_ns * (p - 1) * chunks);
  time.bubble_rate = run.total_ns > 0 ? time.bubble_ns / run.total_ns : 0;

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

PipelineResult Planner::timeline(const ClusterStrategy& s) {
  check_strategy(s, model_, cluster_);
  const Blocks& costs = blocks(s);
  const int p = s.mesh.pipeline, chunks = pipeline_chunks(s);
  const bool apart = weight_gradients_apart(s);
  PipelineTimes times;
  times.size = {p, chunks, static_cast<int>(s.accumulation())};
  times.v_shaped = s.pipeline == PipelineKind::kZbV && p > 1;
  const auto cut = cut_positions(*costs.shard, p * chunks);
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
