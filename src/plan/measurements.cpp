// Rows of published measurements, taken or refused.
#include "plan/measurements.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}
bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

// What cannot be predicted, in words for the table of refused rows.
struct Refuse {
  std::string reason;
};

class Row {
 public:
  Row(const CsvTable& table, size_t row) : table_(table), row_(row) {}
  const std::string& text(const char* column) const { return table_.cell(row_, column); }
  double number(const char* column, double fallback) const {
    const std::string& cell = text(column);
    if (cell.empty()) return fallback;
    double value = 0;
    const auto [end, error] = std::from_chars(cell.data(), cell.data() + cell.size(), value);
    if (error != std::errc() || end != cell.data() + cell.size() || !std::isfinite(value)) {
      throw Refuse{std::string(column) + " is not a number: \"" + cell + "\""};
    }
    if (value < 0) throw Refuse{std::string(column) + " is negative: " + cell};
    return value;
  }
  int64_t whole(const char* column, int64_t fallback) const {
    const double value = number(column, static_cast<double>(fallback));
    if (value != std::floor(value) || value > 1e15) {
      throw Refuse{std::string(column) + " is not a whole number: \"" + text(column) + "\""};
    }
    return static_cast<int64_t>(value);
  }
  int64_t need(const char* column) const {
    if (text(column).empty()) throw Refuse{std::string(column) + " is not given"};
    const int64_t value = whole(column, 0);
    if (value < 1) throw Refuse{std::string(column) + " is 0"};
    return value;
  }

 private:
  const CsvTable& table_;
  size_t row_;
};

// ---- What each source's software does, where the columns do not say. One entry a stack, found by
// a part of the source's name; nothing here depends on a row's measurement.
struct Era {
  const char* name;
  double launch_ns, communication;
};
// What is assumed before any row is looked at. Eager PyTorch: five dispatcher calls of 10 us for
// one operation of ours, collectives at 0.6 of what NCCL's model gives (blocking calls between
// kernels); compiled and Transformer Engine: 15 us, 0.9.
constexpr Era kEager = {"eager PyTorch 2021-23", 50e3, 0.6};
constexpr Era kCompiled = {"PyTorch 2024-25", 15e3, 0.9};
constexpr Era kEngine24 = {"Transformer Engine 2024-25", 15e3, 0.9};
constexpr Era kEngine26 = {"Transformer Engine early 2026", 15e3, 0.9};
constexpr Era kEngine26b = {"Transformer Engine mid 2026", 15e3, 0.9};
constexpr Era kLlmq = {"LLMQ 2025", 6e3, 0.9};
constexpr Era kVolta = {"V100 2020-21", 30e3, 0.6};
// A compiled graph: actors issue kernels and collectives without an interpreter between them.
constexpr Era kStatic = {"static graph 2021", 6e3, 0.9};
constexpr Era kOther = {"other", 15e3, 0.8};
// Of the largest products' rate (measured by single kernels in a loop), what training sustains;
// passes over memory at 0.78 of the bandwidth.
constexpr double kSustained = 0.8, kMemory = 0.78;

struct Stack {
  const char* source;
  const Era& era;
  void (*apply)(Measurement&, const std::string& notes, const std::string& source);
};

