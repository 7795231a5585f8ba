// The resolved configuration as a run file.
#include <cmath>

#include "config/run_config.h"
#include "core/json.h"

namespace vitrine {
namespace {

const char* deepspeed_dtype(DType dtype) {
  return dtype == DType::kBF16 ? "bf16" : dtype == DType::kF16 ? "fp16" : "fp32";
}

Json data_json(const DataConfig& data) {
  Json json = {{"kind", data.kind}};
  if (data.kind != "random") {
    json["path"] = data.path;
    json["eval_path"] = data.eval_path;
  }
  if (data.kind == "frames" || data.kind == "balls") json["stride"] = data.stride;
  json["workers"] = data.workers;
  json["prefetch"] = data.prefetch;
  if (data.kind == "balls") {
    json["balls"] = data.balls;
    json["episodes"] = data.episodes;
    json["eval_episodes"] = data.eval_episodes;
    json["episode_frames"] = data.episode_frames;
  }
  return json;
}

Json train_json(const TrainConfig& train) {
  Json json;
  if (train.steps > 0) json["steps"] = train.steps;
  if (train.seconds > 0) json["seconds"] = train.seconds;
  json["device"] = train.device;
  json["tf32"] = train.tf32;
  json["deterministic"] = train.deterministic;
  json["graphs"] = train.graphs;
  json["seed"] = train.seed;
  json["log_every"] = train.log_every;
  json["eval_every"] = train.eval_every;
  json["eval_batches"] = train.eval_batches;
  json["timeout_seconds"] = train.timeout_seconds;
  json["checkpoint"] = {{"every", train.checkpoint.every}, {"keep", train.checkpoint.keep}};
  const TraceConfig& trace = train.trace;
  json["trace"] = {{"skip_first", trace.skip_first},
                   {"wait", trace.wait},
                   {"warmup", trace.warmup},
                   {"active", trace.active},
                   {"repeat", trace.repeat},
                   {"operations", trace.operations}};
  for (const RolloutPhase& phase : train.rollout) {
    json["rollout"].push_back({{"until", phase.until}, {"steps", phase.steps}});
  }
  return json;
}

// A schedule that ends elsewhere than the run does can only be said in DeepSpeed's words.
void add_schedule(const TrainConfig& train, Json& json) {
  using Shape = LearningRateSchedule::Shape;
  const LearningRateSchedule& schedule = train.schedule;
  if (schedule.total_steps == train.steps) {
    json["train"]["schedule"] = schedule.shape == Shape::kCosine   ? "cosine"
                                : schedule.shape == Shape::kLinear ? "linear"
                                                                   : "constant";
    json["train"]["warmup_steps"] = schedule.warmup_steps;
    json["train"]["final_lr_ratio"] = schedule.final_ratio;
    return;
  }
  Json params = {{"warmup_num_steps", schedule.warmup_steps},
                 {"warmup_type", "linear"},
                 {"total_num_steps", schedule.total_steps}};
  if (schedule.shape == Shape::kCosine) params["cos_min_ratio"] = schedule.final_ratio;
  json["scheduler"] = {{"type",
                        schedule.shape == Shape::kCosine   ? "WarmupCosineLR"
                        : schedule.shape == Shape::kLinear ? "WarmupDecayLR"
                                                           : "WarmupLR"},
                       {"params", params}};
}

void add_precision(const RunConfig& config, Json& json) {
  const Strategy& strategy = config.strategy;
  if (strategy.compute_dtype == DType::kBF16) {
    json["bf16"] = {{"enabled", true}};
    if (strategy.master_dtype == DType::kBF16) json["bf16"]["bf16_master_weights_and_grads"] = true;
    if (strategy.moment_dtype == DType::kBF16) json["bf16"]["bf16_optimizer_states"] = true;
    json["fp8"] = {{"enabled", config.fp8}};
  }
  if (strategy.compute_dtype == DType::kF16) {
    const LossScaler& scaler = config.loss_scaler;
    json["fp16"] = {{"enabled", true},
                    {"loss_scale", scaler.dynamic ? 0 : scaler.scale},
                    {"loss_scale_window", scaler.window},
                    {"hysteresis", scaler.hysteresis},
                    {"consecutive_hysteresis", scaler.consecutive_hysteresis},
                    {"min_loss_scale", scaler.min_scale}};
    if (scaler.dynamic) json["fp16"]["initial_scale_power"] = std::lround(std::log2(scaler.scale));
  }
  json["data_types"] = {{"grad_accum_dtype", deepspeed_dtype(strategy.gradient_dtype)}};
}

}  // namespace

std::string resolved_json(const RunConfig& config) {
  const Strategy& s = config.strategy;
  Json json;
  json["name"] = config.name;
  json["model"] = parse_json(config.model, "model");
  json["data"] = data_json(config.data);
  json["train"] = train_json(config.train);
  json["mesh"] = {{"data", s.mesh.data},
                  {"tensor", s.mesh.tensor},
                  {"pipeline", s.mesh.pipeline},
                  {"context", s.mesh.context},
                  {"pipeline_order", s.pipeline_order == PipelineOrder::kGPipe ? "gpipe" : "1f1b"}};
  json["frozen"] = s.frozen;
  json["persistent"] = s.persistent;
  json["train_batch_size"] = s.global_batch();
  json["train_micro_batch_size_per_gpu"] = s.micro_batch;
  json["gradient_accumulation_steps"] = s.accumulation;
  json["gradient_clipping"] = config.optimizer.clip;
  json["optimizer"] = {{"type", "AdamW"},
                       {"params",
                        {{"lr", config.optimizer.lr},
                         {"betas", Json::array({config.optimizer.beta1, config.optimizer.beta2})},
                         {"eps", config.optimizer.eps},
                         {"weight_decay", config.optimizer.weight_decay}}}};
  add_schedule(config.train, json);
  add_precision(config, json);
  Json zero = {{"stage", s.shard.stage()},
               {"reduce_bucket_size", s.reduce_bucket},
               {"allgather_bucket_size", s.gather_bucket},
               {"overlap_comm", s.overlap}};
  if (s.shard.parameters) {
    zero["stage3_prefetch_bucket_size"] = s.prefetch_elements;
    zero["stage3_param_persistence_threshold"] = s.persistence_threshold;
    zero["stage3_max_live_parameters"] = s.max_live_elements;
    zero["stage3_max_reuse_distance"] = s.max_reuse_distance;
  }
  json["zero_optimization"] = zero;
  if (s.recompute) json["activation_checkpointing"] = {{"number_checkpoints", 1}};
  json["comms_logger"] = {{"enabled", config.train.comms_log}};
  return json.dump(2) + "\n";
}

}  // namespace vitrine
