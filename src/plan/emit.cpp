// DeepSpeed's keys and run files of a strategy.
#include "plan/emit.h"

#include "core/error.h"
#include "core/format.h"
#include "core/json.h"

namespace vitrine {
namespace {

const char* device_of(Tier tier) {
  return tier == Tier::kHost ? "cpu" : tier == Tier::kDisk ? "nvme" : "none";
}

const char* dtype_of(int bytes) { return bytes == 4 ? "fp32" : "bf16"; }

Json offload_section(Tier tier, std::vector<std::string>& notes, const char* what) {
  Json section = {{"device", device_of(tier)}, {"pin_memory", true}};
  if (tier == Tier::kDisk) {
    section["nvme_path"] = "/local_nvme";
    notes.push_back(format("%s: nvme_path is /local_nvme: set it to a fast local disk", what));
  }
  return section;
}

Json zero_section(const ClusterStrategy& s, std::vector<std::string>& notes) {
  Json zero = {{"stage", s.zero_stage}, {"overlap_comm", s.overlap_reduce}};
  if (s.zero_stage == 0) return zero;
  zero["contiguous_gradients"] = true;
  zero["reduce_bucket_size"] = s.reduce_bucket;
  if (s.zero_stage < 3) zero["allgather_bucket_size"] = s.gather_bucket;
  if (s.optimizer_tier != Tier::kDevice) {
    zero["offload_optimizer"] = offload_section(s.optimizer_tier, notes, "offload_optimizer");
  }
  if (s.zero_stage < 3) return zero;
  zero["stage3_prefetch_bucket_size"] = s.prefetch_elements;
  if (s.parameter_tier != Tier::kDevice) {
    zero["offload_param"] = offload_section(s.parameter_tier, notes, "offload_param");
  }
  if (s.shard_group > 0) zero["mics_shard_size"] = s.shard_group;
  if (s.quantized_gather) zero["zero_quantized_weights"] = true;
  if (s.quantized_reduce) zero["zero_quantized_gradients"] = true;
  return zero;
}

// Batch, precision, ZeRO, recomputation.
Json deepspeed_keys(const ModelShape& model,
                    const ClusterStrategy& s,
                    std::vector<std::string>& notes) {
  Json out = {{"train_batch_size", s.global_batch},
              {"train_micro_batch_size_per_gpu", s.micro_batch},
              {"gradient_accumulation_steps", s.accumulation()}};
  if (s.precision == Precision::kF16) {
    out["fp16"] = {{"enabled", true}};
  } else if (s.precision != Precision::kF32) {
    out["bf16"] = {{"enabled", true}};
    if (s.master_bytes == 2) out["bf16"]["bf16_master_weights_and_grads"] = true;
    if (s.moment_bytes == 4) out["bf16"]["bf16_optimizer_states"] = true;
    if (s.precision != Precision::kBF16) {
      notes.push_back(format("%s products are set in the model's code (Transformer Engine)",
                             precision_name(s.precision)));
    }
  }
  if (s.precision != Precision::kF32) {
    const bool half = s.precision == Precision::kF16;
    out["communication_data_type"] = s.reduce_bytes == 4 ? "fp32"
                                     : half              ? "fp16"
                                                         : dtype_of(s.reduce_bytes);
    out["data_types"] = {{"grad_accum_dtype",
                          s.gradient_bytes == 4 ? "fp32"
                          : half                ? "fp16"
                                                : "bf16"}};
  }
  out["zero_optimization"] = zero_section(s, notes);
  if (s.recompute != Recompute::kNone) {
    out["activation_checkpointing"] = {{"partition_activations", s.mesh.tensor > 1},
                                       {"number_checkpoints", model.stack.layers}};
    if (s.activation_tier != Tier::kDevice) {
      out["activation_checkpointing"]["cpu_checkpointing"] = true;
    }
    if (s.recompute == Recompute::kSelective) {
      notes.push_back(
          "selective recomputation is set in the model's code; the key says "
          "recomputation of whole layers");
    } else {
      notes.push_back(
          "DeepSpeed recomputes only what the model's code passes through "
          "deepspeed.checkpointing");
    }
  }
  out["gradient_clipping"] = 1.0;
  return out;
}

void note_mesh(const ClusterStrategy& s, std::vector<std::string>& notes) {
  if (s.mesh.tensor > 1 || s.mesh.pipeline > 1 || s.mesh.context > 1) {
    notes.push_back(
        format("the mesh (tensor %d, pipeline %d, context %d) is no part of the file: "
               "give it to the model's code (PipelineModule, mpu)",
               s.mesh.tensor,
               s.mesh.pipeline,
               s.mesh.context));
  }
  if (s.mesh.pipeline > 1 && s.pipeline != PipelineKind::k1F1B) {
    notes.push_back(format("DeepSpeed's pipelines run 1f1b, not %s", pipeline_name(s.pipeline)));
  }
  if (s.mesh.pipeline > 1 && s.zero_stage > 1) {
    notes.push_back("DeepSpeed's pipelines take ZeRO-1 at most");
  }
  if (s.expert > 1) notes.push_back("expert degree: give it to deepspeed.moe.layer.MoE (ep_size)");
}

}  // namespace

Emitted emit_deepspeed(const ModelShape& model, const ClusterStrategy& s) {
  Emitted out;
  out.text = deepspeed_keys(model, s, out.notes).dump(2);
  note_mesh(s, out.notes);
  return out;
}

Emitted emit_vitrine(const ModelShape& model, const ClusterStrategy& s) {
  Emitted out;
  Json file = Json::object();
  if (!model.engine_section.empty()) {
    file["model"] = parse_json(model.engine_section, "model");
  } else {
    out.notes.push_back("`model`, `data` and `train` are yours to add");
  }
  file["mesh"] = {{"data", s.mesh.data}, {"pipeline", s.mesh.pipeline}};
  if (s.mesh.pipeline > 1) {
    const bool gpipe = s.pipeline == PipelineKind::kGPipe;
    file["mesh"]["pipeline_order"] = gpipe ? "gpipe" : "1f1b";
    if (!gpipe && s.pipeline != PipelineKind::k1F1B) {
      out.notes.push_back(format("the engine runs 1f1b and gpipe, not %s: 1f1b is written",
                                 pipeline_name(s.pipeline)));
    }
  }
  if (s.mesh.tensor > 1 || s.mesh.context > 1) {
    file["mesh"]["tensor"] = s.mesh.tensor;
    file["mesh"]["context"] = s.mesh.context;
    out.notes.push_back(
        "the engine does not run tensor and context degrees yet: `vitrine train` "
        "refuses the file");
  }
  file.update(deepspeed_keys(model, s, out.notes));
  out.text = file.dump(2);
  return out;
}

}  // namespace vitrine