void megatron_2021(Measurement& m, const std::string&, const std::string&) {
  // fp16 with fp32 main gradients, dropout, fused scale-mask-softmax, gradients all-reduced after
  // the last backward.
  m.model.stack.dropout = 0.1;
  m.strategy.flash_attention = false;
  m.strategy.loss_form = LossForm::kInPlace;
  m.strategy.overlap_reduce = m.strategy.overlap_gather = false;
}
void megatron_deepspeed(Measurement& m, const std::string& notes, const std::string& source) {
  megatron_2021(m, notes, source);
  if (contains(source, "bigscience")) {
    m.model.stack.dropout = 0;
    m.model.positions = 0;
    // Four 100 Gb/s Omni-Path cards for eight GPUs.
    m.cluster.network_bytes_per_s = 4 * 12.5e9 / 8;
    m.strategy.all_reduce_gradients = true;
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
}
void aleph(Measurement& m, const std::string& notes, const std::string&) {
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
  m.strategy.gradient_bytes = 2;
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
}
void llmq(Measurement& m, const std::string& notes, const std::string&) {
  // Two bytes for each moment and gradient; states in bf16; logits in chunks, in place.
  m.strategy.gradient_bytes = m.strategy.reduce_bytes = 2;
  m.strategy.moment_bytes = 4;
  m.strategy.master_bytes = contains(notes, "offload-master") ? 4 : 0;
  m.strategy.loss_form = LossForm::kFused;
  m.strategy.arena = true;
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
void nemo(Measurement& m, const std::string& notes, const std::string&) {
  m.strategy.sequence_parallel = m.strategy.mesh.tensor > 1;
  m.strategy.overlap_tensor = m.strategy.mesh.tensor > 1;
  if (m.strategy.zero_stage != 3) m.strategy.zero_stage = 1;
  if (m.strategy.zero_stage == 3) fsdp(m);
  m.strategy.reduce_bytes = 4;
  m.strategy.loss_form = LossForm::kInPlace;
  (void)notes;
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
    {"NeMo", kEngine24, nemo},
    {"Megatron-Bridge", kEngine24, nemo},
    {"Megatron-MoE", kEngine24, nemo},
    {"NVIDIA/Megatron-LM", kEngine24, nemo},
    {"MegaScale", kEngine24, nemo},
    {"DLPerf GPT report (OneFlow)", kStatic, oneflow},
    {"DLPerf", kVolta, oneflow},
};

// ---- Models

// Shapes that the columns do not give whole are taken from the model's name.
struct Named {
  const char* in_csv;
  const char* built_in;
};
constexpr Named kNamed[] = {
    {"deepseekv3", "deepseek-v3"},
    {"gpt oss 120b", "gpt-oss-120b"},
    {"gpt oss 20b", "gpt-oss-20b"},
    {"qwen3-235b-a22b", "qwen3-235b-a22b"},
    {"qwen3_235b_a22b", "qwen3-235b-a22b"},
    {"qwen3_30b_a3b", "qwen3-30b-a3b"},
    {"qwen3-30b-a3b", "qwen3-30b-a3b"},
    {"mixtral", "mixtral-8x7b"},
    {"kimi_k2", "kimi-k2"},
    {"wan 2.1 14b", "wan-14b"},
};

ModelShape shape_of(const Row& row) {
  const std::string name = row.text("model"), small = lower(name);
  for (const Named& named : kNamed) {
    if (small.starts_with(named.in_csv)) {
      try {
        return model_shape(named.built_in);
      } catch (const ConfigError&) {
        throw Refuse{"the shape of " + name + " is not known"};
      }
    }
  }
  ModelShape m;
  m.name = name;
  m.source = "row";
  StackShape& k = m.stack;
  k.layers = row.need("layers");
  k.hidden = row.need("hidden");
  k.heads = row.need("heads");
  k.kv_heads = row.whole("kv_heads", k.heads);
  if (k.hidden % k.heads != 0) {
    throw Refuse{format("%lld heads do not divide hidden %lld",
                        static_cast<long long>(k.heads),
                        static_cast<long long>(k.hidden))};
  }
  k.head_dim = k.hidden / k.heads;
  k.ffn = row.whole("ffn", 4 * k.hidden);
  const bool llama =
      contains(small, "llama") || contains(small, "qwen") || contains(small, "mistral");
  k.gated = k.rotary = llama;
  k.layer_norm = !llama;
  k.qkv_bias = !llama || contains(small, "qwen2");
  k.o_bias = k.mlp_bias = !llama;
  if (contains(small, "mpt")) k.qkv_bias = k.o_bias = k.mlp_bias = false;
  m.vocab = row.whole("vocab", contains(small, "llama") ? 32000 : 51200);
  m.positions = llama ? 0 : row.whole("seq", 0);
  m.tied_embeddings = !llama;
  if (contains(small, "qwen2.5") && k.hidden < 3000) m.tied_embeddings = true;
  return m;
}

// ---- Steps

Precision precision_of(const std::string& text) {
  const std::string p = lower(text);
  if (contains(p, "nvfp4") || contains(p, "fp4")) return Precision::kF4;
  if (contains(p, "fp8") || contains(p, "mxfp8")) return Precision::kF8;
  if (contains(p, "bf16")) return Precision::kBF16;
  if (contains(p, "fp16") || p.empty()) return Precision::kF16;
  if (contains(p, "fp32")) return Precision::kF32;
  throw Refuse{"precision \"" + text + "\" is not known"};
}

// FLOPs that hardware executes for one step of a GPT with full recomputation, as SC'21 counts.
double hardware_flops(const ModelShape& m, double sequence, double batch) {
  const auto real = [](int64_t v) { return static_cast<double>(v); };
  const double l = real(m.stack.layers), h = real(m.stack.hidden);
  return 96 * batch * sequence * l * h * h *
         (1 + sequence / (6 * h) + real(m.vocab) / (16 * l * h));
}
// Model FLOPs by 6 N + 6 L h s a token (causal), as the llama-family tables of vendors agree with.
double model_flops(const ModelShape& m, double sequence, double batch) {
  const double n = static_cast<double>(m.active_parameters());
  return batch * sequence *
         (6 * n + 6 * static_cast<double>(m.stack.layers * m.stack.hidden) * sequence);
}

Recompute recompute_of(const std::string& text) {
  if (text == "full") return Recompute::kFull;
  if (text == "selective") return Recompute::kSelective;
  if (text.empty() || text == "none") return Recompute::kNone;
  throw Refuse{"recompute \"" + text + "\" is not none, selective or full"};
}

void set_offload(ClusterStrategy& s, const std::string& text) {
  if (text.empty() || text == "none") return;
  if (contains(text, "nvme params")) {
    s.parameter_tier = s.optimizer_tier = Tier::kDisk;
  } else if (contains(text, "cpu params")) {
    s.parameter_tier = Tier::kHost;
    s.optimizer_tier = Tier::kDisk;
  } else {
    if (contains(text, "opt") || contains(text, "ZeRO-offload") || text == "cpu") {
      s.optimizer_tier = Tier::kHost;
    }
    if (contains(text, "gradients")) s.gradient_tier = Tier::kHost;
    if (contains(text, "residual") || contains(text, "activations")) {
      s.activation_tier = Tier::kHost;
    }
  }
}

std::string card_name(const std::string& text) {
  if (text.empty()) throw Refuse{"gpu_kind is not given"};
  if (contains(text, "V100-32GB")) return "V100-32GB";
  if (contains(text, "V100")) return "V100-16GB";
  if (text == "A100") return "A100-80GB";
  if (text.starts_with("H100-96")) return "H100-96GB";
  if (text.starts_with("H100-94")) return "H100-94GB";
  if (text.starts_with("H100-SXM")) return "H100";
  return text;
}

std::string family_of(const std::string& card) {
  if (card.starts_with("A100")) return "A100";
  if (card.starts_with("V100")) return "V100";
  // The H200 is the H100 with other memory.
  if (card.starts_with("H100") || card == "H200") return "H100";
  return card;
}

Measurement measurement(const Row& row) {
  Measurement m;
  m.id = row.text("id");
  m.source = row.text("source");
  const std::string notes = row.text("notes");
  if (contains(notes, "SOURCE DISAGREES")) throw Refuse{"the source contradicts itself (notes)"};
  if (contains(notes, "LoRA") || contains(notes, "SFT")) {
    throw Refuse{"fine-tuning: packed or frozen parts are not in the columns"};
  }
  if (contains(notes, "DERIVED")) throw Refuse{"the step time is not measured but derived"};
  m.model = shape_of(row);
  if (contains(notes, "ONE transformer layer")) {
    throw Refuse{"one layer alone, not a step (see the layer table)"};
  }
  ClusterStrategy& s = m.strategy;
  const int64_t gpus = row.need("gpus");
  const std::string card = card_name(row.text("gpu_kind"));
  try {
    m.cluster = make_cluster(std::to_string(gpus) + "x" + card);
  } catch (const ConfigError& error) {
    throw Refuse{error.what()};
  }
  s.sequence = row.need("seq");
  s.global_batch = row.need("global_batch");
  s.micro_batch = row.need("micro_batch");
  s.mesh.tensor = static_cast<int>(row.need("tp"));
  s.mesh.pipeline = static_cast<int>(row.need("pp"));
  s.mesh.context = static_cast<int>(row.whole("cp", 1));
  s.expert = static_cast<int>(std::max<int64_t>(1, row.whole("ep", 1)));
  const int64_t rest =
      gpus / (static_cast<int64_t>(s.mesh.tensor) * s.mesh.pipeline * std::max(1, s.mesh.context));
  s.mesh.data = static_cast<int>(row.whole("dp", rest));
  if (s.mesh.world() != gpus) {
    throw Refuse{format(
        "tp x pp x cp x dp = %d, not %lld GPUs", s.mesh.world(), static_cast<long long>(gpus))};
  }
  s.interleave = static_cast<int>(std::max<int64_t>(1, row.whole("interleave", 1)));
  if (s.mesh.pipeline == 1) s.interleave = 1;
  s.pipeline = s.interleave > 1 ? PipelineKind::kInterleaved : PipelineKind::k1F1B;
  s.zero_stage = static_cast<int>(row.whole("zero_stage", 0));
  s.recompute = recompute_of(row.text("recompute"));
  s.sequence_parallel = row.text("sequence_parallel") == "1" && s.mesh.tensor > 1;
  s.precision = precision_of(row.text("precision"));
  set_offload(s, row.text("offload"));
  const Stack* stack = nullptr;
  for (const Stack& known : kStacks) {
    if (contains(m.source, known.source)) {
      stack = &known;
      break;
    }
  }
  const Era* era = &kOther;
  if (stack) {
    if (stack->apply == megatron_2021 && s.zero_stage == 3) {
      zero_deepspeed(m, notes, m.source);
    } else {
      stack->apply(m, notes, m.source);
    }
    era = &stack->era;
  }
  m.group = family_of(card) + ", " + era->name;
  m.prior = m.cluster.efficiency;
  m.prior.era = era->name;
  m.prior.matmul = m.prior.ceiling * kSustained;
  m.prior.memory = kMemory;
  m.prior.launch_ns = era->launch_ns;
  m.prior.communication = era->communication;
  m.cluster.efficiency = m.prior;
  m.out_of_memory = contains(notes, "OUTCOME: OOM");
  if (!m.out_of_memory && contains(notes, "OUTCOME:")) {
    throw Refuse{"it failed for a reason other than memory"};
  }
  m.memory_bytes = row.number("measured_mem_GB", 0) * 1073741824.0;
  m.memory_by_arithmetic = contains(notes, "figure values");
  m.step_s = row.number("measured_step_s", 0);
  if (m.step_s == 0 && !m.out_of_memory) {
    const double batch = static_cast<double>(s.global_batch), seq = static_cast<double>(s.sequence);
    const double tflops = row.number("measured_tflops_per_gpu", 0),
                 mfu = row.number("measured_mfu", 0);
    if (tflops > 0) {
      const double flops = contains(notes, "HFU-style") || contains(notes, "hardware TFLOP")
                               ? hardware_flops(m.model, seq, batch)
                               : model_flops(m.model, seq, batch);
      m.step_s = flops / (tflops * 1e12 * static_cast<double>(gpus));
    } else if (mfu > 0) {
      m.step_s = model_flops(m.model, seq, batch) /
                 (mfu / 100 * m.cluster.card->bf16_flops_per_s * static_cast<double>(gpus));
    }
  }
  m.ran = m.step_s > 0 && !row.text("recompute").empty();
  if (m.step_s == 0 && m.memory_bytes == 0 && !m.out_of_memory) {
    throw Refuse{"nothing is measured: no step time, TFLOP/s, MFU, memory or outcome"};
  }
  try {
    m.model.validate();
    check_strategy(s, m.model, m.cluster);
  } catch (const ConfigError& error) {
    throw Refuse{error.what()};
  }
  return m;
}

}  // namespace

Measurements read_measurements(const CsvTable& table) {
  for (const char* column : {"source", "model", "gpus", "gpu_kind", "seq"}) {
    if (std::find(table.columns.begin(), table.columns.end(), column) == table.columns.end()) {
      throw ConfigError(std::string("measurements: no column \"") + column +
                        "\"; the columns are described in docs/formats/measurements.md");
    }
  }
  Measurements out;
  for (size_t r = 0; r < table.rows.size(); ++r) {
    const Row row(table, r);
    try {
      out.taken.push_back(measurement(row));
    } catch (const Refuse& refuse) {
      out.refused.push_back(
          {row.text("id").empty() ? format("line %d", table.line[r]) : row.text("id"),
           row.text("source"),
           refuse.reason});
    }
  }
  return out;
}

}  // namespace vitrine
