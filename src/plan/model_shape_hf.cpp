// Hugging Face's config.json as a shape: which reader, and those of pictures.
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "models/vit.h"
#include "plan/engine_shape.h"
#include "plan/hf_readers.h"

namespace vitrine {
namespace hf {
namespace {

// Null counts as absent in config.json.
Json without_nulls(const Json& config) {
  Json kept = Json::object();
  for (const auto& [key, value] : config.items()) {
    if (!value.is_null()) kept[key] = value;
  }
  return kept;
}

}  // namespace

HfConfig::HfConfig(const Json& config, const std::string& source)
    : present_(without_nulls(config)), in_(present_, source), source_(source) {}

}  // namespace hf
namespace {

using namespace hf;

// CLIPVisionConfig and ViTConfig: the same keys with other defaults. `m` takes the picture's
// fields, `s` the layers.
void read_picture_encoder(HfConfig& in, ModelShape& m, StackShape& s, bool clip) {
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

void read_vit(HfConfig& in, ModelShape& m) {
  m.family = "vit";
  read_picture_encoder(in, m, m.stack, false);
  const Json& labels = in.raw("id2label");
  m.classes = labels.is_object() ? static_cast<int64_t>(labels.size()) : in.count("num_labels", 2);
  m.head_bias = true;
  m.max_sequence = m.picture_patches + 1;
}

// The vision encoder with its projection in the classifier's place.
void read_clip_vision(HfConfig& in, ModelShape& m) {
  m.family = "vit";
  read_picture_encoder(in, m, m.stack, true);
  m.classes = in.count("projection_dim", 512);
  m.max_sequence = m.picture_patches + 1;
}

// Of CLIP's two encoders the one of pictures, which does nearly all of the work.
void read_clip(HfConfig& in, ModelShape& m) {
  const Json& vision = in.raw("vision_config");
  if (!vision.is_object()) in.refuse("the section \"vision_config\" is missing");
  HfConfig inner(vision, in.source() + ": vision_config");
  read_clip_vision(inner, m);
  m.classes = in.count("projection_dim", m.classes);
}

void read_llava(HfConfig& in, ModelShape& m);
void read_llava_llama(HfConfig& in, ModelShape& m);

struct Architecture {
  const char* name;        // as in "architectures"
  const char* model_type;  // where there is no such key
  void (*read)(HfConfig&, ModelShape&);
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
const Architecture& find_architecture(HfConfig& in) {
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

void read_llava(HfConfig& in, ModelShape& m) {
  const Json& text = in.raw("text_config");
  const Json& vision = in.raw("vision_config");
  if (!text.is_object() || !vision.is_object()) {
    in.refuse("the sections \"text_config\" and \"vision_config\" are both needed");
  }
  const bool llama = !text.contains("model_type") || text["model_type"] == "llama";
  HfConfig inner(llama ? with_llama_defaults(text) : text, in.source() + ": text_config");
  (llama ? kArchitectures[0] : find_architecture(inner)).read(inner, m);
  if (m.family != "decoder") inner.refuse("expected a decoder");
  m.family = "multimodal";
  HfConfig pictures(vision, in.source() + ": vision_config");
  if (pictures.text("model_type") != "clip_vision_model") {
    pictures.refuse("model_type: expected \"clip_vision_model\", got \"" +
                    pictures.text("model_type") + "\"");
  }
  read_picture_encoder(pictures, m, m.tower, true);
}

// The original LLaVA's keys, beside those of its Llama: the encoder by name.
void read_llava_llama(HfConfig& in, ModelShape& m) {
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
  HfConfig in(config, source);
  const Architecture& architecture = find_architecture(in);
  ModelShape model;
  model.name = architecture.model_type;
  model.source = source;
  architecture.read(in, model);
  model.validate();
  return model;
}

}  // namespace vitrine
