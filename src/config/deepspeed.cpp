// Values of DeepSpeed keys, their combinations, and what they become.
#include "config/deepspeed.h"

#include <algorithm>
#include <cmath>

#include "config/batch.h"
#include "config/deepspeed_keys.h"
#include "config/deepspeed_values.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"

namespace vitrine {
namespace {

using Status = Remark::Status;

class Reader {
 public:
  Reader(const Json& file, std::vector<Remark>& remarks) : in_(file), remarks_(remarks) {}

  void read(DeepSpeedSettings& out) {
    read_precision(out);
    read_zero(out.strategy);
    read_activations(out.strategy);
    read_batch(out.strategy);
    read_optimizer(out);
    read_scheduler(out);
    if (const auto clip = in_.number("gradient_clipping")) {
      if (*clip < 0) wrong("gradient_clipping", "is not negative; 0 = no clipping");
      out.optimizer.clip = *clip;
    }
    if (const auto every = in_.integer("steps_per_print")) out.log_every = *every;
    if (in_.find("comms_logger")) {
      out.comms_log = in_.boolean("comms_logger.enabled").value_or(false);
      if (!out.comms_log) {
        note("comms_logger.enabled",
             Status::kUsed,
             "off (DeepSpeed turns the log on as soon as the section is there)");
      }
    }
    read_beyond(out.beyond);
    check_combinations(out);
  }

 private:
  void add(Status status, const std::string& key, const std::string& text) {
    remarks_.push_back({status, key, text});
  }
  void wrong(const std::string& key, const std::string& text) { note(key, Status::kWrong, text); }
  // Replaces what the table said about a key.
  void note(const std::string& key, Status status, const std::string& text) {
    for (Remark& remark : remarks_) {
      if (remark.key != key) continue;
      if (remark.status != Status::kWrong) remark = {status, key, text};
      return;
    }
    add(status, key, text);
  }

  void read_precision(DeepSpeedSettings& out) {
    const bool fp16 = in_.boolean("fp16.enabled").value_or(false);
    const bool bf16 = in_.boolean("bf16.enabled").value_or(false);
    if (fp16 && bf16) wrong("bf16.enabled", "fp16 and bf16 cannot both be on; keep one");
    if (!fp16 && !bf16) {
      add(Status::kUsed,
          "(precision)",
          "neither fp16 nor bf16 is on: the model trains in fp32; for half the memory of "
          "parameters "
          "and activations add \"bf16\": {\"enabled\": true}");
    }
    Strategy& strategy = out.strategy;
    strategy.compute_dtype = fp16 ? DType::kF16 : bf16 ? DType::kBF16 : DType::kF32;
    read_state_dtypes(strategy);
    read_gradient_dtype(strategy);

    LossScaler& scaler = out.loss_scaler;
    scaler.dynamic = fp16;
    scaler.scale = 1;
    if (!fp16) return;
    const double fixed = in_.number("fp16.loss_scale").value_or(0);
    if (fixed < 0) wrong("fp16.loss_scale", "is at least 0 (0 = dynamic)");
    scaler.dynamic = fixed == 0;
    const int64_t power = in_.integer("fp16.initial_scale_power").value_or(16);
    if (power < 0 || power > 60) wrong("fp16.initial_scale_power", "is from 0 to 60");
    scaler.scale = scaler.dynamic
                       ? std::ldexp(1.0, static_cast<int>(std::clamp<int64_t>(power, 0, 60)))
                       : fixed;
    scaler.window = in_.integer("fp16.loss_scale_window").value_or(scaler.window);
    scaler.hysteresis = in_.integer("fp16.hysteresis").value_or(scaler.hysteresis);
    scaler.hysteresis_left = scaler.hysteresis;
    scaler.consecutive_hysteresis = in_.boolean("fp16.consecutive_hysteresis").value_or(false);
    scaler.min_scale = in_.number("fp16.min_loss_scale").value_or(scaler.min_scale);
    if (!scaler.dynamic) return;
    if (scaler.window <= 0) wrong("fp16.loss_scale_window", "is over 0 with a dynamic loss scale");
    if (scaler.min_scale <= 0) wrong("fp16.min_loss_scale", "is over 0 with a dynamic loss scale");
    if (scaler.hysteresis < 1) wrong("fp16.hysteresis", "is at least 1");
  }

