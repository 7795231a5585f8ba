// Decoder configurations: built-in sizes, our JSON, Hugging Face's config.json.
#include <algorithm>

#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "models/decoder.h"

namespace vitrine {
namespace {

// 1.2 GB of bf16 logits for a vocabulary of 152k: the head's f32 gradient, which each chunk reads
// and writes (0.9 ms at width 1536 on H200), is then small against the chunk's products.
constexpr int64_t kChunkRows = 4096;

DecoderConfig make(const char* name,
                   int64_t vocab,
                   int64_t hidden,
                   int64_t layers,
                   int64_t heads,
                   int64_t kv_heads,
                   int64_t ffn,
                   int64_t max_positions) {
  DecoderConfig c;
  c.name = name;
  c.vocab = vocab;
  c.hidden = hidden;
  c.layers = layers;
  c.heads = heads;
  c.kv_heads = kv_heads;
  c.head_dim = hidden / heads;
  c.ffn = ffn;
  c.max_positions = max_positions;
  return c;
}

DecoderConfig qwen2_5(DecoderConfig c, bool tied) {
  c.rope_theta = 1e6;
  c.qkv_bias = true;
  c.tied_embeddings = tied;
  c.loss_chunk_rows = kChunkRows;
  return c;
}

std::vector<DecoderConfig> make_sizes() {
  std::vector<DecoderConfig> sizes;
  sizes.push_back(make("tiny", 8192, 256, 4, 4, 4, 688, 256));
  sizes.back().tied_embeddings = true;
  sizes.push_back(qwen2_5(make("qwen2.5-0.5b", 151936, 896, 24, 14, 2, 4864, 32768), true));
  sizes.push_back(qwen2_5(make("qwen2.5-1.5b", 151936, 1536, 28, 12, 2, 8960, 32768), true));
  sizes.push_back(qwen2_5(make("qwen2.5-7b", 152064, 3584, 28, 28, 4, 18944, 32768), false));
  sizes.push_back(make("llama3-8b", 128256, 4096, 32, 32, 8, 14336, 8192));
  sizes.back().rope_theta = 500000;
  sizes.back().rms_eps = 1e-5;
  sizes.back().loss_chunk_rows = kChunkRows;
  return sizes;
}

const std::vector<DecoderConfig>& all_sizes() {
  static const std::vector<DecoderConfig> sizes = make_sizes();
  return sizes;
}

// What a family fixes when its config.json is silent (the defaults of its configuration class).
struct Family {
  const char* architecture;
  const char* model_type;
  bool qkv_bias, qk_norm;
  int64_t default_head_dim;        // 0 = hidden / heads
  int64_t default_sliding_window;  // 0 = none; Mistral's class has 4096
};
constexpr Family kFamilies[] = {
    {"LlamaForCausalLM", "llama", false, false, 0, 0},
    {"MistralForCausalLM", "mistral", false, false, 0, 4096},
    {"Qwen2ForCausalLM", "qwen2", true, false, 0, 0},
    {"Qwen3ForCausalLM", "qwen3", false, true, 128, 0},
};

const Family& find_family(const Json& config, const std::string& source) {
  std::string architecture, model_type;
  if (const auto it = config.find("architectures");
      it != config.end() && it->is_array() && !it->empty() && it->front().is_string()) {
    architecture = it->front().get<std::string>();
  }
  if (const auto it = config.find("model_type"); it != config.end() && it->is_string()) {
    model_type = it->get<std::string>();
  }
  std::vector<std::string> known;
  for (const Family& family : kFamilies) {
    if (architecture.empty() ? model_type == family.model_type
                             : architecture == family.architecture) {
      return family;
    }
    known.push_back(family.architecture);
  }
  throw ConfigError(source + ": architecture \"" +
                    (architecture.empty() ? model_type : architecture) +
                    "\" is not known; known: " + join(known, ", ") +
                    ". For a model of the same shape, give the fields under \"model\" instead.");
}

// Null counts as absent in config.json.
Json without_nulls(const Json& config) {
  Json kept = Json::object();
  for (const auto& [key, value] : config.items()) {
    if (!value.is_null()) kept[key] = value;
  }
  return kept;
}

double rope_theta_of(const Json& config, JsonReader& in, const std::string& source) {
  double theta = in.number("rope_theta", 10000);
  // Older files scale in `rope_scaling`; newer ones have everything in `rope_parameters`.
  for (const char* key : {"rope_scaling", "rope_parameters"}) {
    const auto it = config.find(key);
    if (it == config.end() || !it->is_object()) continue;
    const std::string type = it->value("rope_type", it->value("type", std::string("default")));
    if (type != "default") {
      throw ConfigError(
          source + ": " + key + " of type \"" + type +
          "\" is not supported: positions would be rotated by other angles. Set it to "
          "null to train without it, on sequences of the length the base model knew.");
    }
    theta = it->value("rope_theta", theta);
  }
  if (in.number("partial_rotary_factor", 1) != 1) {
    throw ConfigError(source + ": partial_rotary_factor other than 1 is not supported");
  }
  return theta;
}

void refuse_sliding_window(const Json& config,
                           JsonReader& in,
                           const Family& family,
                           int64_t max_positions,
                           const std::string& source) {
  // Qwen carries a window that is off unless use_sliding_window says otherwise.
  const bool qwen = std::string(family.model_type).starts_with("qwen");
  if (qwen && !in.boolean("use_sliding_window", false)) return;
  int64_t window = in.integer("sliding_window", 0);
  if (!config.contains("sliding_window")) window = family.default_sliding_window;
  if (window > 0 && window < max_positions) {
    throw ConfigError(
        source +
        format(": sliding_window %lld is in use and not supported. Up to %lld positions the "
               "full attention is the same: set sliding_window to null and "
               "max_position_embeddings to %lld.",
               static_cast<long long>(window),
               static_cast<long long>(window),
               static_cast<long long>(window)));
  }
}

}  // namespace

const std::vector<std::string>& decoder_sizes() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    for (const DecoderConfig& size : all_sizes()) all.push_back(size.name);
    return all;
  }();
  return names;
}

