// The vision transformer: pre-LayerNorm blocks over the patches of one image.
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "models/names.h"
#include "nn/model.h"
#include "nn/ops.h"
#include "ops/fp8.h"

namespace vitrine {

struct VitConfig {
  enum class Pool { kClassToken, kMean };

  std::string name = "custom";
  int64_t height = 0, width = 0, patch = 0;
  int64_t hidden = 0, layers = 0, heads = 0;
  int64_t ffn = 0;
  int64_t classes = 0;
  Pool pool = Pool::kClassToken;  // kMean has no class token
  nn::GeluForm gelu = nn::GeluForm::kErf;
  double norm_eps = 1e-6;
  bool patch_bias = true;
  bool pre_norm = false;  // LayerNorm before the first block (CLIP)
  double init_std = 0.02;
  Fp8Linears fp8 = Fp8Linears::kOff;  // as DecoderConfig::fp8

  int64_t patches() const { return (height / patch) * (width / patch); }
  int64_t tokens() const { return patches() + (pool == Pool::kClassToken ? 1 : 0); }
  void validate() const;  // throws ConfigError naming the field
};

// "tiny", "vit-b16", and the towers "clip-vit-b32", "clip-vit-l14", "clip-vit-l14-336" with a
// classifier.
VitConfig vit_size(const std::string& size);
const std::vector<std::string>& vit_sizes();
VitConfig vit_from_json(const Json& section, const std::string& where);
Json vit_to_json(const VitConfig& config);

// Batch: frames f32 [B, 1, height, width, 3], labels i32 [B]. Blocks "stem", "body.N", "head"; loss
// cross-entropy over classes (the classifier has no bias). Result "loss" [1].
//
// Parameters (D hidden, F ffn, S tokens, C = 3 patch²):
//   stem    w_patch [D, C], [b_patch,] [class_token [D],] position [S, D], [pre_norm,
//   pre_norm_bias] body.N  attn_norm, attn_norm_bias [D], wqkv [3D, D], bqkv, wo [D, D], bo,
//   mlp_norm, mlp_norm_bias,
//           w_up [F, D], b_up, w_down [D, F], b_down
//   head    norm, norm_bias [D], weight [classes, D]
Model build_vit(const VitConfig& config);
BatchTypes vit_batch(const VitConfig& config, int64_t micro_batch);

// The tensors of a CLIP vision tower ("vision_model.encoder.layers.0.self_attn.q_proj.weight",
// ...). All but head.weight come from there.
NameTable vit_clip_names(const VitConfig& config);

}  // namespace vitrine