  void read_state_dtypes(Strategy& strategy) {
    const auto narrow = [&](const char* key, const char* what, DType& dtype) {
      if (!in_.boolean(key).value_or(false)) return;
      if (strategy.compute_dtype != DType::kBF16) {
        wrong(key, std::string(what) + " are bf16 only where bf16.enabled is true");
        return;
      }
      dtype = DType::kBF16;
      note(key,
           Status::kUsed,
           std::string(what) +
               " are bf16 and rounded stochastically, so that small updates count "
               "on average");
    };
    narrow("bf16.bf16_master_weights_and_grads", "master weights", strategy.master_dtype);
    narrow("bf16.bf16_optimizer_states", "exp_avg and exp_avg_sq", strategy.moment_dtype);
  }

  // Gradients are accumulated and reduced in one dtype: fp32 unless asked otherwise, be it by
  // masters and gradients in bf16.
  void read_gradient_dtype(Strategy& strategy) {
    const char* kAccumulate = "data_types.grad_accum_dtype";
    const char* kReduce = "communication_data_type";
    const auto accumulate = in_.text(kAccumulate), reduce = in_.text(kReduce);
    const std::string computed = dtype_name(strategy.compute_dtype);
    strategy.gradient_dtype = strategy.master_dtype;
    for (const auto& [key, given] : {std::pair(kAccumulate, accumulate), {kReduce, reduce}}) {
      if (!given || (*given != "fp32" && *given != "fp16" && *given != "bf16")) continue;
      const DType dtype = dtype_from_name(*given);
      if (dtype != DType::kF32 && dtype != strategy.compute_dtype) {
        note(key,
             Status::kNotYet,
             "gradients of a " + computed + " model are " +
                 (strategy.mixed() ? computed + " or fp32" : "fp32") + "; fp32 is taken instead");
      } else {
        strategy.gradient_dtype = dtype;
      }
    }
    if (accumulate && reduce && *accumulate != *reduce) {
      note(kReduce,
           Status::kNotYet,
           "gradients are accumulated and reduced in one dtype; fp32 is taken for both");
      strategy.gradient_dtype = DType::kF32;
    }
  }

  int64_t elements(const char* key, int64_t fallback, int64_t deepspeed, int64_t minimum) {
    const std::string path = std::string("zero_optimization.") + key;
    const auto value = in_.integer(path);
    const Json* raw = in_.find(path);
    if (!value && raw && raw->is_string()) {
      note(path,
           Status::kUsed,
           format("auto: %lld elements here, where DeepSpeed has %lld",
                  static_cast<long long>(fallback),
                  static_cast<long long>(deepspeed)));
    }
    if (value && *value < minimum) {
      wrong(path,
            format("is at least %lld, got %lld",
                   static_cast<long long>(minimum),
                   static_cast<long long>(*value)));
      return fallback;
    }
    return value.value_or(fallback);
  }

