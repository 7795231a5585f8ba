// Hugging Face's config.json as a shape: one function a family of configuration keys.
#include <algorithm>
#include <array>

#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "models/vit.h"
#include "plan/engine_shape.h"
#include "plan/model_shape.h"

namespace vitrine {
namespace {

constexpr int64_t kMost = int64_t{1} << 40;

// Null counts as absent in config.json.
Json without_nulls(const Json& config) {
  Json kept = Json::object();
  for (const auto& [key, value] : config.items()) {
    if (!value.is_null()) kept[key] = value;
  }
  return kept;
}

// One configuration with Python's None left out.
class Config {
 public:
  Config(const Json& config, const std::string& source)
      : present_(without_nulls(config)), in_(present_, source), source_(source) {}

  // Sizes that have to be there.
  int64_t need(const char* key) {
    if (!in_.has(key)) refuse(std::string("the key \"") + key + "\" is missing");
    return in_.integer(key, 0, 1, kMost);
  }
  // Whichever of two names there is.
  int64_t need(const char* key, const char* other) {
    return !in_.has(key) && in_.has(other) ? need(other) : need(key);
  }
  int64_t count(const char* key, int64_t fallback) { return in_.integer(key, fallback, 0, kMost); }
  bool flag(const char* key, bool fallback) { return in_.boolean(key, fallback); }
  double number(const char* key, double fallback) { return in_.number(key, fallback); }
  bool has(const char* key) const { return in_.has(key); }
  std::string text(const char* key) { return in_.text(key, ""); }
  const Json& raw(const char* key) { return in_.raw(key); }
  const std::string& source() const { return source_; }
  [[noreturn]] void refuse(const std::string& message) const {
    throw ConfigError(source_ + ": " + message);
  }

