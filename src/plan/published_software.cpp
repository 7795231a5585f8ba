// Software of published measurements, one entry a stack.
#include "plan/published_software.h"

#include <algorithm>
#include <cstdlib>

#include "plan/published_presets.h"

namespace vitrine {
namespace {

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// What is assumed before any row is looked at. Eager PyTorch: five dispatcher calls of 10 us for
// one operation of ours, collectives at 0.6 of what NCCL's model gives (blocking calls between
// kernels); compiled and Transformer Engine: 15 us, 0.9.
constexpr SoftwareEra kEager = {"eager PyTorch 2021-23", 50e3, 0.6};
constexpr SoftwareEra kCompiled = {"PyTorch 2024-25", 15e3, 0.9};
constexpr SoftwareEra kEngine24 = {"Transformer Engine 2024", 15e3, 0.9};
constexpr SoftwareEra kEngine25 = {"Transformer Engine late 2025", 15e3, 0.9};
constexpr SoftwareEra kEngine26 = {"Transformer Engine early 2026", 15e3, 0.9};
constexpr SoftwareEra kEngine26b = {"Transformer Engine mid 2026", 15e3, 0.9};
constexpr SoftwareEra kLlmq = {"LLMQ 2025", 6e3, 0.9};
constexpr SoftwareEra kVolta = {"V100 2020-21", 30e3, 0.6};
// A compiled graph: actors issue kernels and collectives without an interpreter between them.
constexpr SoftwareEra kStatic = {"static graph 2021", 6e3, 0.9};
constexpr SoftwareEra kOther = {"other", 15e3, 0.8};

struct Stack {
  const char* source;
  const SoftwareEra& era;
  void (*apply)(Measurement&, const std::string& notes, const std::string& source);
};

void megatron_2021(Measurement& m, const std::string&, const std::string&) {
  // fp16 with fp32 main gradients, dropout, fused scale-mask-softmax, gradients all-reduced after
  // the last backward.
  m.model.stack.dropout = 0.1;
  m.strategy.flash_attention = false;
  m.strategy.loss_form = LossForm::kInPlace;
  m.strategy.overlap_reduce = m.strategy.overlap_gather = false;
  // Fused into the products from 2022 on; before, a hook adds each gradient to the fp32 sum.
  m.strategy.accumulate_apart = true;
  m.strategy.accumulate_bytes = 10;
  if (contains(m.source, "Korthikanti")) {
    m.strategy.accumulate_apart = false;
    m.strategy.accumulate_bytes = 8;
  }
}
void megatron_deepspeed(Measurement& m, const std::string& notes, const std::string& source) {
  megatron_2021(m, notes, source);
  if (contains(source, "bigscience")) {
    m.model.stack.dropout = 0;
    m.model.positions = 0;
    // Four 100 Gb/s Omni-Path cards for eight GPUs.
    m.cluster.network_bytes_per_s = 4 * 12.5e9 / 8;
    m.strategy.all_reduce_gradients = true;
    // Each is converted, added and cleared in passes of its own (BF16_Optimizer).
    m.strategy.accumulate_bytes = 20;
    // Half-precision gradients beside the fp32 sums, and the part that a rank updates once more.
    m.strategy.gradient_bytes = 6;
    m.strategy.update_gradient_bytes = 4;
  }
}
void zero_deepspeed(Measurement& m, const std::string& notes, const std::string& source) {
  megatron_2021(m, notes, source);
  m.strategy.overlap_reduce = m.strategy.overlap_gather = true;
  m.strategy.reduce_each_micro_batch = true;
  m.strategy.gradient_bytes = m.strategy.reduce_bytes = 2;
  m.strategy.gathers_per_block = 4;
  m.strategy.accumulate_bytes = 6;
}
void aleph(Measurement& m, const std::string& notes, const std::string& source) {
  // Their models have 128,000 tokens (the rows' step time x TFLOP/s agrees with it, not with
  // 32,000).
  m.model.vocab = 128000;
  m.strategy.flash_attention = contains(notes, "flash");
  m.strategy.attention_generation = contains(notes, "flash_attention2") ? 2 : 1;
  m.strategy.fused = false;
  m.strategy.fused_norm = contains(notes, "RMS kernel");
  m.strategy.fused_softmax = !contains(notes, "kernel: torch");
  m.strategy.all_reduce_gradients = true;
  m.strategy.gate_apart = true;
  m.strategy.loss_form = LossForm::kGathered;
  m.strategy.keep_stage_outputs = true;
  // The later runs, of the sequence-parallel tables: step times hardly grow with the number of
  // stages, which a last stage of as many layers as the others and the head would not allow.
  m.strategy.balance_parameters = contains(source, "seqpara");
  m.strategy.gradient_bytes = 2;
  m.strategy.accumulate_apart = true;
  m.strategy.accumulate_bytes = 6;
  m.strategy.zero_stage = 1;
  m.strategy.overlap_reduce = m.strategy.overlap_gather = false;
}
void fsdp(Measurement& m) {
  m.strategy.weight_shard_bytes = 0;
  m.strategy.reduce_each_micro_batch = true;
}
void mosaic(Measurement& m, const std::string& notes, const std::string& source) {
  fsdp(m);
  m.strategy.reduce_bytes = contains(notes, "PURE") ? 2 : 4;
  m.strategy.fused = false;
  m.strategy.attention_generation = 1;  // Triton's port of the first
  // Composer's two metrics of training (cross-entropy, perplexity) take log-softmax each.
  m.strategy.metric_bytes = 16;
  m.strategy.loss_form = LossForm::kFused;
  m.model.positions = 0;
  // "A100 40GB with 1600 Gbps node-node interconnect": of the node.
  const size_t at = source.find(" Gbps");
  if (at != std::string::npos) {
    const size_t begin = source.rfind(' ', at - 1) + 1;
    const double gbps = std::strtod(source.c_str() + begin, nullptr);
    if (gbps > 0) m.cluster.network_bytes_per_s = gbps / 8 * 1e9 / m.cluster.gpus_per_node;
  }
}
void torchtitan(Measurement& m, const std::string& notes, const std::string& source) {
  fsdp(m);
  m.strategy.repeat_kv = true;
  if (m.strategy.mesh.tensor > 1) m.strategy.loss_form = LossForm::kSplit;
  // From 2025 on --compile covers the loss too.
  if (contains(notes, "compile") && contains(source, "2025")) {
    m.strategy.loss_form = LossForm::kFused;
  }
  m.strategy.fused = contains(notes, "compile");
  m.strategy.fused_norm = m.strategy.fused;
  m.strategy.attention_generation = 2;
  m.strategy.sequence_parallel = m.strategy.mesh.tensor > 1;
  m.strategy.overlap_tensor = contains(notes, "AsyncTP");
  m.strategy.keep_products = !contains(notes, "selective layer");
  m.strategy.recompute_needed = true;
  m.strategy.current_scaling = true;  // Float8Linear's default, tensor by tensor
  m.strategy.eager_ring = true;
  m.strategy.quantized_gather = contains(notes, "float8 all-gather");
}
void llmq(Measurement& m, const std::string& notes, const std::string&) {
  // Two bytes for each moment and gradient; states in bf16; logits in chunks, in place.
  m.strategy.gradient_bytes = m.strategy.reduce_bytes = 2;
  m.strategy.moment_bytes = 4;
  m.strategy.master_bytes = contains(notes, "offload-master") ? 4 : 0;
  m.strategy.loss_form = LossForm::kFused;
  m.strategy.arena = true;
  m.strategy.recompute_needed = true;
  m.strategy.recompute_mlp = contains(notes, "--recompute-ffn");
  const size_t chunks_at = notes.find("--lmhead-chunks=");
  if (chunks_at != std::string::npos) {
    const long chunks = std::strtol(notes.c_str() + chunks_at + 16, nullptr, 10);
    if (chunks > 1) {
      m.strategy.loss_chunk_rows =
          std::max<int64_t>(1, m.strategy.micro_batch * m.strategy.sequence / chunks);
    }
  }
  // On one card, sharding means that the host has the other part.
  if (m.strategy.world() == 1 && contains(notes, "--shard-weights")) {
    m.strategy.parameter_tier = Tier::kHost;
  }
  if (m.strategy.world() == 1 && contains(notes, "--shard-gradients")) {
    m.strategy.gradient_tier = Tier::kHost;
  }
  m.strategy.graphs = false;
}
void nemo(Measurement& m, const std::string& notes, const std::string& source) {
  m.strategy.sequence_parallel = m.strategy.mesh.tensor > 1;
  m.strategy.overlap_tensor = m.strategy.mesh.tensor > 1;
  if (m.strategy.zero_stage != 3) m.strategy.zero_stage = 1;
  if (m.strategy.zero_stage == 3) fsdp(m);
  m.strategy.reduce_bytes = 4;
  m.strategy.loss_form = LossForm::kInPlace;
  if (contains(notes, "A2A dispatcher")) m.strategy.dispatcher = Dispatcher::kCopies;
  if (contains(notes, "DeepEP") || contains(notes, "HybridEP")) {
    m.strategy.dispatcher = Dispatcher::kRanks;
  }
  m.strategy.overlap_expert = contains(notes, "A2A overlap");
  if (contains(source, "qwen3/readme.md (GB200)")) apply_zoo_command(m);
}
void oneflow(Measurement& m, const std::string&, const std::string& source) {
  m.model.stack.dropout = 0.1;
  m.strategy.flash_attention = false;
  m.strategy.gradient_bytes = m.strategy.reduce_bytes = 2;
  m.strategy.recompute = Recompute::kFull;  // its scripts checkpoint activations
  // One 100 Gb/s card for the node.
  m.cluster.network_bytes_per_s = 12.5e9 / m.cluster.gpus_per_node;
  // PipelineBufferPass: what backward reads of a stage's forward has 2 x stages registers.
  if (contains(source, "(OneFlow)") && m.strategy.mesh.pipeline > 1) {
    m.strategy.stage_buffers = 2 * m.strategy.mesh.pipeline;
  }
}
void plain(Measurement&, const std::string&, const std::string&) {}

constexpr Stack kStacks[] = {
    {"SC'21", kEager, megatron_2021},
    {"MT-NLG", kEager, megatron_2021},
    {"Korthikanti", kEager, megatron_2021},
    {"vTrain", kEager, megatron_deepspeed},
    {"bigscience", kEager, megatron_deepspeed},
    {"Zero Bubble", kEager, megatron_2021},
    {"Aleph-Alpha", kEager, aleph},
    {"mosaicml", kEager, mosaic},
    {"torchtitan", kCompiled, torchtitan},
    {"LLaMA-Factory", kCompiled, plain},
    {"llmq", kLlmq, llmq},
    {"[26.06", kEngine26b, nemo},
    {"[26.08", kEngine26b, nemo},
    {"[26.0", kEngine26, nemo},
    {"[25.09", kEngine25, nemo},
    {"[25.11", kEngine25, nemo},
    {"Megatron-MoE", kEngine25, nemo},
    {"NeMo", kEngine24, nemo},
    {"Megatron-Bridge", kEngine24, nemo},
    {"NVIDIA/Megatron-LM", kEngine24, nemo},
    {"MegaScale", kEngine24, nemo},
    {"DLPerf GPT report (OneFlow)", kStatic, oneflow},
    {"DLPerf", kVolta, oneflow},
};

}  // namespace

const SoftwareEra& apply_software(Measurement& m, const std::string& notes) {
  for (const Stack& known : kStacks) {
    if (!contains(m.source, known.source)) continue;
    if (known.apply == megatron_2021 && m.strategy.zero_stage == 3) {
      zero_deepspeed(m, notes, m.source);
    } else {
      known.apply(m, notes, m.source);
    }
    return known.era;
  }
  return kOther;
}

}  // namespace vitrine