  void read_zero(Strategy& s) {
    const int64_t stage = in_.integer("zero_optimization.stage").value_or(0);
    if (stage < 0 || stage > 3) {
      wrong("zero_optimization.stage", "expected 0, 1, 2 or 3, got " + std::to_string(stage));
    } else {
      s.shard = Sharding::stage(static_cast<int>(stage));
    }
    s.reduce_bucket = elements("reduce_bucket_size", s.reduce_bucket, 500'000'000, 1);
    s.gather_bucket = elements("allgather_bucket_size", s.gather_bucket, 500'000'000, 1);
    if (s.gather_bucket % 2 != 0) {
      add(Status::kIgnored,
          "zero_optimization.allgather_bucket_size",
          "odd: DeepSpeed would refuse it");
    }
    s.prefetch_elements =
        elements("stage3_prefetch_bucket_size", s.prefetch_elements, 50'000'000, 0);
    s.persistence_threshold =
        elements("stage3_param_persistence_threshold", s.persistence_threshold, 100'000, 0);
    s.max_live_elements =
        elements("stage3_max_live_parameters", s.max_live_elements, 1'000'000'000, 0);
    s.max_reuse_distance =
        elements("stage3_max_reuse_distance", s.max_reuse_distance, 1'000'000'000, 0);
    s.overlap = in_.boolean("zero_optimization.overlap_comm").value_or(s.overlap);
    if (in_.boolean("zero_optimization.legacy_stage1").value_or(false)) {
      wrong("zero_optimization.legacy_stage1",
            "the old stage 1 is gone from DeepSpeed too; remove it");
    }
    if (stage == 3) return;
    for (Remark& remark : remarks_) {
      const bool of_stage_3 = remark.key.starts_with("zero_optimization.stage3_") ||
                              remark.key == "zero_optimization.sub_group_size";
      if (of_stage_3 && remark.status != Status::kWrong) {
        remark.status = Status::kIgnored;
        remark.note = "only of stage 3, and this file has stage " + std::to_string(stage);
      }
    }
  }

  void read_activations(Strategy& strategy) {
    if (!in_.find("activation_checkpointing")) return;
    strategy.recompute =
        in_.boolean("activation_checkpointing.partition_activations").value_or(false) ||
        in_.boolean("activation_checkpointing.cpu_checkpointing").value_or(false) ||
        in_.integer("activation_checkpointing.number_checkpoints").value_or(0) > 0;
    add(Status::kUsed,
        "activation_checkpointing",
        strategy.recompute ? "every block is recomputed in backward"
                           : "the section turns nothing on: no recomputation");
  }

  void read_beyond(DeepSpeedBeyond& b) {
    const auto device = [&](const char* section, const char* old_key) {
      const std::string zero = "zero_optimization.";
      if (in_.boolean(zero + old_key).value_or(false)) return std::string("cpu");
      return in_.text(zero + section + ".device").value_or("none");
    };
    b.optimizer_device = device("offload_optimizer", "cpu_offload");
    b.parameter_device = device("offload_param", "cpu_offload_param");
    b.checkpoints_on_host =
        in_.boolean("activation_checkpointing.cpu_checkpointing").value_or(false);
    const int64_t mics = in_.integer("zero_optimization.mics_shard_size").value_or(-1);
    const int64_t hpz = in_.integer("zero_optimization.zero_hpz_partition_size").value_or(1);
    b.shard_group = mics > 0 ? mics : hpz > 1 ? hpz : 0;
    b.quantized_weights = in_.boolean("zero_optimization.zero_quantized_weights").value_or(false);
    b.quantized_gradients =
        in_.boolean("zero_optimization.zero_quantized_gradients").value_or(false);
    b.half_masters = in_.boolean("fp16.fp16_master_weights_and_grads").value_or(false) ||
                     in_.boolean("bf16.bf16_master_weights_and_grads").value_or(false);
    b.half_moments = in_.boolean("bf16.bf16_optimizer_states").value_or(false);
    b.gradient_dtype = in_.text("data_types.grad_accum_dtype").value_or("");
    b.communication_dtype = in_.text("communication_data_type").value_or("");
  }

  void read_batch(Strategy& strategy) {
    try {
      const Batch3 batch = solve_batch({in_.integer("train_batch_size"),
                                        in_.integer("train_micro_batch_size_per_gpu"),
                                        in_.integer("gradient_accumulation_steps")},
                                       strategy.mesh.data);
      strategy.micro_batch = batch.micro_batch;
      strategy.accumulation = batch.accumulation;
      add(Status::kUsed,
          "(batch)",
          format("%lld = micro-batch %lld x accumulation %lld x %d data ranks",
                 static_cast<long long>(batch.train_batch_size),
                 static_cast<long long>(batch.micro_batch),
                 static_cast<long long>(batch.accumulation),
                 strategy.mesh.data));
    } catch (const ConfigError& error) {
      add(Status::kWrong, "(batch)", error.what());
    }
  }

  void read_optimizer(DeepSpeedSettings& out) {
    if (!in_.find("optimizer")) return;
    const std::string type = in_.text("optimizer.type").value_or("");
    std::string lower = type;
    std::transform(
        lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
    OptimizerConfig& o = out.optimizer;
    if (type.empty()) {
      add(Status::kWrong, "optimizer.type", "is missing; available: Adam, AdamW");
    } else if (lower == "adam") {
      note("optimizer.type",
           Status::kUsed,
           "AdamW: DeepSpeed's \"Adam\" decouples weight decay too unless adam_w_mode is false");
    } else if (lower != "adamw") {
      note("optimizer.type", Status::kNotYet, type + " is not available; AdamW is taken instead");
    } else if (in_.boolean("optimizer.params.adam_w_mode") == false) {
      note("optimizer.params.adam_w_mode", Status::kIgnored, "as in DeepSpeed under type AdamW");
    }
    o.lr = in_.number("optimizer.params.lr").value_or(o.lr);
    o.eps = in_.number("optimizer.params.eps").value_or(o.eps);
    o.weight_decay = in_.number("optimizer.params.weight_decay").value_or(o.weight_decay);
    if (o.lr < 0) wrong("optimizer.params.lr", "is not negative");
    if (o.eps <= 0) wrong("optimizer.params.eps", "is over 0");
    if (o.weight_decay < 0) wrong("optimizer.params.weight_decay", "is not negative");
    const Json* betas = in_.find("optimizer.params.betas");
    if (!betas || !betas->is_array()) return;
    if (betas->size() != 2 || !(*betas)[0].is_number() || !(*betas)[1].is_number()) {
      wrong("optimizer.params.betas", "expected two numbers, got " + betas->dump());
      return;
    }
    o.beta1 = (*betas)[0].get<double>();
    o.beta2 = (*betas)[1].get<double>();
    if (o.beta1 < 0 || o.beta1 >= 1 || o.beta2 < 0 || o.beta2 >= 1) {
      wrong("optimizer.params.betas", "both are in [0, 1), got " + betas->dump());
    }
  }

  void read_scheduler(DeepSpeedSettings& out) {
    if (!in_.find("scheduler")) return;
    const std::string type = in_.text("scheduler.type").value_or("");
    LearningRateSchedule schedule;
    schedule.warmup_steps = in_.integer("scheduler.params.warmup_num_steps").value_or(1000);
    schedule.total_steps = in_.integer("scheduler.params.total_num_steps").value_or(0);
    bool log_by_default = true;
    if (type == "WarmupLR") {
      schedule.shape = LearningRateSchedule::Shape::kConstant;
      schedule.final_ratio = 1;
    } else if (type == "WarmupDecayLR") {
      schedule.shape = LearningRateSchedule::Shape::kLinear;
      schedule.final_ratio = 0;
    } else if (type == "WarmupCosineLR") {
      schedule.shape = LearningRateSchedule::Shape::kCosine;
      schedule.final_ratio = in_.number("scheduler.params.cos_min_ratio").value_or(1e-4);
      log_by_default = false;
    } else {
      note("scheduler.type",
           Status::kNotYet,
           type +
               " is not available; use WarmupLR, WarmupDecayLR, WarmupCosineLR or "
               "train.schedule");
      return;
    }
    if (log_by_default && !in_.text("scheduler.params.warmup_type")) {
      note("scheduler.params.warmup_type",
           Status::kNotYet,
           type +
               " warms up along a logarithm unless told otherwise; here it is linear: set it to "
               "\"linear\"");
    }
    if (const auto peak = in_.number("scheduler.params.warmup_max_lr")) {
      out.optimizer.lr = *peak;
      note("scheduler.params.warmup_max_lr",
           Status::kUsed,
           "takes the place of optimizer.params.lr");
    }
    if (type != "WarmupLR" && schedule.total_steps == 0) {
      add(Status::kUsed, "scheduler.params.total_num_steps", "not given: the length of the run");
    }
    out.schedule = schedule;
  }

  void check_combinations(const DeepSpeedSettings& out) {
    const Strategy& strategy = out.strategy;
    const int stage = strategy.shard.stage();
    for (const char* key :
         {"fp16.fp16_master_weights_and_grads", "bf16.bf16_master_weights_and_grads"}) {
      if (in_.boolean(key).value_or(false) && stage == 0) {
        wrong(key, "is only for stages 1, 2 and 3");
      }
    }
    if (in_.boolean("bf16.bf16_optimizer_states").value_or(false) &&
        !in_.boolean("bf16.bf16_master_weights_and_grads").value_or(false)) {
      wrong("bf16.bf16_optimizer_states", "needs bf16_master_weights_and_grads");
    }
    if (in_.boolean("amp.enabled").value_or(false) && stage > 0) {
      wrong("amp.enabled", "amp and ZeRO do not go together; use bf16 or fp16");
    }
    const double ratio = in_.number("zero_optimization.offload_optimizer.ratio").value_or(1);
    if (ratio < 0 || ratio > 1) {
      wrong("zero_optimization.offload_optimizer.ratio", "is from 0 to 1");
    } else if (ratio < 1 && stage != 3) {
      wrong("zero_optimization.offload_optimizer.ratio", "partial offload is only for stage 3");
    }
    for (const char* section : {"offload_param", "offload_optimizer"}) {
      const std::string path = std::string("zero_optimization.") + section;
      if (in_.text(path + ".device") == "nvme" && !in_.text(path + ".nvme_path")) {
        wrong(path + ".device", "nvme needs nvme_path, the folder on the fast local disk");
      }
    }
    if (in_.text("zero_optimization.offload_param.device").value_or("none") != "none" &&
        stage != 3) {
      wrong("zero_optimization.offload_param.device",
            "only parameters of stage 3 can be offloaded");
    }
    const int64_t mics = in_.integer("zero_optimization.mics_shard_size").value_or(-1);
    const int64_t hpz = in_.integer("zero_optimization.zero_hpz_partition_size").value_or(1);
    for (const auto& [key, size] :
         {std::pair("mics_shard_size", mics), {"zero_hpz_partition_size", hpz}}) {
      if (size > 1 && strategy.mesh.data % size != 0) {
        wrong(std::string("zero_optimization.") + key,
              format("%lld does not divide the %d data ranks",
                     static_cast<long long>(size),
                     strategy.mesh.data));
      }
    }
    if (in_.boolean("activation_checkpointing.contiguous_memory_optimization").value_or(false) &&
        (!in_.boolean("activation_checkpointing.partition_activations").value_or(false) ||
         !in_.integer("activation_checkpointing.number_checkpoints"))) {
      wrong("activation_checkpointing.contiguous_memory_optimization",
            "needs partition_activations and number_checkpoints");
    }
  }

  DeepSpeedValues in_;
  std::vector<Remark>& remarks_;
};

// Moves values from deprecated places to where they are now.
Json modernised(const Json& file, std::vector<Remark>& remarks) {
  Json config = file;
  const auto moved = [&](Json& object,
                         const std::string& path,
                         const char* old_key,
                         const char* new_key) {
    const auto it = object.find(old_key);
    if (it == object.end()) return;
    if (object.contains(new_key)) {
      remarks.push_back(
          {Status::kWrong,
           path + old_key,
           std::string("is the old name of ") + new_key + ", which is there too; keep one"});
    } else {
      remarks.push_back({Status::kUsed, path + old_key, std::string("deprecated; now ") + new_key});
      object[new_key] = *it;
    }
    object.erase(old_key);
  };
  moved(config, "", "bfloat16", "bf16");
  auto zero = config.find("zero_optimization");
  if (zero != config.end() && zero->is_boolean()) {
    remarks.push_back({Status::kUsed,
                       "zero_optimization",
                       "deprecated form: true is {\"stage\": 1}, false {\"stage\": 0}"});
    Json section = {{"stage", zero->get<bool>() ? 1 : 0}};
    if (config.contains("allgather_size"))
      section["allgather_bucket_size"] = config["allgather_size"];
    config.erase("allgather_size");
    config["zero_optimization"] = section;
    zero = config.find("zero_optimization");
  }
  if (zero != config.end() && zero->is_object()) {
    moved(*zero,
          "zero_optimization.",
          "stage3_gather_fp16_weights_on_model_save",
          "stage3_gather_16bit_weights_on_model_save");
    for (const auto& [old_key, section] :
         {std::pair("cpu_offload", "offload_optimizer"), {"cpu_offload_param", "offload_param"}}) {
      if (zero->contains(old_key) && zero->contains(section)) {
        remarks.push_back(
            {Status::kWrong,
             std::string("zero_optimization.") + old_key,
             std::string("is the old form of ") + section + ", which is there too; keep one"});
        zero->erase(old_key);
      }
    }
  }
  return config;
}

}  // namespace

DeepSpeedSettings read_deepspeed(const Json& file,
                                 const Mesh& mesh,
                                 const std::vector<std::string>& own,
                                 std::vector<Remark>& remarks,
                                 const Strategy& defaults) {
  DeepSpeedSettings settings;
  settings.strategy = defaults;
  settings.strategy.mesh = mesh;
  const Json config = modernised(file, remarks);
  for (Remark& remark : check_key_names(config, own)) remarks.push_back(std::move(remark));
  Reader(config, remarks).read(settings);
  return settings;
}

std::vector<Remark> check_deepspeed(const Json& file, int world) {
  std::vector<Remark> remarks;
  if (!file.is_object()) {
    return {{Status::kWrong,
             "(file)",
             "expected an object {...}, got " + std::string(file.type_name())}};
  }
  Mesh mesh;
  mesh.data = world;
  read_deepspeed(file, mesh, own_keys(), remarks);
  return remarks;
}

}  // namespace vitrine