 private:
  Json present_;
  JsonReader in_;
  std::string source_;
};

// What Llama's configuration and those after it have in common.
void read_llama(Config& in, ModelShape& m) {
  StackShape& s = m.stack;
  s.layers = in.need("num_hidden_layers");
  s.hidden = in.need("hidden_size");
  s.heads = in.need("num_attention_heads");
  s.kv_heads = in.count("num_key_value_heads", s.heads);
  s.head_dim = in.count("head_dim", s.hidden / s.heads);
  s.ffn = in.need("intermediate_size");
  s.gated = s.rotary = true;
  s.qkv_bias = s.o_bias = in.flag("attention_bias", false);
  s.mlp_bias = in.flag("mlp_bias", false);
  m.vocab = in.need("vocab_size");
  m.max_sequence = in.count("max_position_embeddings", 0);
  m.tied_embeddings = in.flag("tie_word_embeddings", false);
}

void read_mistral(Config& in, ModelShape& m) {
  read_llama(in, m);
  m.stack.window = in.count("sliding_window", 0);
  m.stack.window_layers = m.stack.window > 0 ? m.stack.layers : 0;
}

void read_mixtral(Config& in, ModelShape& m) {
  read_mistral(in, m);
  m.stack.experts = in.need("num_local_experts");
  m.stack.experts_per_token = in.need("num_experts_per_tok");
  m.stack.expert_ffn = m.stack.ffn;
}

// Qwen's configurations carry a window that is off unless use_sliding_window says otherwise; the
// first max_window_layers then have full attention.
void read_qwen_window(Config& in, ModelShape& m) {
  if (!in.flag("use_sliding_window", false)) return;
  m.stack.window = in.count("sliding_window", 0);
  const int64_t full = in.count("max_window_layers", 0);
  if (m.stack.window > 0) m.stack.window_layers = std::max<int64_t>(0, m.stack.layers - full);
  if (m.stack.window_layers == 0) m.stack.window = 0;
}

void read_qwen2(Config& in, ModelShape& m) {
  read_llama(in, m);
  m.stack.qkv_bias = true;
  m.stack.o_bias = false;
  read_qwen_window(in, m);
}

void read_qwen3(Config& in, ModelShape& m) {
  read_llama(in, m);
  m.stack.head_dim = in.count("head_dim", 128);
  m.stack.qk_norm = true;
  read_qwen_window(in, m);
}

// Layers without experts, which have to be the first ones.
int64_t dense_layers(Config& in) {
  if (in.count("decoder_sparse_step", 1) != 1) {
    in.refuse(
        "decoder_sparse_step: only 1 is known (experts in every layer that is not in "
        "mlp_only_layers)");
  }
  const Json& list = in.raw("mlp_only_layers");
  if (list.is_null()) return 0;
  if (!list.is_array()) in.refuse("mlp_only_layers: expected a list [...], got " + list.dump());
  for (size_t i = 0; i < list.size(); ++i) {
    if (list[i] != i) {
      in.refuse("mlp_only_layers: only the first layers (0, 1, ...) can be without experts, got " +
                list.dump());
    }
  }
  return static_cast<int64_t>(list.size());
}

void read_qwen_experts(Config& in, ModelShape& m) {
  StackShape& s = m.stack;
  s.experts = in.need("num_experts");
  s.experts_per_token = in.need("num_experts_per_tok");
  s.expert_ffn = in.need("moe_intermediate_size");
  s.dense_layers = dense_layers(in);
}

void read_qwen2_moe(Config& in, ModelShape& m) {
  read_qwen2(in, m);
  read_qwen_experts(in, m);
  m.stack.shared_ffn = in.need("shared_expert_intermediate_size");
  m.stack.shared_gate = true;
}

void read_qwen3_moe(Config& in, ModelShape& m) {
  read_qwen3(in, m);
  // Qwen3MoeConfig has no default of its own for head_dim.
  m.stack.head_dim = in.count("head_dim", m.stack.hidden / m.stack.heads);
  read_qwen_experts(in, m);
}

void read_deepseek_v3(Config& in, ModelShape& m) {
  read_llama(in, m);
  StackShape& s = m.stack;
  s.kv_heads = s.heads;
  s.q_rank = in.count("q_lora_rank", 0);
  s.kv_rank = in.need("kv_lora_rank");
  s.head_dim = in.need("qk_nope_head_dim");
  s.rope_head_dim = in.need("qk_rope_head_dim");
  s.v_head_dim = in.need("v_head_dim");
  s.experts = in.need("n_routed_experts");
  s.experts_per_token = in.need("num_experts_per_tok");
  s.expert_ffn = in.need("moe_intermediate_size");
  s.shared_ffn = in.count("n_shared_experts", 0) * s.expert_ffn;
  s.dense_layers = in.count("first_k_dense_replace", 0);
  if (in.count("moe_layer_freq", 1) != 1) in.refuse("moe_layer_freq: only 1 is known");
  m.next_token_layers = in.count("num_nextn_predict_layers", 0);
}

void read_gpt_oss(Config& in, ModelShape& m) {
  read_llama(in, m);
  StackShape& s = m.stack;
  s.qkv_bias = s.o_bias = in.flag("attention_bias", true);
  s.experts = in.need("num_local_experts");
  s.experts_per_token = in.need("num_experts_per_tok", "experts_per_token");
  s.expert_ffn = s.ffn;
  s.router_bias = s.expert_bias = s.sinks = true;
  s.window = in.count("sliding_window", 0);
  const Json& types = in.raw("layer_types");
  if (types.is_array()) {
    s.window_layers = std::count(types.begin(), types.end(), Json("sliding_attention"));
  } else {
    s.window_layers = (s.layers + 1) / 2;
  }
  if (s.window == 0) s.window_layers = 0;
}

// The layer of GPT-2 and its like: LayerNorm, biases, two matrices.
void set_gpt(ModelShape& m, int64_t layers, int64_t hidden, int64_t heads, int64_t ffn) {
  StackShape& s = m.stack;
  s.layers = layers;
  s.hidden = hidden;
  s.heads = s.kv_heads = heads;
  s.head_dim = hidden / heads;
  s.ffn = ffn;
  s.layer_norm = s.qkv_bias = s.o_bias = s.mlp_bias = true;
}

void read_gpt2(Config& in, ModelShape& m) {
  const int64_t hidden = in.need("n_embd");
  set_gpt(m, in.need("n_layer"), hidden, in.need("n_head"), in.count("n_inner", 4 * hidden));
  m.vocab = in.need("vocab_size");
  m.positions = m.max_sequence = in.need("n_positions", "n_ctx");
  m.tied_embeddings = in.flag("tie_word_embeddings", true);
  m.stack.dropout = in.number("resid_pdrop", 0.1);
}

void read_neox(Config& in, ModelShape& m) {
  set_gpt(m,
          in.need("num_hidden_layers"),
          in.need("hidden_size"),
          in.need("num_attention_heads"),
          in.need("intermediate_size"));
  m.vocab = in.need("vocab_size");
  m.max_sequence = in.count("max_position_embeddings", 2048);
  m.tied_embeddings = in.flag("tie_word_embeddings", false);
  m.stack.rotary = true;
  m.stack.parallel_block = in.flag("use_parallel_residual", true);
  m.stack.qkv_bias = m.stack.o_bias = in.flag("attention_bias", true);
  m.stack.dropout = in.number("hidden_dropout", 0);
}

void read_bloom(Config& in, ModelShape& m) {
  const int64_t hidden = in.need("hidden_size", "n_embed");
  const int64_t heads = in.need("n_head", "num_attention_heads");
  set_gpt(m, in.need("n_layer", "num_hidden_layers"), hidden, heads, 4 * hidden);
  m.vocab = in.need("vocab_size");
  m.max_sequence = in.count("seq_length", 2048);
  m.tied_embeddings = in.flag("tie_word_embeddings", true);
  m.embedding_norm = true;
  m.stack.dropout = in.number("hidden_dropout", 0);
}

void read_opt(Config& in, ModelShape& m) {
  const int64_t hidden = in.need("hidden_size");
  set_gpt(
      m, in.need("num_hidden_layers"), hidden, in.need("num_attention_heads"), in.need("ffn_dim"));
  if (in.count("word_embed_proj_dim", hidden) != hidden) {
    in.refuse("word_embed_proj_dim other than hidden_size is not known (opt-350m has it)");
  }
  if (!in.flag("do_layer_norm_before", true)) {
    in.refuse("do_layer_norm_before: false is not known (opt-350m has it)");
  }
  m.vocab = in.need("vocab_size");
  m.max_sequence = in.need("max_position_embeddings");
  m.positions = m.max_sequence + 2;  // OPTLearnedPositionalEmbedding's offset
  m.tied_embeddings = in.flag("tie_word_embeddings", true);
  const bool bias = in.flag("enable_bias", true);
  m.stack.qkv_bias = m.stack.o_bias = m.stack.mlp_bias = bias;
  m.stack.dropout = in.number("dropout", 0.1);
}

// CLIPVisionConfig and ViTConfig: the same keys with other defaults. `m` takes the picture's
// fields, `s` the layers.
void read_picture_encoder(Config& in, ModelShape& m, StackShape& s, bool clip) {
  ModelShape layers;
  set_gpt(layers,
          in.need("num_hidden_layers"),
          in.need("hidden_size"),
          in.need("num_attention_heads"),
          in.need("intermediate_size"));
  s = layers.stack;
  s.causal = false;
  s.qkv_bias = in.flag("qkv_bias", true);
  const int64_t side = in.count("image_size", 224), patch = in.count("patch_size", clip ? 32 : 16);
  if (patch < 1 || side < patch) in.refuse("image_size is at least patch_size, and both over 0");
  m.picture_patches = (side / patch) * (side / patch);
  m.patch_values = in.count("num_channels", 3) * patch * patch;
  m.class_token = true;
  m.patch_bias = !clip;
  m.stem_norm = clip;
}

void read_vit(Config& in, ModelShape& m) {
  m.family = "vit";
  read_picture_encoder(in, m, m.stack, false);
  const Json& labels = in.raw("id2label");
  m.classes = labels.is_object() ? static_cast<int64_t>(labels.size()) : in.count("num_labels", 2);
  m.head_bias = true;
  m.max_sequence = m.picture_patches + 1;
}

// The vision encoder with its projection in the classifier's place.
void read_clip_vision(Config& in, ModelShape& m) {
  m.family = "vit";
  read_picture_encoder(in, m, m.stack, true);
  m.classes = in.count("projection_dim", 512);
  m.max_sequence = m.picture_patches + 1;
}

// Of CLIP's two encoders the one of pictures, which does nearly all of the work.
void read_clip(Config& in, ModelShape& m) {
  const Json& vision = in.raw("vision_config");
  if (!vision.is_object()) in.refuse("the section \"vision_config\" is missing");
  Config inner(vision, in.source() + ": vision_config");
  read_clip_vision(inner, m);
  m.classes = in.count("projection_dim", m.classes);
}

void read_llava(Config& in, ModelShape& m);
void read_llava_llama(Config& in, ModelShape& m);

struct Architecture {
  const char* name;        // as in "architectures"
  const char* model_type;  // where there is no such key
  void (*read)(Config&, ModelShape&);
};
constexpr Architecture kArchitectures[] = {
    {"LlamaForCausalLM", "llama", read_llama},
    {"MistralForCausalLM", "mistral", read_mistral},
    {"MixtralForCausalLM", "mixtral", read_mixtral},
    {"Qwen2ForCausalLM", "qwen2", read_qwen2},
    {"Qwen2MoeForCausalLM", "qwen2_moe", read_qwen2_moe},
    {"Qwen3ForCausalLM", "qwen3", read_qwen3},
    {"Qwen3MoeForCausalLM", "qwen3_moe", read_qwen3_moe},
    {"DeepseekV3ForCausalLM", "deepseek_v3", read_deepseek_v3},
    {"GptOssForCausalLM", "gpt_oss", read_gpt_oss},
    {"GPT2LMHeadModel", "gpt2", read_gpt2},
    {"GPTNeoXForCausalLM", "gpt_neox", read_neox},
    {"BloomForCausalLM", "bloom", read_bloom},
    {"OPTForCausalLM", "opt", read_opt},
    {"ViTForImageClassification", "vit", read_vit},
    {"CLIPModel", "clip", read_clip},
    {"CLIPVisionModelWithProjection", "clip_vision_model", read_clip_vision},
    {"LlavaForConditionalGeneration", "llava", read_llava},
    {"LlavaLlamaForCausalLM", "llava_llama", read_llava_llama},
};

// `architectures` decides, `model_type` where it is absent; base classes ("BloomModel") are taken
// by their model_type.
const Architecture& find_architecture(Config& in) {
  const Json& list = in.raw("architectures");
  const std::string name =
      list.is_array() && !list.empty() && list[0].is_string() ? list[0].get<std::string>() : "";
  const std::string type = in.text("model_type");
  std::vector<std::string> known;
  for (const Architecture& each : kArchitectures) {
    known.push_back(each.name);
    if (name == each.name) return each;
  }
  if (name.empty() || name.ends_with("Model") || name.ends_with("LMHeadModel")) {
    for (const Architecture& each : kArchitectures) {
      if (type == each.model_type) return each;
    }
  }
  in.refuse("architecture \"" + (name.empty() ? type : name) +
            "\" is not known; known: " + join(known, ", ") +
            ". For a model of the same shape, give the name and keys of one of these.");
}

// The text part may leave out what its class has as default (LlamaConfig is Llama-7B).
Json with_llama_defaults(const Json& text) {
  Json filled = {{"hidden_size", 4096},
                 {"intermediate_size", 11008},
                 {"num_hidden_layers", 32},
                 {"num_attention_heads", 32},
                 {"vocab_size", 32000},
                 {"max_position_embeddings", 2048}};
  filled.update(text);
  return filled;
}

void read_llava(Config& in, ModelShape& m) {
  const Json& text = in.raw("text_config");
  const Json& vision = in.raw("vision_config");
  if (!text.is_object() || !vision.is_object()) {
    in.refuse("the sections \"text_config\" and \"vision_config\" are both needed");
  }
  const bool llama = !text.contains("model_type") || text["model_type"] == "llama";
  Config inner(llama ? with_llama_defaults(text) : text, in.source() + ": text_config");
  (llama ? kArchitectures[0] : find_architecture(inner)).read(inner, m);
  if (m.family != "decoder") inner.refuse("expected a decoder");
  m.family = "multimodal";
  Config pictures(vision, in.source() + ": vision_config");
  if (pictures.text("model_type") != "clip_vision_model") {
    pictures.refuse("model_type: expected \"clip_vision_model\", got \"" +
                    pictures.text("model_type") + "\"");
  }
  read_picture_encoder(pictures, m, m.tower, true);
}

// The original LLaVA's keys, beside those of its Llama: the encoder by name.
void read_llava_llama(Config& in, ModelShape& m) {
  read_llama(in, m);
  m.family = "multimodal";
  if (const std::string projector = in.text("mm_projector_type"); projector != "mlp2x_gelu") {
    in.refuse("mm_projector_type: expected \"mlp2x_gelu\", got \"" + projector + "\"");
  }
  const std::string tower = in.text("mm_vision_tower");
  const std::pair<const char*, const char*> known[] = {
      {"clip-vit-large-patch14-336", "clip-vit-l14-336"},
      {"clip-vit-large-patch14", "clip-vit-l14"},
      {"clip-vit-base-patch32", "clip-vit-b32"}};
  for (const auto& [published, size] : known) {
    if (!tower.ends_with(published)) continue;
    set_picture_encoder(m, m.tower, vit_size(size));
    return;
  }
  in.refuse("mm_vision_tower \"" + tower +
            "\" is not known; known: openai/clip-vit-large-patch14-336, "
            "openai/clip-vit-large-patch14, openai/clip-vit-base-patch32");
}

}  // namespace

ModelShape model_shape_from_hf(const Json& config, const std::string& source) {
  if (!config.is_object()) {
    throw ConfigError(source + ": expected an object {...}, got " + config.type_name());
  }
  Config in(config, source);
  const Architecture& architecture = find_architecture(in);
  ModelShape model;
  model.name = architecture.model_type;
  model.source = source;
  architecture.read(in, model);
  model.validate();
  return model;
}

}  // namespace vitrine
