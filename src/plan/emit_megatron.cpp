// Megatron-LM's arguments of a strategy.
#include <algorithm>

#include "core/error.h"
#include "core/format.h"
#include "plan/emit.h"

namespace vitrine {
namespace {

class Arguments {
 public:
  void flag(const std::string& name) { lines_.push_back("--" + name); }
  void number(const std::string& name, int64_t value) {
    lines_.push_back(format("--%s %lld", name.c_str(), static_cast<long long>(value)));
  }
  void text(const std::string& name, const std::string& value) {
    lines_.push_back("--" + name + " " + value);
  }
  std::string joined() const { return join(lines_, " \\\n"); }

 private:
  std::vector<std::string> lines_;
};

void add_model(const ModelShape& m, Arguments& a) {
  const StackShape& k = m.stack;
  a.number("num-layers", k.layers);
  a.number("hidden-size", k.hidden);
  a.number("ffn-hidden-size", k.experts > 0 && k.dense_layers == 0 ? k.expert_ffn : k.ffn);
  a.number("num-attention-heads", k.heads);
  if (k.kv_heads != k.heads) {
    a.flag("group-query-attention");
    a.number("num-query-groups", k.kv_heads);
  }
  if (k.kv_rank == 0 && k.head_dim * k.heads != k.hidden) a.number("kv-channels", k.head_dim);
  a.text("normalization", k.layer_norm ? "LayerNorm" : "RMSNorm");
  if (k.gated) a.flag("swiglu");
  if (!k.mlp_bias) a.flag("disable-bias-linear");
  if (k.qkv_bias && !k.mlp_bias) a.flag("add-qkv-bias");
  if (k.qk_norm) a.flag("qk-layernorm");
  if (k.rotary) {
    a.text("position-embedding-type", "rope");
  } else {
    a.text("position-embedding-type", m.positions > 0 ? "learned_absolute" : "none");
  }
  if (!m.tied_embeddings) a.flag("untie-embeddings-and-output-weights");
  if (k.kv_rank > 0) {
    a.flag("multi-latent-attention");
    if (k.q_rank > 0) a.number("q-lora-rank", k.q_rank);
    a.number("kv-lora-rank", k.kv_rank);
    a.number("qk-head-dim", k.head_dim);
    a.number("qk-pos-emb-head-dim", k.rope_head_dim);
    a.number("v-head-dim", k.v_head_dim);
  }
  if (k.experts > 0) {
    a.number("num-experts", k.experts);
    a.number("moe-router-topk", k.experts_per_token);
    a.number("moe-ffn-hidden-size", k.expert_ffn);
    a.flag("moe-grouped-gemm");
    a.text("moe-token-dispatcher-type", "alltoall");
    if (k.shared_ffn > 0) a.number("moe-shared-expert-intermediate-size", k.shared_ffn);
    if (k.dense_layers > 0) {
      a.text("moe-layer-freq",
             format("'([0]*%lld+[1]*%lld)'",
                    static_cast<long long>(k.dense_layers),
                    static_cast<long long>(k.layers - k.dense_layers)));
    }
  }
}

void add_pipeline(const ModelShape& m,
                  const ClusterStrategy& s,
                  Arguments& a,
                  std::vector<std::string>& notes) {
  a.number("pipeline-model-parallel-size", s.mesh.pipeline);
  if (s.mesh.pipeline == 1) return;
  const int64_t chunks = s.pipeline == PipelineKind::kInterleaved ? s.interleave : 1;
  const int64_t positions = s.mesh.pipeline * chunks;
  if (chunks > 1) a.number("num-virtual-stages-per-pipeline-rank", chunks);
  if (m.stack.layers % positions != 0) {
    if ((m.stack.layers + 2) % positions == 0) {
      a.flag("account-for-embedding-in-pipeline-split");
      a.flag("account-for-loss-in-pipeline-split");
    } else {
      notes.push_back(
          format("%lld layers do not divide by %lld: give the cut with "
                 "--pipeline-model-parallel-layout",
                 static_cast<long long>(m.stack.layers),
                 static_cast<long long>(positions)));
    }
  }
  if (s.pipeline != PipelineKind::k1F1B && s.pipeline != PipelineKind::kInterleaved) {
    notes.push_back(format("Megatron-LM runs 1f1b and interleaved, not %s: it will run 1f1b",
                           pipeline_name(s.pipeline)));
  }
}

void add_sharding(const ClusterStrategy& s, Arguments& a) {
  if (s.zero_stage >= 2) {
    // Megatron's own FSDP.
    a.flag("use-megatron-fsdp");
    a.text("data-parallel-sharding-strategy",
           s.zero_stage == 3 ? "optim_grads_params" : "optim_grads");
    a.flag("no-gradient-accumulation-fusion");
    if (s.shard_group > 0 && s.shard_group < int64_t{s.mesh.data} * s.mesh.context) {
      a.number("num-distributed-optimizer-instances",
               int64_t{s.mesh.data} * s.mesh.context / s.shard_group);
    }
  }
  if (s.zero_stage >= 1) {
    a.flag("use-distributed-optimizer");
    if (s.overlap_gather) a.flag("overlap-param-gather");
  }
  if (s.overlap_reduce && int64_t{s.mesh.data} * s.mesh.context > 1) a.flag("overlap-grad-reduce");
  if (s.optimizer_tier != Tier::kDevice) {
    a.flag("optimizer-cpu-offload");
    a.flag("use-precision-aware-optimizer");
  }
}

}  // namespace

Emitted emit_megatron(const ModelShape& m, const ClusterStrategy& s, const Cluster& cluster) {
  if (m.family != "decoder") {
    throw ConfigError("--emit megatron: arguments are written for decoders, and " + m.name +
                      " is of the family " + m.family);
  }
  if (s.parameter_tier != Tier::kDevice || s.optimizer_tier == Tier::kDisk) {
    throw ConfigError(
        "--emit megatron: Megatron-LM offloads the optimizer to the host alone, not "
        "parameters and not to disk; use --emit deepspeed");
  }
  Emitted out;
  Arguments a;
  add_model(m, a);
  a.number("seq-length", s.sequence);
  a.number("max-position-embeddings", std::max(s.sequence, m.max_sequence));
  a.number("tensor-model-parallel-size", s.mesh.tensor);
  if (s.sequence_parallel && s.mesh.tensor > 1) a.flag("sequence-parallel");
  add_pipeline(m, s, a, out.notes);
  if (s.mesh.context > 1) a.number("context-parallel-size", s.mesh.context);
  if (s.expert > 1) {
    a.number("expert-model-parallel-size", s.expert);
    a.number("expert-tensor-parallel-size", 1);
  }
  a.number("micro-batch-size", s.micro_batch);
  a.number("global-batch-size", s.global_batch);
  if (s.precision == Precision::kF16) a.flag("fp16");
  if (s.precision == Precision::kBF16 || s.precision == Precision::kF8) a.flag("bf16");
  if (s.precision == Precision::kF8) a.text("fp8-format", "hybrid");
  if (s.precision == Precision::kF4) {
    a.flag("bf16");
    a.text("fp4-format", "e2m1");
  }
  if (s.gradient_bytes == 2) a.flag("grad-reduce-in-bf16");
  if (s.recompute == Recompute::kSelective) {
    a.flag("recompute-activations");
    if (s.flash_attention) a.text("recompute-modules", "layernorm mlp_act");
  } else if (s.recompute == Recompute::kFull) {
    a.text("recompute-granularity", "full");
    a.text("recompute-method", "uniform");
    a.number("recompute-num-layers", 1);
  }
  if (s.flash_attention) a.flag("use-flash-attn");
  if (s.overlap_tensor && s.mesh.tensor > 1) a.flag("tp-comm-overlap");
  if (s.graphs) a.flag("enable-cuda-graph");
  add_sharding(s, a);
  out.notes.push_back(
      format("for torchrun --nnodes %d --nproc-per-node %d; data, tokenizer and "
             "optimizer settings are yours to add",
             cluster.nodes(),
             std::min(cluster.gpus, cluster.gpus_per_node)));
  out.text = a.joined();
  return out;
}

}  // namespace vitrine
