// The table of built-in shapes: one line a model.
#include "plan/built_in_shapes.h"

#include <functional>

#include "core/format.h"
#include "core/json.h"
#include "models/vit.h"
#include "models/world_model.h"
#include "plan/engine_shape.h"

namespace vitrine {
namespace {

// GPT-2's and GPT-3's layer. OPT's table of positions has two rows more than the sequence.
ModelShape gpt(int64_t layers, int64_t hidden, int64_t heads, int64_t vocab, int64_t positions) {
  ModelShape m;
  StackShape& s = m.stack;
  s.layers = layers;
  s.hidden = hidden;
  s.heads = s.kv_heads = heads;
  s.head_dim = hidden / heads;
  s.ffn = 4 * hidden;
  s.layer_norm = s.qkv_bias = s.o_bias = s.mlp_bias = true;
  s.dropout = 0.1;
  m.vocab = vocab;
  m.positions = m.max_sequence = positions;
  m.tied_embeddings = true;
  return m;
}

ModelShape opt(int64_t layers, int64_t hidden, int64_t heads) {
  ModelShape m = gpt(layers, hidden, heads, 50272, 2050);
  m.max_sequence = 2048;
  return m;
}

// The MosaicML benchmarks' layer: biases, learned positions, no dropout.
ModelShape mpt(int64_t layers, int64_t hidden, int64_t heads) {
  ModelShape m = gpt(layers, hidden, heads, 50368, 2048);
  m.stack.dropout = 0;
  return m;
}

ModelShape bloom(int64_t layers, int64_t hidden, int64_t heads) {
  ModelShape m = gpt(layers, hidden, heads, 250880, 0);
  m.max_sequence = 2048;
  m.stack.dropout = 0;
  m.embedding_norm = true;
  return m;
}

ModelShape neox(
    int64_t layers, int64_t hidden, int64_t heads, int64_t vocab, int64_t max_sequence) {
  ModelShape m = gpt(layers, hidden, heads, vocab, 0);
  m.max_sequence = max_sequence;
  m.tied_embeddings = false;
  m.stack.dropout = 0;
  m.stack.rotary = m.stack.parallel_block = true;
  return m;
}

ModelShape llama(int64_t layers,
                 int64_t hidden,
                 int64_t heads,
                 int64_t kv_heads,
                 int64_t ffn,
                 int64_t vocab,
                 int64_t max_sequence) {
  ModelShape m;
  StackShape& s = m.stack;
  s.layers = layers;
  s.hidden = hidden;
  s.heads = heads;
  s.kv_heads = kv_heads;
  s.head_dim = hidden / heads;
  s.ffn = ffn;
  s.gated = s.rotary = true;
  m.vocab = vocab;
  m.max_sequence = max_sequence;
  return m;
}

ModelShape qwen2(int64_t layers,
                 int64_t hidden,
                 int64_t heads,
                 int64_t kv_heads,
                 int64_t ffn,
                 int64_t vocab,
                 bool tied) {
  ModelShape m = llama(layers, hidden, heads, kv_heads, ffn, vocab, 32768);
  m.stack.qkv_bias = true;
  m.tied_embeddings = tied;
  return m;
}

ModelShape qwen3(
    int64_t layers, int64_t hidden, int64_t heads, int64_t kv_heads, int64_t ffn, bool tied) {
  ModelShape m = llama(layers, hidden, heads, kv_heads, ffn, 151936, 40960);
  m.stack.head_dim = 128;
  m.stack.qk_norm = true;
  m.tied_embeddings = tied;
  return m;
}

ModelShape with_experts(ModelShape m, int64_t experts, int64_t per_token, int64_t expert_ffn) {
  m.stack.experts = experts;
  m.stack.experts_per_token = per_token;
  m.stack.expert_ffn = expert_ffn;
  return m;
}

// The next-token layer was trained with, and is not in the 671 billion.
ModelShape deepseek_v3(int64_t next_token_layers) {
  ModelShape m = with_experts(llama(61, 7168, 128, 128, 18432, 129280, 163840), 256, 8, 2048);
  StackShape& s = m.stack;
  s.shared_ffn = 2048;
  s.dense_layers = 3;
  s.q_rank = 1536;
  s.kv_rank = 512;
  s.head_dim = s.v_head_dim = 128;
  s.rope_head_dim = 64;
  m.next_token_layers = next_token_layers;
  return m;
}

ModelShape gpt_oss(int64_t layers, int64_t experts) {
  ModelShape m = with_experts(llama(layers, 2880, 64, 8, 2880, 201088, 131072), experts, 4, 2880);
  StackShape& s = m.stack;
  s.head_dim = 64;
  s.qkv_bias = s.o_bias = s.router_bias = s.expert_bias = s.sinks = true;
  s.window = 128;
  s.window_layers = layers / 2;
  return m;
}

// LLaVA-1.5: the vision encoder's 576 patches go through a two-layer projector.
ModelShape llava(ModelShape m) {
  m.family = "multimodal";
  m.vocab = 32064;
  const VitConfig clip = vit_size("clip-vit-l14-336");
  set_picture_encoder(m, m.tower, clip);
  m.pictures_per_sample = 1;
  return m;
}

// Wan 2.1 text to video: latents of 16 channels in patches of 1 x 2 x 2, 512 states of the text
// encoder.
ModelShape wan(int64_t layers, int64_t hidden, int64_t heads, int64_t ffn) {
  ModelShape m;
  m.family = "diffusion";
  StackShape& s = m.stack;
  s.layers = layers;
  s.hidden = hidden;
  s.heads = s.kv_heads = heads;
  s.head_dim = hidden / heads;
  s.ffn = ffn;
  s.layer_norm = s.qkv_bias = s.o_bias = s.mlp_bias = true;
  s.qk_norm = s.wide_qk_norm = s.adaptive_norm = s.rotary = s.cross_attention = true;
  s.causal = false;
  s.context_tokens = 512;
  m.patch_values = 64;
  m.text_width = 4096;
  m.time_width = 256;
  return m;
}

ModelShape vit(const char* size) { return shape_of_engine(vit_to_json(vit_size(size))); }

ModelShape world(const char* size) {
  return shape_of_engine(world_model_to_json(world_model_size(size)));
}

struct Entry {
  const char* name;
  const char* source;
  std::function<ModelShape()> make;
};

constexpr char kGpt2[] = "openai/gpt2's config.json";
constexpr char kGpt3[] = "GPT-3 (arXiv 2005.14165), table 2.1, vocabulary 50257";
constexpr char kMegatron[] = "Megatron-LM (arXiv 2104.04473), table 1";
constexpr char kKorthikanti[] = "Korthikanti et al. (arXiv 2205.05198), table 3";
constexpr char kOpt[] = "OPT (arXiv 2205.01068), table 1";
constexpr char kBloom[] = "bigscience/bloom's config.json";
constexpr char kNeox[] = "EleutherAI's config.json";
constexpr char kMpt[] = "mosaicml/llm-foundry, throughput benchmarks";
constexpr char kLlama[] = "LLaMA (arXiv 2302.13971), table 2, and its checkpoints";
constexpr char kLlama2[] = "meta-llama's config.json";
constexpr char kQwen[] = "Qwen's config.json";
constexpr char kMistral[] = "mistralai's config.json";
constexpr char kDeepseek[] = "deepseek-ai/DeepSeek-V3's config.json";
constexpr char kOpenai[] = "openai/gpt-oss's config.json";
constexpr char kLlava[] = "llava-hf's config.json";
constexpr char kWan[] = "Wan-AI/Wan2.1-T2V's config.json";
constexpr char kEngine[] = "a size of this project";

const std::vector<Entry>& entries() {
  static const std::vector<Entry> all = {
      // Layers, hidden, heads, vocabulary, positions.
      {"gpt2", kGpt2, [] { return gpt(12, 768, 12, 50257, 1024); }},
      {"gpt2-medium", kGpt2, [] { return gpt(24, 1024, 16, 50257, 1024); }},
      {"gpt2-large", kGpt2, [] { return gpt(36, 1280, 20, 50257, 1024); }},
      {"gpt2-xl", kGpt2, [] { return gpt(48, 1600, 25, 50257, 1024); }},
      {"gpt-1.5b", kGpt2, [] { return gpt(48, 1600, 25, 50257, 1024); }},
      {"gpt-125m", kGpt3, [] { return gpt(12, 768, 12, 50257, 2048); }},
      {"gpt-350m", kGpt3, [] { return gpt(24, 1024, 16, 50257, 2048); }},
      {"gpt-760m", kGpt3, [] { return gpt(24, 1536, 16, 50257, 2048); }},
      {"gpt-1.3b", kGpt3, [] { return gpt(24, 2048, 16, 50257, 2048); }},
      {"gpt-2.7b", kGpt3, [] { return gpt(32, 2560, 32, 50257, 2048); }},
      {"gpt-6.7b", kGpt3, [] { return gpt(32, 4096, 32, 50257, 2048); }},
      {"gpt-13b", kGpt3, [] { return gpt(40, 5120, 40, 50257, 2048); }},
      {"gpt-175b", kGpt3, [] { return gpt(96, 12288, 96, 50257, 2048); }},
      {"gpt-1.7b", kMegatron, [] { return gpt(24, 2304, 24, 51200, 2048); }},
      {"gpt-3.6b", kMegatron, [] { return gpt(30, 3072, 32, 51200, 2048); }},
      {"gpt-7.5b", kMegatron, [] { return gpt(36, 4096, 32, 51200, 2048); }},
      {"gpt-18b", kMegatron, [] { return gpt(40, 6144, 48, 51200, 2048); }},
      {"gpt-22b", kKorthikanti, [] { return gpt(48, 6144, 64, 51200, 2048); }},
      {"gpt-39b", kMegatron, [] { return gpt(48, 8192, 64, 51200, 2048); }},
      {"gpt-76b", kMegatron, [] { return gpt(60, 10240, 80, 51200, 2048); }},
      {"gpt-145b", kMegatron, [] { return gpt(80, 12288, 96, 51200, 2048); }},
      {"gpt-310b", kMegatron, [] { return gpt(96, 16384, 128, 51200, 2048); }},
      {"gpt-530b", kMegatron, [] { return gpt(105, 20480, 128, 51200, 2048); }},
      {"gpt-1t", kMegatron, [] { return gpt(128, 25600, 160, 51200, 2048); }},
      {"opt-125m", kOpt, [] { return opt(12, 768, 12); }},
      {"opt-1.3b", kOpt, [] { return opt(24, 2048, 32); }},
      {"opt-2.7b", kOpt, [] { return opt(32, 2560, 32); }},
      {"opt-6.7b", kOpt, [] { return opt(32, 4096, 32); }},
      {"opt-13b", kOpt, [] { return opt(40, 5120, 40); }},
      {"opt-30b", kOpt, [] { return opt(48, 7168, 56); }},
      {"opt-66b", kOpt, [] { return opt(64, 9216, 72); }},
      {"opt-175b", kOpt, [] { return opt(96, 12288, 96); }},
      {"bloom-560m", kBloom, [] { return bloom(24, 1024, 16); }},
      {"bloom-7b1", kBloom, [] { return bloom(30, 4096, 32); }},
      {"bloom-176b", kBloom, [] { return bloom(70, 14336, 112); }},
      {"gpt-neox-20b", kNeox, [] { return neox(44, 6144, 64, 50432, 2048); }},
      {"pythia-1.4b", kNeox, [] { return neox(24, 2048, 16, 50304, 2048); }},
      {"pythia-6.9b", kNeox, [] { return neox(32, 4096, 32, 50432, 2048); }},
      {"pythia-12b", kNeox, [] { return neox(36, 5120, 40, 50688, 2048); }},
      {"mpt-125m", kMpt, [] { return mpt(12, 768, 12); }},
      {"mpt-350m", kMpt, [] { return mpt(24, 1024, 16); }},
      {"mpt-760m", kMpt, [] { return mpt(24, 1536, 12); }},
      {"mpt-1b", kMpt, [] { return mpt(24, 2048, 16); }},
      {"mpt-3b", kMpt, [] { return mpt(32, 2560, 20); }},
      {"mpt-7b", kMpt, [] { return mpt(32, 4096, 32); }},
      {"mpt-13b", kMpt, [] { return mpt(40, 5120, 40); }},
      {"mpt-30b", kMpt, [] { return mpt(48, 7168, 56); }},
      {"mpt-70b", kMpt, [] { return mpt(80, 8192, 64); }},
      // Layers, hidden, heads, key heads, MLP, vocabulary, longest sequence.
      {"llama-7b", kLlama, [] { return llama(32, 4096, 32, 32, 11008, 32000, 2048); }},
      {"llama-13b", kLlama, [] { return llama(40, 5120, 40, 40, 13824, 32000, 2048); }},
      {"llama-30b", kLlama, [] { return llama(60, 6656, 52, 52, 17920, 32000, 2048); }},
      {"llama-65b", kLlama, [] { return llama(80, 8192, 64, 64, 22016, 32000, 2048); }},
      {"llama2-7b", kLlama2, [] { return llama(32, 4096, 32, 32, 11008, 32000, 4096); }},
      {"llama2-13b", kLlama2, [] { return llama(40, 5120, 40, 40, 13824, 32000, 4096); }},
      {"llama2-70b", kLlama2, [] { return llama(80, 8192, 64, 8, 28672, 32000, 4096); }},
      {"llama3-8b", kLlama2, [] { return llama(32, 4096, 32, 8, 14336, 128256, 131072); }},
      {"llama3-70b", kLlama2, [] { return llama(80, 8192, 64, 8, 28672, 128256, 131072); }},
      {"llama3-405b", kLlama2, [] { return llama(126, 16384, 128, 8, 53248, 128256, 131072); }},
      {"mistral-7b", kMistral, [] { return llama(32, 4096, 32, 8, 14336, 32000, 32768); }},
      {"mixtral-8x7b",
       kMistral,
       [] { return with_experts(llama(32, 4096, 32, 8, 14336, 32000, 32768), 8, 2, 14336); }},
      {"mixtral-8x22b",
       kMistral,
       [] { return with_experts(llama(56, 6144, 48, 8, 16384, 32000, 65536), 8, 2, 16384); }},
      // The same without the longest sequence, and whether the tables are tied.
      {"qwen2.5-0.5b", kQwen, [] { return qwen2(24, 896, 14, 2, 4864, 151936, true); }},
      {"qwen2.5-1.5b", kQwen, [] { return qwen2(28, 1536, 12, 2, 8960, 151936, true); }},
      {"qwen2.5-3b", kQwen, [] { return qwen2(36, 2048, 16, 2, 11008, 151936, true); }},
      {"qwen2.5-7b", kQwen, [] { return qwen2(28, 3584, 28, 4, 18944, 152064, false); }},
      {"qwen2.5-14b", kQwen, [] { return qwen2(48, 5120, 40, 8, 13824, 152064, false); }},
      {"qwen2.5-32b", kQwen, [] { return qwen2(64, 5120, 40, 8, 27648, 152064, false); }},
      {"qwen2.5-72b", kQwen, [] { return qwen2(80, 8192, 64, 8, 29568, 152064, false); }},
      {"qwen3-0.6b", kQwen, [] { return qwen3(28, 1024, 16, 8, 3072, true); }},
      {"qwen3-1.7b", kQwen, [] { return qwen3(28, 2048, 16, 8, 6144, true); }},
      {"qwen3-4b", kQwen, [] { return qwen3(36, 2560, 32, 8, 9728, true); }},
      {"qwen3-8b", kQwen, [] { return qwen3(36, 4096, 32, 8, 12288, false); }},
      {"qwen3-14b", kQwen, [] { return qwen3(40, 5120, 40, 8, 17408, false); }},
      {"qwen3-32b", kQwen, [] { return qwen3(64, 5120, 64, 8, 25600, false); }},
      {"qwen3-30b-a3b",
       kQwen,
       [] { return with_experts(qwen3(48, 2048, 32, 4, 6144, false), 128, 8, 768); }},
      {"qwen3-235b-a22b",
       kQwen,
       [] { return with_experts(qwen3(94, 4096, 64, 4, 12288, false), 128, 8, 1536); }},
      {"deepseek-v3", kDeepseek, [] { return deepseek_v3(0); }},
      {"deepseek-v3-mtp", kDeepseek, [] { return deepseek_v3(1); }},
      {"gpt-oss-20b", kOpenai, [] { return gpt_oss(24, 32); }},
      {"gpt-oss-120b", kOpenai, [] { return gpt_oss(36, 128); }},
      {"llava-7b", kLlava, [] { return llava(llama(32, 4096, 32, 32, 11008, 32064, 4096)); }},
      {"llava-13b", kLlava, [] { return llava(llama(40, 5120, 40, 40, 13824, 32064, 4096)); }},
      {"wan-1.3b", kWan, [] { return wan(30, 1536, 12, 8960); }},
      {"wan-14b", kWan, [] { return wan(40, 5120, 40, 13824); }},
      {"vit-b16", kEngine, [] { return vit("vit-b16"); }},
      {"clip-vit-b32", kEngine, [] { return vit("clip-vit-b32"); }},
      {"clip-vit-l14", kEngine, [] { return vit("clip-vit-l14"); }},
      {"clip-vit-l14-336", kEngine, [] { return vit("clip-vit-l14-336"); }},
      {"world-tiny", kEngine, [] { return world("tiny"); }},
      {"world-demo", kEngine, [] { return world("demo"); }},
      {"world-small", kEngine, [] { return world("small"); }},
      {"world-1b", kEngine, [] { return world("1b"); }},
      {"world-8b", kEngine, [] { return world("8b"); }},
  };
  return all;
}

}  // namespace

const std::vector<std::string>& built_in_shapes() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const Entry& entry : entries()) all.push_back(entry.name);
    return all;
  }();
  return names;
}

std::optional<ModelShape> built_in_shape(const std::string& name) {
  const std::string wanted = lower(name);
  for (const Entry& entry : entries()) {
    if (wanted != entry.name) continue;
    ModelShape model = entry.make();
    model.name = entry.name;
    model.source = std::string("built in: ") + entry.source;
    return model;
  }
  return std::nullopt;
}

}  // namespace vitrine
