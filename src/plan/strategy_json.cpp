// Fields of a strategy under their names.
#include "plan/strategy_json.h"

#include "core/error.h"
#include "core/format.h"
#include "core/json.h"

namespace vitrine {

Json strategy_json(const ClusterStrategy& s) {
  return {{"data", s.mesh.data},
          {"tensor", s.mesh.tensor},
          {"pipeline", s.mesh.pipeline},
          {"context", s.mesh.context},
          {"expert", s.expert},
          {"zero_stage", s.zero_stage},
          {"shard_group", s.shard_group},
          {"micro_batch", s.micro_batch},
          {"global_batch", s.global_batch},
          {"sequence", s.sequence},
          {"schedule", pipeline_name(s.pipeline)},
          {"interleave", s.interleave},
          {"recompute", recompute_name(s.recompute)},
          {"sequence_parallel", s.sequence_parallel},
          {"precision", precision_name(s.precision)},
          {"weight_bytes", s.weight_bytes},
          {"gradient_bytes", s.gradient_bytes},
          {"master_bytes", s.master_bytes},
          {"moment_bytes", s.moment_bytes},
          {"reduce_bytes", s.reduce_bytes},
          {"weight_shard_bytes", s.weight_shard_bytes},
          {"optimizer_tier", tier_name(s.optimizer_tier)},
          {"gradient_tier", tier_name(s.gradient_tier)},
          {"parameter_tier", tier_name(s.parameter_tier)},
          {"activation_tier", tier_name(s.activation_tier)},
          {"quantized_gather", s.quantized_gather},
          {"quantized_reduce", s.quantized_reduce},
          {"overlap_reduce", s.overlap_reduce},
          {"overlap_gather", s.overlap_gather},
          {"overlap_tensor", s.overlap_tensor},
          {"flash_attention", s.flash_attention},
          {"attention_generation", s.attention_generation},
          {"fused", s.fused},
          {"fused_norm", s.fused_norm},
          {"fused_softmax", s.fused_softmax},
          {"gate_apart", s.gate_apart},
          {"current_scaling", s.current_scaling},
          {"eager_ring", s.eager_ring},
          {"balance_parameters", s.balance_parameters},
          {"recompute_needed", s.recompute_needed},
          {"accumulate_bytes", s.accumulate_bytes},
          {"accumulate_apart", s.accumulate_apart},
          {"graphs", s.graphs},
          {"static_graphs", s.static_graphs},
          {"router_graphs", s.router_graphs},
          {"loss_chunk_rows", s.loss_chunk_rows},
          {"imbalance", s.imbalance},
          {"dispatcher", dispatcher_name(s.dispatcher)},
          {"overlap_expert", s.overlap_expert},
          {"reduce_bucket", s.reduce_bucket},
          {"gather_bucket", s.gather_bucket},
          {"prefetch_elements", s.prefetch_elements},
          {"persistence_threshold", s.persistence_threshold},
          {"persistent", s.persistent},
          {"frozen", s.frozen},
          {"gathers_per_block", s.gathers_per_block},
          {"reduce_each_micro_batch", s.reduce_each_micro_batch},
          {"all_reduce_gradients", s.all_reduce_gradients}};
}

ClusterStrategy strategy_from_json(const Json& json,
                                   const std::string& source,
                                   const ClusterStrategy& base) {
  if (!json.is_object()) {
    throw ConfigError(source + ": expected an object of a strategy's fields, got " +
                      std::string(json.type_name()));
  }
  ClusterStrategy s = base;
  JsonReader reader(json, source);
  const auto small = [&](const char* key, int& field) {
    field = static_cast<int>(reader.integer(key, field, 0, 1 << 24));
  };
  const auto bytes = [&](const char* key, int& field) {
    field = static_cast<int>(reader.integer(key, field, -1, 16));
  };
  const auto size = [&](const char* key, int64_t& field) { field = reader.integer(key, field); };
  const auto flag = [&](const char* key, bool& field) { field = reader.boolean(key, field); };
  const auto names = [&](const char* key, std::vector<std::string>& field) {
    field = reader.texts(key, "parameter names or beginnings ending in *", field);
  };
  const auto tier = [&](const char* key, Tier& field) {
    field = tier_from_name(reader.text(key, tier_name(field)));
  };
  small("data", s.mesh.data);
  small("tensor", s.mesh.tensor);
  small("pipeline", s.mesh.pipeline);
  small("context", s.mesh.context);
  small("expert", s.expert);
  small("zero_stage", s.zero_stage);
  size("shard_group", s.shard_group);
  size("micro_batch", s.micro_batch);
  size("global_batch", s.global_batch);
  size("sequence", s.sequence);
  s.pipeline = pipeline_from_name(reader.text("schedule", pipeline_name(s.pipeline)));
  small("interleave", s.interleave);
  s.recompute = recompute_from_name(reader.text("recompute", recompute_name(s.recompute)));
  flag("sequence_parallel", s.sequence_parallel);
  s.precision = precision_from_name(reader.text("precision", precision_name(s.precision)));
  bytes("weight_bytes", s.weight_bytes);
  bytes("gradient_bytes", s.gradient_bytes);
  bytes("master_bytes", s.master_bytes);
  bytes("moment_bytes", s.moment_bytes);
  bytes("reduce_bytes", s.reduce_bytes);
  bytes("weight_shard_bytes", s.weight_shard_bytes);
  tier("optimizer_tier", s.optimizer_tier);
  tier("gradient_tier", s.gradient_tier);
  tier("parameter_tier", s.parameter_tier);
  tier("activation_tier", s.activation_tier);
  flag("quantized_gather", s.quantized_gather);
  flag("quantized_reduce", s.quantized_reduce);
  flag("overlap_reduce", s.overlap_reduce);
  flag("overlap_gather", s.overlap_gather);
  flag("overlap_tensor", s.overlap_tensor);
  flag("flash_attention", s.flash_attention);
  small("attention_generation", s.attention_generation);
  flag("fused", s.fused);
  flag("fused_norm", s.fused_norm);
  flag("fused_softmax", s.fused_softmax);
  flag("gate_apart", s.gate_apart);
  flag("current_scaling", s.current_scaling);
  flag("eager_ring", s.eager_ring);
  flag("balance_parameters", s.balance_parameters);
  flag("recompute_needed", s.recompute_needed);
  bytes("accumulate_bytes", s.accumulate_bytes);
  flag("accumulate_apart", s.accumulate_apart);
  flag("graphs", s.graphs);
  flag("static_graphs", s.static_graphs);
  flag("router_graphs", s.router_graphs);
  size("loss_chunk_rows", s.loss_chunk_rows);
  s.imbalance = reader.number("imbalance", s.imbalance);
  s.dispatcher = dispatcher_from_name(reader.text("dispatcher", dispatcher_name(s.dispatcher)));
  flag("overlap_expert", s.overlap_expert);
  size("reduce_bucket", s.reduce_bucket);
  size("gather_bucket", s.gather_bucket);
  size("prefetch_elements", s.prefetch_elements);
  size("persistence_threshold", s.persistence_threshold);
  names("persistent", s.persistent);
  names("frozen", s.frozen);
  small("gathers_per_block", s.gathers_per_block);
  flag("reduce_each_micro_batch", s.reduce_each_micro_batch);
  flag("all_reduce_gradients", s.all_reduce_gradients);
  reader.finish();
  return s;
}

std::string describe_strategy(const ClusterStrategy& s) {
  std::string text = format("data %d", s.mesh.data);
  const auto degree = [&](const char* name, int64_t value) {
    if (value > 1) text += format(" x %s %lld", name, static_cast<long long>(value));
  };
  degree("tensor", s.mesh.tensor);
  degree("pipeline", s.mesh.pipeline);
  degree("context", s.mesh.context);
  if (s.expert > 1) text += format(", expert %d", s.expert);
  text += format(", ZeRO-%d", s.zero_stage);
  if (s.shard_group > 0) {
    text += format(" in groups of %lld", static_cast<long long>(s.shard_group));
  }
  if (s.recompute != Recompute::kNone) {
    text += format(", %s recomputation", recompute_name(s.recompute));
  }
  for (const Tier tier : {Tier::kHost, Tier::kDisk}) {
    std::vector<std::string> away;
    if (s.optimizer_tier == tier) away.push_back("optimizer");
    if (s.gradient_tier == tier) away.push_back("gradients");
    if (s.parameter_tier == tier) away.push_back("parameters");
    if (s.activation_tier == tier) away.push_back("activations");
    if (!away.empty()) text += format(", %s on %s", join(away, " + ").c_str(), tier_name(tier));
  }
  text += format(", micro-batch %lld", static_cast<long long>(s.micro_batch));
  if (s.mesh.pipeline > 1) {
    text += format(", %s", pipeline_name(s.pipeline));
    if (s.interleave > 1) text += format(" x %d", s.interleave);
  }
  return text;
}

}  // namespace vitrine
