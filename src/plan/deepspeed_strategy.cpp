// From DeepSpeed's keys, read by config/, to a strategy.
#include "plan/deepspeed_strategy.h"

#include <algorithm>

#include "config/deepspeed.h"
#include "core/error.h"
#include "core/json.h"

namespace vitrine {
namespace {

using Status = Remark::Status;

Strategy deepspeed_defaults() {
  Strategy s;
  s.reduce_bucket = s.gather_bucket = 500'000'000;
  s.prefetch_elements = 50'000'000;
  s.persistence_threshold = 100'000;
  s.max_live_elements = s.max_reuse_distance = 1'000'000'000;
  return s;
}

// Keys that the engine answers with "not yet" and that are counted here.
bool is_counted(const std::string& key) {
  static const std::vector<std::string> counted = {"zero_optimization.offload_optimizer.device",
                                                   "zero_optimization.offload_param.device",
                                                   "zero_optimization.cpu_offload",
                                                   "zero_optimization.cpu_offload_param",
                                                   "zero_optimization.zero_hpz_partition_size",
                                                   "zero_optimization.mics_shard_size",
                                                   "zero_optimization.zero_quantized_weights",
                                                   "zero_optimization.zero_quantized_gradients",
                                                   "activation_checkpointing.cpu_checkpointing",
                                                   "fp16.fp16_master_weights_and_grads",
                                                   "data_types.grad_accum_dtype",
                                                   "communication_data_type"};
  return std::find(counted.begin(), counted.end(), key) != counted.end();
}

Tier tier_of(const std::string& device) {
  return device == "cpu" ? Tier::kHost : device == "nvme" ? Tier::kDisk : Tier::kDevice;
}

int bytes_of(const std::string& dtype, int fallback) {
  return dtype.empty() ? fallback : dtype == "fp32" ? 4 : 2;
}

void set_bytes(ClusterStrategy& s, const DeepSpeedBeyond& beyond) {
  if (s.precision == Precision::kF32) {
    s.weight_bytes = s.gradient_bytes = s.reduce_bytes = 4;
    s.master_bytes = 0;
    s.moment_bytes = 8;
    return;
  }
  s.weight_bytes = 2;
  // Of bf16 without ZeRO DeepSpeed accumulates in fp32, else in the model's type.
  const bool wide = s.precision == Precision::kBF16 && s.zero_stage == 0;
  s.gradient_bytes = bytes_of(beyond.gradient_dtype, wide ? 4 : 2);
  s.reduce_bytes = bytes_of(beyond.communication_dtype, 2);
  s.master_bytes = beyond.half_masters ? 2 : 4;
  s.moment_bytes = beyond.half_moments ? 4 : 8;
}

void set_tiers(ClusterStrategy& s, const DeepSpeedBeyond& beyond) {
  s.optimizer_tier = tier_of(beyond.optimizer_device);
  s.gradient_tier = s.optimizer_tier == Tier::kDevice ? Tier::kDevice : Tier::kHost;
  s.parameter_tier = tier_of(beyond.parameter_device);
  if (beyond.checkpoints_on_host) s.activation_tier = Tier::kHost;
}

void refuse_wrong(const std::vector<Remark>& remarks) {
  std::string wrong = remarks_text(remarks, {Status::kWrong});
  while (wrong.ends_with('\n')) wrong.pop_back();
  if (!wrong.empty()) throw ConfigError("the DeepSpeed configuration is not valid:\n" + wrong);
}

}  // namespace

DeepSpeedPlan strategy_from_deepspeed(const Json& file, const Mesh& mesh, int64_t sequence) {
  if (!file.is_object()) {
    throw ConfigError("the DeepSpeed configuration: expected an object {...}, got " +
                      std::string(file.type_name()));
  }
  DeepSpeedPlan plan;
  const DeepSpeedSettings settings =
      read_deepspeed(file, mesh, own_keys(), plan.remarks, deepspeed_defaults());
  refuse_wrong(plan.remarks);
  for (Remark& remark : plan.remarks) {
    if (remark.status != Status::kNotYet) continue;
    const bool counted = is_counted(remark.key);
    remark.status = counted ? Status::kUsed : Status::kIgnored;
    remark.note = counted ? "" : "not counted by the planner";
  }
  const Strategy& read = settings.strategy;
  ClusterStrategy& s = plan.strategy;
  s.mesh = mesh;
  s.zero_stage = read.shard.stage();
  s.reduce_each_micro_batch = s.zero_stage >= 2;
  s.shard_group = settings.beyond.shard_group;
  s.micro_batch = read.micro_batch;
  s.global_batch = read.global_batch();
  s.sequence = sequence;
  s.recompute = read.recompute ? Recompute::kFull : Recompute::kNone;
  s.precision = read.compute_dtype == DType::kF16    ? Precision::kF16
                : read.compute_dtype == DType::kBF16 ? Precision::kBF16
                                                     : Precision::kF32;
  set_bytes(s, settings.beyond);
  set_tiers(s, settings.beyond);
  s.quantized_gather = settings.beyond.quantized_weights;
  s.quantized_reduce = settings.beyond.quantized_gradients;
  s.overlap_reduce = s.overlap_gather = read.overlap;
  s.reduce_bucket = read.reduce_bucket;
  s.gather_bucket = read.gather_bucket;
  s.prefetch_elements = read.prefetch_elements;
  return plan;
}

}  // namespace vitrine
