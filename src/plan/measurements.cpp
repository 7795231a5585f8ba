// Rows of published measurements, taken or refused.
#include "plan/measurements.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>

#include "core/error.h"
#include "core/format.h"
#include "plan/published_presets.h"
#include "plan/published_software.h"
#include "plan/shard_blocks.h"

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

// Of the largest products' rate (measured by single kernels in a loop), what training sustains;
// passes over memory at 0.78 of the bandwidth.
constexpr double kSustained = 0.8, kMemory = 0.78;

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
  const SoftwareEra& era = apply_software(m, notes);
  const std::string precision = lower(row.text("precision"));
  apply_bridge_preset(m, precision);
  if (contains(precision, "-cs") || contains(precision, "per-tensor")) s.current_scaling = true;
  m.group = family_of(card) + ", " + era.name;
  m.prior = m.cluster.efficiency;
  m.prior.era = era.name;
  m.prior.matmul = m.prior.ceiling * kSustained;
  m.prior.memory = kMemory;
  m.prior.launch_ns = era.launch_ns;
  m.prior.communication = era.communication;
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
                               : batch * decoder_flops(m.model, s.sequence);
      m.step_s = flops / (tflops * 1e12 * static_cast<double>(gpus));
    } else if (mfu > 0) {
      m.step_s = batch * decoder_flops(m.model, s.sequence) /
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
