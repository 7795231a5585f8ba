// Families of models by name.
#include "models/registry.h"

#include <algorithm>

#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "models/decoder.h"
#include "models/vit.h"
#include "models/world_model.h"

namespace vitrine {
namespace {

constexpr char kWhere[] = "model";

void finish_decoder(BuiltModel& built,
                    DecoderConfig config,
                    int64_t sequence_length,
                    const BuildOptions& options) {
  config.with_hidden = options.with_hidden;
  config.fp8 = options.fp8;
  built.family = "decoder";
  built.sequence_length =
      sequence_length > 0 ? sequence_length : std::min<int64_t>(config.max_positions, 1024);
  built.model = build_decoder(config, built.sequence_length);
  built.batch = decoder_batch(options.micro_batch, built.sequence_length);
  built.names = decoder_hf_names(config);
  Json resolved = decoder_to_json(config);
  resolved["sequence_length"] = built.sequence_length;
  built.resolved = resolved.dump();
}

int64_t sequence_length_of(const Json& section) {
  // The family's own reader finds unknown keys; here only this one is read.
  return JsonReader(section, kWhere).integer("sequence_length", 0, 0, int64_t{1} << 31);
}

BuiltModel from_hf(const Json& section, const BuildOptions& options) {
  JsonReader in(section, kWhere);
  const std::string path = in.text("hf_config", "");
  in.choice("family", "decoder", {"decoder"});
  DecoderConfig config = decoder_from_hf_config(read_json_file(path), path);
  const int64_t length = in.integer("sequence_length", 0, 0, int64_t{1} << 31);
  config.loss_chunk_rows = in.integer("loss_chunk_rows", config.loss_chunk_rows);
  config.loss_gradient_in_forward =
      in.boolean("loss_gradient_in_forward", config.loss_gradient_in_forward);
  config.init_std = in.number("init_std", config.init_std);
  in.finish();
  BuiltModel built;
  finish_decoder(built, config, length, options);
  return built;
}

}  // namespace

const std::vector<std::string>& model_families() {
  static const std::vector<std::string> families = {"decoder", "vit", "world_model"};
  return families;
}

BuiltModel build_model(const Json& section, const BuildOptions& options) {
  JsonReader in(section, kWhere);
  if (options.micro_batch < 1) {
    throw ConfigError("the micro-batch is at least 1, got " + std::to_string(options.micro_batch));
  }
  if (in.has("hf_config")) return from_hf(section, options);
  if (!in.has("family")) {
    throw ConfigError("model.family is missing; known: " + join(model_families(), ", ") +
                      ". Or give model.hf_config, the path of a Hugging Face config.json.");
  }
  const std::string family = in.choice("family", "", model_families());
  BuiltModel built;
  built.family = family;
  if (family == "decoder") {
    finish_decoder(built, decoder_from_json(section, kWhere), sequence_length_of(section), options);
  } else if (family == "vit") {
    VitConfig config = vit_from_json(section, kWhere);
    config.fp8 = options.fp8;
    built.model = build_vit(config);
    built.batch = vit_batch(config, options.micro_batch);
    built.clip_frames = 1;
    if (config.pre_norm) built.names = vit_clip_names(config);
    built.resolved = vit_to_json(config).dump();
  } else {
    WorldModelConfig config = world_model_from_json(section, kWhere);
    config.fp8 = options.fp8;
    if (options.rollout_steps > 0) config.rollout_steps = options.rollout_steps;
    built.model = build_world_model(config);
    built.batch = world_model_batch(config, options.micro_batch);
    built.clip_frames = config.clip_frames();
    built.resolved = world_model_to_json(config).dump();
  }
  return built;
}

}  // namespace vitrine
