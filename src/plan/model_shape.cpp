// Shapes by name or from a file, and what a shape must hold to.
#include "plan/model_shape.h"

#include <filesystem>

#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "plan/built_in_shapes.h"
#include "plan/engine_shape.h"

namespace vitrine {
namespace {

struct Field {
  const char* name;
  int64_t value;
};

[[noreturn]] void refuse(const ModelShape& m, const std::string& message) {
  throw ConfigError((m.source.empty() ? m.name : m.source) + ": " + message);
}

void check_least(const ModelShape& m,
                 const std::string& where,
                 const std::vector<Field>& fields,
                 int64_t least) {
  for (const auto& [name, value] : fields) {
    if (value >= least) continue;
    refuse(m,
           where + format("%s is at least %lld, got %lld",
                          name,
                          static_cast<long long>(least),
                          static_cast<long long>(value)));
  }
}

void check_experts(const ModelShape& m, const StackShape& s, const std::string& where) {
  if (s.experts == 0) return;
  check_least(
      m, where, {{"experts_per_token", s.experts_per_token}, {"expert_ffn", s.expert_ffn}}, 1);
  if (s.experts_per_token > s.experts) {
    refuse(m,
           where + format("experts_per_token is at most experts (%lld), got %lld",
                          static_cast<long long>(s.experts),
                          static_cast<long long>(s.experts_per_token)));
  }
  if (s.dense_layers > s.layers) {
    refuse(m,
           where + format("dense_layers is at most layers (%lld), got %lld",
                          static_cast<long long>(s.layers),
                          static_cast<long long>(s.dense_layers)));
  }
}

void check_stack(const ModelShape& m, const StackShape& s, const std::string& where) {
  check_least(m,
              where,
              {{"layers", s.layers},
               {"hidden", s.hidden},
               {"heads", s.heads},
               {"kv_heads", s.kv_heads},
               {"head_dim", s.head_dim},
               {"attentions", s.attentions}},
              1);
  check_least(m,
              where,
              {{"ffn", s.ffn},
               {"experts", s.experts},
               {"shared_ffn", s.shared_ffn},
               {"dense_layers", s.dense_layers},
               {"window", s.window},
               {"window_layers", s.window_layers},
               {"context_tokens", s.context_tokens},
               {"q_rank", s.q_rank},
               {"kv_rank", s.kv_rank}},
              0);
  // A mixture without dense layers never uses `ffn`.
  if (s.experts == 0 || s.dense_layers > 0) check_least(m, where, {{"ffn", s.ffn}}, 1);
  if (s.heads % s.kv_heads != 0) {
    refuse(m,
           where + format("heads (%lld) must be a multiple of kv_heads (%lld)",
                          static_cast<long long>(s.heads),
                          static_cast<long long>(s.kv_heads)));
  }
  check_experts(m, s, where);
  if (s.kv_rank > 0) {
    check_least(m, where, {{"rope_head_dim", s.rope_head_dim}, {"v_head_dim", s.v_head_dim}}, 1);
  }
  if (s.window_layers > s.layers || (s.window_layers > 0 && s.window == 0)) {
    refuse(m, where + "window_layers is at most layers, and 0 without a window");
  }
  if (s.cross_attention) check_least(m, where, {{"context_tokens", s.context_tokens}}, 1);
  if (!(s.dropout >= 0 && s.dropout < 1)) refuse(m, where + "dropout is in [0, 1)");
}

bool looks_like_path(const std::string& text) {
  return text.find('/') != std::string::npos || text.ends_with(".json") ||
         std::filesystem::exists(text);
}

ModelShape from_file(std::string path) {
  if (std::filesystem::is_directory(path)) path += "/config.json";
  const Json file = read_json_file(path);
  if (!file.is_object()) {
    throw ConfigError(path + ": expected an object {...}, got " + file.type_name());
  }
  if (file.contains("model_type") || file.contains("architectures")) {
    return model_shape_from_hf(file, path);
  }
  const bool is_run_file = file.contains("model");
  if (!is_run_file && !file.contains("family") && !file.contains("hf_config")) {
    throw ConfigError(
        path +
        ": no model in it: expected \"model_type\" or \"architectures\" (Hugging "
        "Face's config.json), \"model\" (a run file) or \"family\" (a model section)");
  }
  ModelShape model = shape_of_engine(is_run_file ? file["model"] : file);
  model.source = path;
  return model;
}

}  // namespace

void ModelShape::validate() const {
  static const std::vector<std::string> families = {
      "decoder", "vit", "world_model", "multimodal", "diffusion"};
  bool known = false;
  for (const std::string& each : families) known = known || each == family;
  if (!known)
    refuse(*this, "family is one of " + join(families, ", ") + ", got \"" + family + "\"");
  check_stack(*this, stack, "");
  check_least(*this,
              "",
              {{"positions", positions},
               {"max_sequence", max_sequence},
               {"next_token_layers", next_token_layers}},
              0);
  if (family == "decoder" || family == "multimodal") check_least(*this, "", {{"vocab", vocab}}, 1);
  if (family == "vit" || family == "multimodal") {
    check_least(
        *this, "", {{"picture_patches", picture_patches}, {"patch_values", patch_values}}, 1);
  }
  if (family == "vit") check_least(*this, "", {{"classes", classes}}, 1);
  if (family == "multimodal") {
    check_least(*this, "", {{"pictures_per_sample", pictures_per_sample}}, 0);
    check_stack(*this, tower, "tower.");
  }
  if (family == "world_model") {
    check_least(*this,
                "",
                {{"frames", frames},
                 {"patches", patches},
                 {"actions", actions},
                 {"patch_values", patch_values}},
                1);
  }
  if (family == "diffusion") {
    check_least(
        *this,
        "",
        {{"patch_values", patch_values}, {"text_width", text_width}, {"time_width", time_width}},
        1);
  }
}

ModelShape model_shape(const std::string& name_or_path) {
  if (name_or_path.empty()) throw ConfigError("no model is named; give a built-in name or a path");
  ModelShape model;
  if (const auto built_in = built_in_shape(name_or_path)) {
    model = *built_in;
  } else if (looks_like_path(name_or_path)) {
    model = from_file(name_or_path);
  } else {
    const std::string near = nearest_name(lower(name_or_path), built_in_shapes());
    throw ConfigError("no model is called \"" + name_or_path + "\"" +
                      (near.empty() ? "" : "; did you mean \"" + near + "\"?") +
                      " Built in: " + join(built_in_shapes(), ", ") +
                      ". Or give the path of a Hugging Face config.json or of a run file.");
  }
  model.validate();
  return model;
}

}  // namespace vitrine