DecoderConfig decoder_size(const std::string& size) {
  for (const DecoderConfig& known : all_sizes()) {
    if (known.name == size) return known;
  }
  const std::string near = nearest_name(size, decoder_sizes());
  throw ConfigError("model.size: no decoder is called \"" + size +
                    "\"; known: " + join(decoder_sizes(), ", ") +
                    (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

DecoderConfig decoder_from_hf_config(const Json& config, const std::string& source) {
  if (!config.is_object()) throw ConfigError(source + ": expected an object {...}");
  const Family& family = find_family(config, source);
  const Json present = without_nulls(config);
  JsonReader in(present, source);
  DecoderConfig c;
  c.name = family.model_type;
  for (const char* required : {"vocab_size",
                               "hidden_size",
                               "num_hidden_layers",
                               "num_attention_heads",
                               "intermediate_size"}) {
    if (!in.has(required))
      throw ConfigError(source + ": the key \"" + std::string(required) + "\" is missing");
  }
  c.vocab = in.integer("vocab_size", 0);
  c.hidden = in.integer("hidden_size", 0);
  c.layers = in.integer("num_hidden_layers", 0);
  c.heads = in.integer("num_attention_heads", 0, 1, 1 << 20);
  c.kv_heads = in.integer("num_key_value_heads", c.heads);
  c.head_dim = in.integer("head_dim",
                          family.default_head_dim ? family.default_head_dim : c.hidden / c.heads);
  c.ffn = in.integer("intermediate_size", 0);
  c.max_positions = in.integer("max_position_embeddings", 2048);
  c.rms_eps = in.number("rms_norm_eps", 1e-6);
  c.tied_embeddings = in.boolean("tie_word_embeddings", false);
  c.init_std = in.number("initializer_range", 0.02);
  const bool attention_bias = in.boolean("attention_bias", false);
  c.qkv_bias = family.qkv_bias || attention_bias;
  c.o_bias = attention_bias && !family.qkv_bias;
  c.mlp_bias = in.boolean("mlp_bias", false);
  c.qk_norm = family.qk_norm;
  c.rope_theta = rope_theta_of(present, in, source);
  refuse_sliding_window(config, in, family, c.max_positions, source);
  if (const std::string act = in.text("hidden_act", "silu"); act != "silu") {
    throw ConfigError(source + ": hidden_act \"" + act + "\" is not supported, only \"silu\"");
  }
  if (in.has("quantization_config")) {
    throw ConfigError(source +
                      ": quantization_config is not supported; use the unquantised checkpoint");
  }
  if (in.number("attention_dropout", 0) != 0) {
    throw ConfigError(source + ": attention_dropout other than 0 is not supported; set it to 0");
  }
  // Logits of a chunk take rows x vocabulary: bound them for the large vocabularies of these
  // models.
  if (c.vocab >= 32768) c.loss_chunk_rows = kChunkRows;
  try {
    c.validate();
  } catch (const ConfigError& error) {
    throw ConfigError(source + ": " + error.what());
  }
  return c;
}

DecoderConfig decoder_from_json(const Json& section, const std::string& where) {
  JsonReader in(section, where);
  in.raw("family");
  DecoderConfig c = in.has("size") ? decoder_size(in.text("size", "")) : DecoderConfig{};
  in.text("size", "");
  c.name = in.text("name", c.name);
  c.vocab = in.integer("vocab", c.vocab);
  const bool reshaped = in.has("hidden") || in.has("heads");
  c.hidden = in.integer("hidden", c.hidden);
  c.layers = in.integer("layers", c.layers);
  c.heads = in.integer("heads", c.heads);
  c.kv_heads = in.integer("kv_heads", reshaped ? c.heads : c.kv_heads);
  c.head_dim = in.integer("head_dim", reshaped && c.heads > 0 ? c.hidden / c.heads : c.head_dim);
  // SwiGLU at 8/3 has as many parameters as a two-matrix MLP at ratio 4.
  c.ffn = in.integer("ffn", in.has("hidden") ? (c.hidden * 8 / 3 + 15) / 16 * 16 : c.ffn);
  c.max_positions = in.integer("max_positions", c.max_positions > 0 ? c.max_positions : 2048);
  c.rope_theta = in.number("rope_theta", c.rope_theta);
  c.rms_eps = in.number("rms_eps", c.rms_eps);
  c.qkv_bias = in.boolean("qkv_bias", c.qkv_bias);
  c.o_bias = in.boolean("o_bias", c.o_bias);
  c.mlp_bias = in.boolean("mlp_bias", c.mlp_bias);
  c.qk_norm = in.boolean("qk_norm", c.qk_norm);
  c.tied_embeddings = in.boolean("tied_embeddings", c.tied_embeddings);
  c.init_std = in.number("init_std", c.init_std);
  c.loss_chunk_rows = in.integer("loss_chunk_rows", c.loss_chunk_rows);
  c.loss_gradient_in_forward = in.boolean("loss_gradient_in_forward", c.loss_gradient_in_forward);
  in.raw("sequence_length");
  in.finish();
  c.validate();
  return c;
}

Json decoder_to_json(const DecoderConfig& c) {
  return Json{{"family", "decoder"},
              {"name", c.name},
              {"vocab", c.vocab},
              {"hidden", c.hidden},
              {"layers", c.layers},
              {"heads", c.heads},
              {"kv_heads", c.kv_heads},
              {"head_dim", c.head_dim},
              {"ffn", c.ffn},
              {"max_positions", c.max_positions},
              {"rope_theta", c.rope_theta},
              {"rms_eps", c.rms_eps},
              {"qkv_bias", c.qkv_bias},
              {"o_bias", c.o_bias},
              {"mlp_bias", c.mlp_bias},
              {"qk_norm", c.qk_norm},
              {"tied_embeddings", c.tied_embeddings},
              {"init_std", c.init_std},
              {"loss_chunk_rows", c.loss_chunk_rows},
              {"loss_gradient_in_forward", c.loss_gradient_in_forward}};
}

}  // namespace vitrine
