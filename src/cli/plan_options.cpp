// From options to a job.
#include "cli/plan_options.h"

#include <algorithm>
#include <filesystem>

#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "plan/deepspeed_strategy.h"
#include "plan/run_strategy.h"
#include "plan/strategy_json.h"

namespace vitrine {
namespace {

// Longest sequence that is assumed where none is given.
constexpr int64_t kLongSequence = 8192;
// Micro-batches a stage that are assumed where no global batch is given: a bubble under 20 %.
constexpr int64_t kRoundsAssumed = 4;

long long ll(int64_t value) { return static_cast<long long>(value); }

bool fixed_sequence(const ModelShape& model) {
  return model.family == "vit" || model.family == "world_model";
}

void set_precision(ClusterStrategy& s, Precision precision) {
  s.precision = precision;
  if (precision != Precision::kF32) return;
  s.weight_bytes = s.gradient_bytes = s.reduce_bytes = 4;
  s.master_bytes = 0;
}

void set_offload(ClusterStrategy& s, const std::vector<std::string>& what) {
  for (const std::string& each : what) {
    const size_t colon = each.find(':');
    const std::string name = each.substr(0, colon);
    const std::string where = colon == std::string::npos ? "host" : each.substr(colon + 1);
    const Tier tier = tier_from_name(where);
    if (name == "optimizer") {
      s.optimizer_tier = tier;
      s.gradient_tier = tier == Tier::kDevice ? Tier::kDevice : Tier::kHost;
    } else if (name == "parameters") {
      s.parameter_tier = tier;
    } else if (name == "activations") {
      s.activation_tier = tier;
    } else if (name != "none") {
      throw UsageError("--offload " + each +
                       ": expected none, optimizer, parameters or activations, with :host or "
                       ":disk behind it (\"optimizer:disk\")");
    }
  }
}

// What a positive option holds; UsageError for others, before anything is read.
template <typename T>
void check_positive(const std::optional<T>& value, const char* name) {
  if (value && *value < 1) {
    throw UsageError(format("%s %lld: is at least 1", name, ll(static_cast<int64_t>(*value))));
  }
}

void check_numbers(const PlanOptions& o) {
  check_positive(o.nodes_of, "--nodes-of");
  check_positive(o.tensor, "--tensor");
  check_positive(o.pipeline, "--pipeline");
  check_positive(o.context, "--context");
  check_positive(o.expert, "--expert");
  check_positive(o.interleave, "--interleave");
  check_positive(o.shard_group, "--shard-group");
  check_positive(o.micro_batch, "--micro-batch");
  check_positive(o.sequence, "--seq");
  check_positive(o.global_batch, "--global-batch");
  check_positive(o.loss_chunk_rows, "--loss-chunk-rows");
  if (o.zero && (*o.zero < 0 || *o.zero > 3)) {
    throw UsageError(format("--zero %d: is 0, 1, 2 or 3", *o.zero));
  }
  if (!(o.price >= 0)) throw UsageError(format("--price %g: is not negative", o.price));
  if (!(o.tokens > 0)) throw UsageError(format("--tokens %g: is more than 0", o.tokens));
}

// The run file that is planned with the strategy that it has, if it is one.
std::optional<RunConfig> run_of(const PlanOptions& o, int gpus) {
  if (!o.deepspeed.empty() || !o.strategy_file.empty() || !std::filesystem::exists(o.model)) {
    return std::nullopt;
  }
  const Json file = read_json_file(o.model);
  if (!file.is_object() || !file.contains("model") || !file.contains("data")) return std::nullopt;
  ConfigOptions options;
  options.world = gpus;
  return read_run_config(o.model, options);
}

// Everything but the mesh's data degree and the batch.
ClusterStrategy base_strategy(const PlanOptions& o,
                              const ModelShape& model,
                              const Cluster& cluster,
                              std::vector<std::string>& assumed) {
  ClusterStrategy s;
  s.global_batch = 0;
  s.mesh.data = 0;
  const Accelerator& card = *cluster.card;
  if (card.bf16_flops_per_s <= 0 && card.fp16_flops_per_s > 0) {
    s.precision = Precision::kF16;
    if (!o.precision) assumed.push_back("fp16, since the card has no bf16");
  }
  if (!o.deepspeed.empty() && !o.strategy_file.empty()) {
    throw UsageError("--deepspeed and --strategy both give a strategy: choose one");
  }
  if (const auto own = run_of(o, cluster.gpus)) {
    s = strategy_of_run(*own);
    if (o.zero || o.pipeline || o.recompute) s.global_batch = 0;
  }
  if (!o.strategy_file.empty()) {
    s = strategy_from_json(read_json_file(o.strategy_file), o.strategy_file, s);
  }
  if (o.tensor) s.mesh.tensor = *o.tensor;
  if (o.pipeline) s.mesh.pipeline = *o.pipeline;
  if (o.context) s.mesh.context = *o.context;
  if (o.tensor || o.pipeline || o.context) s.mesh.data = 0;
  const int64_t inner = int64_t{s.mesh.tensor} * s.mesh.pipeline * s.mesh.context;
  if (s.mesh.data == 0 && inner > 0) {
    s.mesh.data = static_cast<int>(std::max<int64_t>(1, cluster.gpus / inner));
  }
  if (fixed_sequence(model)) {
    s.sequence = model.max_sequence;
    if (o.sequence) s.sequence = *o.sequence;
  } else if (o.sequence) {
    s.sequence = *o.sequence;
  } else if (s.sequence == 0) {
    s.sequence = model.max_sequence > 0 ? std::min(model.max_sequence, kLongSequence) : 2048;
    assumed.push_back(format("sequences of %lld tokens (--seq)", ll(s.sequence)));
  }
  if (!o.deepspeed.empty()) {
    const int64_t sequence = s.sequence;
    const DeepSpeedPlan plan =
        strategy_from_deepspeed(read_json_file(o.deepspeed), s.mesh, sequence);
    s = plan.strategy;
  }
  if (o.expert) s.expert = *o.expert;
  if (o.zero) {
    s.zero_stage = *o.zero;
    // Gradients that are kept in shards are reduced after every micro-batch.
    s.reduce_each_micro_batch = s.zero_stage >= 2;
  }
  if (o.shard_group) s.shard_group = *o.shard_group;
  if (o.micro_batch) s.micro_batch = *o.micro_batch;
  if (o.recompute) s.recompute = recompute_from_name(*o.recompute);
  if (o.interleave) {
    s.interleave = *o.interleave;
    if (s.interleave > 1 && !o.schedule) s.pipeline = PipelineKind::kInterleaved;
  }
  if (o.schedule) s.pipeline = pipeline_from_name(*o.schedule);
  if (o.precision) set_precision(s, precision_from_name(*o.precision));
  if (o.loss_chunk_rows) s.loss_chunk_rows = *o.loss_chunk_rows;
  if (o.imbalance) s.imbalance = *o.imbalance;
  if (s.mesh.tensor > 1 && o.strategy_file.empty()) s.sequence_parallel = true;
  if (o.no_sequence_parallel) s.sequence_parallel = false;
  if (o.no_flash) s.flash_attention = false;
  if (o.unfused) s.fused = false;
  if (o.no_overlap) s.overlap_reduce = s.overlap_gather = false;
  if (o.overlap_tensor) s.overlap_tensor = true;
  if (o.graphs) s.graphs = true;
  set_offload(s, o.offload);
  return s;
}

PlanJob begin_job(const PlanOptions& o) {
  check_numbers(o);
  if (o.model.empty()) {
    throw UsageError("MODEL is required: a built-in name (" + join(built_in_shapes(), ", ") +
                     "), a config.json or a run file");
  }
  if (o.gpus.empty() && o.profile.empty()) {
    throw UsageError("--gpus is required: how many of which card, as in 64xH100; cards: " +
                     join(card_profiles(), ", "));
  }
  PlanJob job;
  job.model = model_shape(o.model);
  job.cluster = plan_cluster(o);
  job.price_per_hour = o.price > 0 ? o.price : job.cluster.price_per_hour;
  job.tokens = o.tokens;
  job.strategy = base_strategy(o, job.model, job.cluster, job.assumed);
  if (!o.stack.empty()) {
    choose_stack(job.cluster, o.stack);
  } else if (job.strategy.own_engine && has_stack(job.cluster, "vitrine")) {
    choose_stack(job.cluster, "vitrine");
  }
  return job;
}

}  // namespace

void PlanOptions::add_to(CLI::App* command) {
  command->add_option("--nodes-of", nodes_of, "Cards of a node (default: the profile's)");
  command->add_option("--topology", topology, "What joins the cards: a name or a file")
      ->type_name("NAME|FILE");
  command->add_option("--stack", stack, "Software that the card runs: a part of a known era's name")
      ->type_name("NAME");
  command
      ->add_option("--profile",
                   profile,
                   "Of this machine: for --gpus its GPUs' (vitrine calibrate --device gpu), for "
                   "--ranks its CPU ranks'")
      ->type_name("FILE");
  command->add_option("--deepspeed", deepspeed, "Strategy from a DeepSpeed configuration")
      ->type_name("FILE");
  command->add_option("--strategy", strategy_file, "Strategy from a file (docs/formats/plan.md)")
      ->type_name("FILE");
  command->add_option("--tensor", tensor, "Tensor-parallel degree");
  command->add_option("--pipeline", pipeline, "Pipeline stages");
  command->add_option("--context", context, "Context-parallel degree (ring attention)");
  command->add_option("--expert", expert, "Expert-parallel degree");
  command->add_option("--zero", zero, "ZeRO stage, 0 to 3 (default 1)");
  command->add_option(
      "--shard-group", shard_group, "Ranks that share parameters under ZeRO-3 (HSDP, MiCS, hpZ)");
  command->add_option("--recompute", recompute, "none, selective or full");
  command->add_option(
      "--offload", offload, "optimizer, parameters, activations; \":disk\" behind it for NVMe");
  command->add_option("--micro-batch", micro_batch, "Samples a rank and micro-batch");
  command->add_option("--seq", sequence, "Tokens a sample");
  command->add_option("--global-batch", global_batch, "Samples a step, all ranks");
  command->add_option("--precision", precision, "bf16, fp16, fp8, fp4 or fp32");
  command->add_option(
      "--schedule", schedule, "gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-1p, zb-2p or zb-v");
  command->add_option("--interleave", interleave, "Model chunks a stage");
  command->add_option("--loss-chunk-rows", loss_chunk_rows, "Rows of logits alive at once");
  command->add_option("--imbalance", imbalance, "Tokens of the fullest expert against the mean");
  command->add_flag("--no-sequence-parallel",
                    no_sequence_parallel,
                    "Norms and residuals whole on every tensor rank");
  command->add_flag("--no-flash", no_flash, "Attention keeps its scores");
  command->add_flag("--unfused", unfused, "Norms, activations and losses in several passes");
  command->add_flag("--no-overlap", no_overlap, "Data-parallel communication hides behind nothing");
  command->add_flag(
      "--overlap-tensor", overlap_tensor, "Tensor communication hides behind products");
  command->add_flag("--graphs", graphs, "CUDA graphs: launches cost nothing");
  command->add_option("--price", price, "Of a GPU-hour, in any money");
  command->add_option("--tokens", tokens, "Tokens to train on, for the cost (default 1e9)");
}

Cluster plan_cluster(const PlanOptions& o) {
  Cluster cluster = make_cluster(o.gpus, o.profile);
  if (!o.topology.empty()) apply_topology(cluster, o.topology);
  if (o.nodes_of) {
    cluster.gpus_per_node = *o.nodes_of;
    cluster.island = std::min(cluster.island, cluster.gpus_per_node);
  }
  return cluster;
}

PlanJob plan_job(const PlanOptions& o) {
  PlanJob job = begin_job(o);
  ClusterStrategy& s = job.strategy;
  if (o.global_batch) {
    s.global_batch = *o.global_batch;
  } else if (s.global_batch == 0) {
    const int64_t rounds = s.mesh.pipeline > 1 ? kRoundsAssumed * s.mesh.pipeline : 1;
    s.global_batch = s.micro_batch * s.mesh.data * rounds;
    job.assumed.push_back(
        format("a global batch of %lld, %lld micro-batch%s a rank "
               "(--global-batch)",
               ll(s.global_batch),
               ll(rounds),
               rounds == 1 ? "" : "es"));
  }
  check_strategy(s, job.model, job.cluster);
  return job;
}

PlanJob search_job(const PlanOptions& o, SearchSpace& space) {
  PlanJob job = begin_job(o);
  ClusterStrategy& s = job.strategy;
  if (o.global_batch) {
    s.global_batch = *o.global_batch;
  } else if (s.global_batch == 0) {
    // About four million tokens, as large models are trained with, and one sample a card at least.
    const int64_t samples =
        std::max<int64_t>(1, (int64_t{4} << 20) / std::max<int64_t>(1, s.sequence));
    s.global_batch = std::max<int64_t>(samples, job.cluster.gpus);
    job.assumed.push_back(
        format("a global batch of %lld samples (--global-batch)", ll(s.global_batch)));
  }
  space.base = s;
  space.tensor = o.tensor;
  space.pipeline = o.pipeline;
  space.context = o.context;
  space.expert = o.expert;
  space.zero_stage = o.zero;
  space.interleave = o.interleave;
  space.micro_batch = o.micro_batch;
  space.shard_group = o.shard_group;
  if (o.recompute) space.recompute = recompute_from_name(*o.recompute);
  if (o.schedule) space.schedule = pipeline_from_name(*o.schedule);
  if (!o.offload.empty()) space.offload = false;
  return job;
}

}  // namespace vitrine
