// From the engine's configurations to shapes.
#include "plan/engine_shape.h"

#include "core/json.h"
#include "models/decoder.h"
#include "models/registry.h"
#include "models/world_model.h"

namespace vitrine {
namespace {

void set_decoder(ModelShape& m, const DecoderConfig& c) {
  StackShape& s = m.stack;
  s.layers = c.layers;
  s.hidden = c.hidden;
  s.heads = c.heads;
  s.kv_heads = c.kv_heads;
  s.head_dim = c.head_dim;
  s.ffn = c.ffn;
  s.gated = s.rotary = true;
  s.qkv_bias = c.qkv_bias;
  s.o_bias = c.o_bias;
  s.mlp_bias = c.mlp_bias;
  s.qk_norm = c.qk_norm;
  m.name = c.name;
  m.vocab = c.vocab;
  m.max_sequence = c.max_positions;
  m.tied_embeddings = c.tied_embeddings;
}

void set_world_model(ModelShape& m, const WorldModelConfig& c) {
  StackShape& s = m.stack;
  s.layers = c.layers;
  s.hidden = c.hidden;
  s.heads = s.kv_heads = c.heads;
  s.head_dim = c.head_dim;
  s.ffn = c.ffn;
  s.gated = true;
  s.qk_norm = c.qk_norm;
  s.rotary = c.positions == WorldModelConfig::Positions::kRope;
  s.attentions = 2;
  m.name = c.name;
  m.frames = c.window;
  m.patches = c.patches();
  m.actions = c.action_count;
  m.patch_values = c.patch_values();
  m.positions = s.rotary ? 0 : c.window;
  m.max_sequence = c.window * c.patches();
  if (c.encoder == WorldModelConfig::Encoder::kLinear) {
    m.encoder_width = c.encoder_width > 0 ? c.encoder_width : c.hidden;
  }
  m.gated_head = c.head == WorldModelConfig::Head::kGatedSigmoid;
}

}  // namespace

void set_picture_encoder(ModelShape& m, StackShape& s, const VitConfig& c) {
  s.layers = c.layers;
  s.hidden = c.hidden;
  s.heads = s.kv_heads = c.heads;
  s.head_dim = c.hidden / c.heads;
  s.ffn = c.ffn;
  s.layer_norm = s.qkv_bias = s.o_bias = s.mlp_bias = true;
  s.causal = false;
  m.picture_patches = c.patches();
  m.patch_values = 3 * c.patch * c.patch;
  m.patch_bias = c.patch_bias;
  m.class_token = c.pool == VitConfig::Pool::kClassToken;
  m.stem_norm = c.pre_norm;
}

ModelShape shape_of_engine(const Json& section) {
  const BuiltModel built = build_model(section);
  const Json resolved = parse_json(built.resolved, "model");
  ModelShape m;
  m.family = built.family;
  m.engine_section = built.resolved;
  m.source = "a model section";
  if (built.family == "decoder") {
    set_decoder(m, decoder_from_json(resolved, "model"));
  } else if (built.family == "vit") {
    const VitConfig config = vit_from_json(resolved, "model");
    set_picture_encoder(m, m.stack, config);
    m.name = config.name;
    m.classes = config.classes;
    m.max_sequence = config.tokens();
  } else {
    set_world_model(m, world_model_from_json(resolved, "model"));
  }
  return m;
}

}  // namespace vitrine
