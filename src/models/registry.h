// From the `model` section of a run file to a model ready to compile.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "models/names.h"
#include "nn/model.h"
#include "ops/fp8.h"

namespace vitrine {

struct BuiltModel {
  Model model;                  // with description, unit and units_per_sample
  BatchTypes batch;             // of one micro-batch
  std::string family;           // "decoder", "vit", "world_model"
  std::string resolved;         // the section with every field given, as JSON text
  NameTable names;              // Hugging Face names; empty for families without
  int64_t clip_frames = 0;      // frames a sample takes (world_model, vit)
  int64_t sequence_length = 0;  // tokens a sample has (decoder)
};

struct BuildOptions {
  int64_t micro_batch = 1;
  int64_t rollout_steps = 0;          // of a world model; 0 = as the section says
  bool with_hidden = false;           // of a decoder: DecoderConfig::with_hidden
  Fp8Linears fp8 = Fp8Linears::kOff;  // of the body; fp8_linears() of schedule/strategy.h
};

// {"family": "decoder" | "vit" | "world_model", "size": "tiny", fields that override it} or
// {"hf_config": path of a config.json, "sequence_length", "loss_chunk_rows",
// "loss_gradient_in_forward", "init_std"}. A decoder also takes sequence_length (default: the least
// of max_positions and 1024; tiny 256). Throws ConfigError for unknown keys and values at any
// place, IoError for an unreadable path.
BuiltModel build_model(const Json& section, const BuildOptions& options = {});

const std::vector<std::string>& model_families();

}  // namespace vitrine
