// Names of a strategy's choices, and what a strategy must hold to.
#include "plan/cluster_strategy.h"

#include <algorithm>
#include <cstdlib>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/format.h"
#include "machines/cluster.h"
#include "plan/model_shape.h"

namespace vitrine {
namespace {

template <typename Enum>
using Names = std::vector<std::pair<Enum, const char*>>;

const Names<Recompute> kRecomputes = {
    {Recompute::kNone, "none"}, {Recompute::kSelective, "selective"}, {Recompute::kFull, "full"}};
const Names<Tier> kTiers = {
    {Tier::kDevice, "device"}, {Tier::kHost, "host"}, {Tier::kDisk, "disk"}};
const Names<PipelineKind> kPipelines = {{PipelineKind::kGPipe, "gpipe"},
                                        {PipelineKind::k1F1B, "1f1b"},
                                        {PipelineKind::kInterleaved, "interleaved"},
                                        {PipelineKind::kZbH1, "zb-h1"},
                                        {PipelineKind::kZbH2, "zb-h2"},
                                        {PipelineKind::kZbV, "zb-v"},
                                        {PipelineKind::kZb1p, "zb-1p"},
                                        {PipelineKind::kZb2p, "zb-2p"}};
const Names<Precision> kPrecisions = {{Precision::kF32, "fp32"},
                                      {Precision::kF16, "fp16"},
                                      {Precision::kBF16, "bf16"},
                                      {Precision::kF8, "fp8"},
                                      {Precision::kF4, "fp4"}};
const Names<Dispatcher> kDispatchers = {
    {Dispatcher::kCopies, "copies"}, {Dispatcher::kNodes, "nodes"}, {Dispatcher::kRanks, "ranks"}};

template <typename Enum>
const char* name_of(const Names<Enum>& names, Enum value) {
  for (const auto& [each, name] : names) {
    if (each == value) return name;
  }
  return "";
}

template <typename Enum>
Enum from_name(const Names<Enum>& names, const std::string& given, const char* what) {
  std::vector<std::string> known;
  for (const auto& [value, name] : names) {
    if (lower(given) == name) return value;
    known.push_back(name);
  }
  throw ConfigError(std::string("no ") + what + " is called \"" + given +
                    "\"; known: " + join(known, ", "));
}

long long ll(int64_t value) { return static_cast<long long>(value); }

// The divisor of `whole` (at least 1) nearest to `wanted`; of two the smaller.
int64_t nearest_divisor(int64_t whole, int64_t wanted) {
  int64_t best = 1;
  const auto consider = [&](int64_t divisor) {
    const int64_t distance = std::llabs(divisor - wanted), least = std::llabs(best - wanted);
    if (distance < least || (distance == least && divisor < best)) best = divisor;
  };
  for (int64_t d = 1; d * d <= whole; ++d) {
    if (whole % d != 0) continue;
    consider(d);
    consider(whole / d);
  }
  return best;
}

void check_least(const char* name, int64_t value, int64_t least) {
  if (value >= least) return;
  throw ConfigError(format("%s: is at least %lld, got %lld", name, ll(least), ll(value)));
}

void check_divides(const char* name, int64_t degree, const std::string& what, int64_t whole) {
  if (whole % degree == 0) return;
  throw ConfigError(format("%s %lld does not divide the %s (%lld); nearest that does: %lld",
                           name,
                           ll(degree),
                           what.c_str(),
                           ll(whole),
                           ll(nearest_divisor(whole, degree))));
}

void check_sizes(const ClusterStrategy& s) {
  const std::pair<const char*, int64_t> ones[] = {{"data", s.mesh.data},
                                                  {"tensor", s.mesh.tensor},
                                                  {"pipeline", s.mesh.pipeline},
                                                  {"context", s.mesh.context},
                                                  {"expert", s.expert},
                                                  {"micro_batch", s.micro_batch},
                                                  {"global_batch", s.global_batch},
                                                  {"interleave", s.interleave},
                                                  {"weight_bytes", s.weight_bytes},
                                                  {"reduce_bytes", s.reduce_bytes},
                                                  {"reduce_bucket", s.reduce_bucket},
                                                  {"gather_bucket", s.gather_bucket}};
  for (const auto& [name, value] : ones) check_least(name, value, 1);
  const std::pair<const char*, int64_t> zeros[] = {
      {"gradient_bytes", s.gradient_bytes},
      {"master_bytes", s.master_bytes},
      {"moment_bytes", s.moment_bytes},
      {"shard_group", s.shard_group},
      {"sequence", s.sequence},
      {"loss_chunk_rows", s.loss_chunk_rows},
      {"prefetch_elements", s.prefetch_elements},
      {"persistence_threshold", s.persistence_threshold}};
  for (const auto& [name, value] : zeros) check_least(name, value, 0);
  if (s.zero_stage < 0 || s.zero_stage > 3) {
    throw ConfigError(format("zero_stage: is 0, 1, 2 or 3, got %d; nearest: %d",
                             s.zero_stage,
                             std::clamp(s.zero_stage, 0, 3)));
  }
  if (!(s.imbalance >= 1)) {
    throw ConfigError(format("imbalance: is at least 1 (all experts alike), got %g", s.imbalance));
  }
}

// Profiles of machines that were measured may end at the machine.
void check_links(const Cluster& cluster) {
  if (cluster.nodes() > 1 && cluster.network_bytes_per_s <= 0) {
    throw ConfigError(format(
        "%d cards are %d nodes of %d, and of the network between them nothing is known: give "
        "network_bytes_per_s (a card and direction) in the profile, or a topology that has "
        "it, or at most %d card%s",
        cluster.gpus,
        cluster.nodes(),
        cluster.gpus_per_node,
        cluster.gpus_per_node,
        cluster.gpus_per_node == 1 ? "" : "s"));
  }
  const bool pcie = cluster.links == NodeLinks::kPcie;
  const double link = pcie ? cluster.pcie_bytes_per_s : cluster.link_bytes_per_s;
  if (std::min(cluster.gpus, cluster.gpus_per_node) > 1 && link <= 0) {
    throw ConfigError(
        format("of the links between the cards of a node nothing is known: give "
               "%s_bytes_per_s in the profile",
               pcie ? "pcie" : "link"));
  }
}

void check_cards(const ClusterStrategy& s, const Cluster& cluster) {
  const Mesh& mesh = s.mesh;
  if (cluster.gpus_per_node < 1 || cluster.gpus < 1) {
    throw ConfigError("cluster: gpus and gpus_per_node are at least 1");
  }
  check_links(cluster);
  if (cluster.gpus > cluster.gpus_per_node && cluster.gpus % cluster.gpus_per_node != 0) {
    const int down = cluster.gpus / cluster.gpus_per_node * cluster.gpus_per_node;
    throw ConfigError(format("%d cards are not whole nodes of %d; nearest: %d or %d",
                             cluster.gpus,
                             cluster.gpus_per_node,
                             down,
                             down + cluster.gpus_per_node));
  }
  const int64_t inner = int64_t{mesh.tensor} * mesh.pipeline * mesh.context;
  if (inner * mesh.data == cluster.gpus) return;
  const std::string product = format("data %d x tensor %d x pipeline %d x context %d = %lld",
                                     mesh.data,
                                     mesh.tensor,
                                     mesh.pipeline,
                                     mesh.context,
                                     ll(inner * mesh.data));
  if (cluster.gpus % inner == 0) {
    throw ConfigError(product + format(" ranks, but there are %d cards; data %lld would fit",
                                       cluster.gpus,
                                       ll(cluster.gpus / inner)));
  }
  throw ConfigError(
      product +
      format(" ranks, but there are %d cards, which tensor x pipeline x context = %lld does not "
             "divide; nearest product that does: %lld",
             cluster.gpus,
             ll(inner),
             ll(nearest_divisor(cluster.gpus, inner))));
}

void check_batch(const ClusterStrategy& s) {
  const int64_t rows = s.micro_batch * s.mesh.data;
  if (s.global_batch % rows == 0) return;
  const int64_t down = s.global_batch / rows * rows;
  throw ConfigError(
      format("global_batch %lld is not a multiple of micro_batch %lld x data %d = "
             "%lld; nearest: %s%lld",
             ll(s.global_batch),
             ll(s.micro_batch),
             s.mesh.data,
             ll(rows),
             down > 0 ? format("%lld or ", ll(down)).c_str() : "",
             ll(down + rows)));
}

// What tensor ranks split of a stack. Key heads are split, or repeated when there are fewer.
std::vector<std::pair<const char*, int64_t>> split_by_tensor(const StackShape& stack,
                                                             int64_t tensor) {
  std::vector<std::pair<const char*, int64_t>> split = {{"heads", stack.heads}};
  if (tensor % stack.kv_heads != 0) split.emplace_back("key heads", stack.kv_heads);
  const bool has_dense = stack.experts == 0 || stack.dense_layers > 0;
  if (has_dense) split.emplace_back("MLP width", stack.ffn);
  if (stack.shared_ffn > 0) split.emplace_back("shared expert's width", stack.shared_ffn);
  return split;
}

bool tensor_fits(const StackShape& stack, int64_t tensor) {
  const auto split = split_by_tensor(stack, tensor);
  return std::all_of(
      split.begin(), split.end(), [&](const auto& each) { return each.second % tensor == 0; });
}

void check_tensor(const ClusterStrategy& s, const ModelShape& model) {
  const int64_t tensor = s.mesh.tensor;
  const bool has_tower = model.tower.layers > 0;
  for (const StackShape* stack : {&model.stack, &model.tower}) {
    if (stack->layers == 0) continue;
    for (const auto& [what, whole] : split_by_tensor(*stack, tensor)) {
      if (whole % tensor == 0) continue;
      int64_t nearest = 1;
      for (int64_t t = 2; t <= model.stack.heads; ++t) {
        const bool fits =
            tensor_fits(model.stack, t) && (!has_tower || tensor_fits(model.tower, t));
        if (fits && std::llabs(t - tensor) < std::llabs(nearest - tensor)) nearest = t;
      }
      throw ConfigError(
          format("tensor %lld does not divide the %s%s (%lld); nearest that does: %lld",
                 ll(tensor),
                 stack == &model.tower ? "tower's " : "",
                 what,
                 ll(whole),
                 ll(nearest)));
    }
  }
}

// Stages may differ by a layer; none may be without.
void check_pipeline(const ClusterStrategy& s, const ModelShape& model) {
  const bool interleaved = s.pipeline == PipelineKind::kInterleaved;
  const char* name = pipeline_name(s.pipeline);
  if (s.mesh.pipeline > 1 && interleaved && s.interleave < 2) {
    throw ConfigError("interleave: pipeline \"interleaved\" has at least 2 chunks a stage, got 1");
  }
  const bool two_chunks = s.pipeline == PipelineKind::kZbV && s.interleave <= 2;
  if (s.interleave > 1 && !interleaved && !two_chunks) {
    throw ConfigError(
        format("interleave %d is for pipeline \"interleaved\", got \"%s\"; nearest: "
               "%d, or that pipeline",
               s.interleave,
               name,
               s.pipeline == PipelineKind::kZbV ? 2 : 1));
  }
  const int64_t chunks_a_stage =
      s.pipeline == PipelineKind::kZbV && s.mesh.pipeline > 1 ? 2 : s.interleave;
  const int64_t layers = model.stack.layers;
  if (s.mesh.pipeline > layers) {
    throw ConfigError(format("pipeline %d: more stages than the %lld layers; nearest: %lld",
                             s.mesh.pipeline,
                             ll(layers),
                             ll(layers)));
  }
  // Embedding and head may have chunks of their own (Megatron counts them as layers).
  const int64_t most = interleaved ? layers + 2 : layers;
  if (chunks_a_stage * s.mesh.pipeline > most) {
    const std::string nearest = interleaved ? format("interleave %lld", ll(most / s.mesh.pipeline))
                                            : format("pipeline %lld", ll(most / chunks_a_stage));
    throw ConfigError(
        format("pipeline %d x %lld chunks a stage is more than the %lld layers; "
               "nearest: %s",
               s.mesh.pipeline,
               ll(chunks_a_stage),
               ll(layers),
               nearest.c_str()));
  }
  const int64_t micro_batches = s.accumulation();
  if (interleaved && s.mesh.pipeline > 1 && micro_batches < s.mesh.pipeline) {
    throw ConfigError(
        format("global_batch %lld gives a rank %lld micro-batches, pipeline "
               "\"interleaved\" needs at least one a stage (%d); nearest: %lld",
               ll(s.global_batch),
               ll(micro_batches),
               s.mesh.pipeline,
               ll(s.micro_batch * s.mesh.data * s.mesh.pipeline)));
  }
}

void check_experts(const ClusterStrategy& s, const StackShape& stack) {
  if (s.expert == 1) return;
  if (stack.experts == 0) {
    throw ConfigError(format("expert %d: the model has no experts; nearest: 1", s.expert));
  }
  check_divides("expert", s.expert, "experts", stack.experts);
  // Experts are not split over tensor ranks: those take part in the expert groups.
  check_divides("expert",
                s.expert,
                "data x context x tensor ranks",
                int64_t{s.mesh.data} * s.mesh.context * s.mesh.tensor);
}

// Tokens of a picture or a clip are the model's; of text the job's.
void check_sequence(const ClusterStrategy& s, const ModelShape& model) {
  const bool fixed = model.family == "vit" || model.family == "world_model";
  const int64_t own = model.max_sequence;
  if (fixed && s.sequence != 0 && own > 0 && s.sequence != own) {
    throw ConfigError(format("sequence: a sample of %s has %lld tokens, got %lld",
                             model.name.c_str(),
                             ll(own),
                             ll(s.sequence)));
  }
  const int64_t sequence = fixed && s.sequence == 0 ? own : s.sequence;
  check_least("sequence", sequence, 1);
  if (!fixed && model.positions > 0 && sequence > model.positions) {
    throw ConfigError(format("sequence: %s has a table of %lld positions, got %lld; nearest: %lld",
                             model.name.c_str(),
                             ll(model.positions),
                             ll(sequence),
                             ll(own > 0 ? std::min(own, model.positions) : model.positions)));
  }
  check_divides("context", s.mesh.context, "sequence", sequence);
}

void check_sharding(const ClusterStrategy& s) {
  const int64_t ranks = int64_t{s.mesh.data} * s.mesh.context;
  if (s.shard_group > 0) check_divides("shard_group", s.shard_group, "data x context ranks", ranks);
  if (s.parameter_tier != Tier::kDevice && s.zero_stage < 3 && ranks > 1) {
    throw ConfigError(
        format("parameter_tier \"%s\" needs zero_stage 3 (parameters are then held in "
               "shards), got %d",
               tier_name(s.parameter_tier),
               s.zero_stage));
  }
  if ((s.quantized_gather || s.quantized_reduce) && s.zero_stage < 3) {
    throw ConfigError(format("%s needs zero_stage 3, got %d",
                             s.quantized_gather ? "quantized_gather" : "quantized_reduce",
                             s.zero_stage));
  }
}

void check_precision(const ClusterStrategy& s, const Cluster& cluster) {
  if (cluster.card == nullptr) return;
  const Accelerator& card = *cluster.card;
  const std::pair<Precision, double> peaks[] = {{Precision::kF4, card.fp4_flops_per_s},
                                                {Precision::kF8, card.fp8_flops_per_s},
                                                {Precision::kBF16, card.bf16_flops_per_s},
                                                {Precision::kF16, card.fp16_flops_per_s},
                                                {Precision::kF32, card.fp32_flops_per_s}};
  bool after = false;
  for (const auto& [precision, peak] : peaks) {
    if (precision == s.precision && peak > 0) return;
    after = after || precision == s.precision;
    if (!after || peak <= 0) continue;
    throw ConfigError(format("precision \"%s\": no such rate is known for %s; nearest: \"%s\"",
                             precision_name(s.precision),
                             card.name,
                             precision_name(precision)));
  }
}

}  // namespace

const char* recompute_name(Recompute recompute) { return name_of(kRecomputes, recompute); }
const char* tier_name(Tier tier) { return name_of(kTiers, tier); }
const char* pipeline_name(PipelineKind kind) { return name_of(kPipelines, kind); }
const char* precision_name(Precision precision) { return name_of(kPrecisions, precision); }
const char* dispatcher_name(Dispatcher dispatcher) { return name_of(kDispatchers, dispatcher); }

Recompute recompute_from_name(const std::string& name) {
  return from_name(kRecomputes, name, "recomputation");
}
Tier tier_from_name(const std::string& name) { return from_name(kTiers, name, "tier"); }
PipelineKind pipeline_from_name(const std::string& name) {
  return from_name(kPipelines, name, "pipeline schedule");
}
Precision precision_from_name(const std::string& name) {
  return from_name(kPrecisions, name, "precision");
}
Dispatcher dispatcher_from_name(const std::string& name) {
  return from_name(kDispatchers, name, "dispatcher");
}

int64_t ClusterStrategy::accumulation() const { return global_batch / (micro_batch * mesh.data); }

void check_strategy(const ClusterStrategy& strategy,
                    const ModelShape& model,
                    const Cluster& cluster) {
  check_sizes(strategy);
  check_cards(strategy, cluster);
  check_batch(strategy);
  check_tensor(strategy, model);
  check_experts(strategy, model.stack);
  check_pipeline(strategy, model);
  check_sequence(strategy, model);
  check_sharding(strategy);
  check_precision(strategy, cluster);
}

}  // namespace vitrine
