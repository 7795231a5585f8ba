// A model as the planner sees it: the numbers that fix every operation's shape, whatever file they
// came from.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/json_fwd.h"

namespace vitrine {

// One stack of transformer layers of equal width. The sequence length is the job's, but for a tower
// of pictures, whose tokens are fixed by the picture.
struct StackShape {
  int64_t layers = 0, hidden = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t ffn = 0;          // of a dense layer; of gate and of up where gated
  bool gated = false;       // SwiGLU; else two matrices and GELU (or ReLU)
  bool layer_norm = false;  // LayerNorm with bias; else RMSNorm
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool qk_norm = false;
  bool rotary = false;
  bool causal = true;
  bool parallel_block = false;   // attention and MLP side by side on the layer's input (GPT-NeoX)
  bool cross_attention = false;  // every layer also attends to `context_tokens` (video diffusion)
  int64_t context_tokens = 0;
  double dropout = 0;  // > 0: masks are kept for the backward
  // Mixture of experts; experts = 0: none.
  int64_t experts = 0, experts_per_token = 0, expert_ffn = 0;
  int64_t shared_ffn = 0;    // of experts that every token visits, together
  int64_t dense_layers = 0;  // the first layers that have no experts
  int64_t window = 0;        // sliding-window attention in `window_layers` of the layers
  int64_t window_layers = 0;
  // Multi-head latent attention (DeepSeek); kv_rank = 0: none. head_dim is then the part of a query
  // or key that is not rotated (qk_nope_head_dim).
  int64_t q_rank = 0, kv_rank = 0, rope_head_dim = 0, v_head_dim = 0;
  int64_t attentions = 1;      // of a layer: 2 in world models (over space, then over time)
  bool shared_norm = false;    // of a parallel block: attention and MLP read one norm (GPT-J)
  bool wide_qk_norm = false;   // with qk_norm: over all heads together, not head by head (Wan)
  bool adaptive_norm = false;  // norms have no weights; six vectors a layer shift and scale (DiT)
  bool router_bias = false, expert_bias = false;
  bool shared_gate =
      false;           // the shared expert's output times a sigmoid of one product (Qwen2-MoE)
  bool sinks = false;  // one logit a head that takes attention from all tokens (gpt-oss)
};

struct ModelShape {
  // What `family` is: "decoder" (tokens in, tokens out), "vit" (a picture in, a class out),
  // "world_model" (frames x patches, space-time attention), "multimodal" (a tower of pictures whose
  // tokens enter a decoder), "diffusion" (video latents in and out).
  std::string name, family = "decoder";
  StackShape stack;  // the decoder, or the only stack
  int64_t vocab = 0;
  int64_t positions = 0;     // rows of a learned table of positions; 0: none
  int64_t max_sequence = 0;  // longest sequence that the model is made for; 0: not known
  bool tied_embeddings = false;
  int64_t next_token_layers = 0;  // multi-token prediction layers after the last (DeepSeek-V3)

  StackShape tower;  // multimodal: the vision encoder (layers = 0: none)
  int64_t picture_patches = 0, patch_values = 0;  // tokens a picture, inputs of a patch
  int64_t pictures_per_sample = 1;
  bool tower_frozen = false;

  int64_t classes = 0;                           // vit
  int64_t frames = 0, patches = 0, actions = 0;  // world model: window T, patches a frame S

  // For a model that the engine runs: its `model` section (JSON text), from which the very blocks
  // are built. Empty for all others.
  std::string engine_section;

  std::string source;  // "config.json", "built in: ...", for messages

  bool embedding_norm = false;  // LayerNorm of the embeddings (BLOOM)
  // Stem and head of a picture encoder: of a vit, of a tower.
  bool patch_bias = false, class_token = false, head_bias = false;
  bool stem_norm = false;  // LayerNorm before the first layer (CLIP)
  // World model: width of the learned frame encoder (0: patches go in as they are); the predictor
  // has a gain and an offset a value.
  int64_t encoder_width = 0;
  bool gated_head = false;
  // Diffusion: width of the text encoder's states and of the table of time steps.
  int64_t text_width = 0, time_width = 0;

  // Trainable elements, exactly: by the same shapes that the costs are made from.
  int64_t parameters() const;
  // Of those, what one token passes through (experts_per_token of the experts).
  int64_t active_parameters() const;
  // Throws ConfigError naming the field, what is expected and what came.
  void validate() const;
};

// A built-in name ("gpt-175b", "llama3-8b", "qwen2.5-7b", "world-1b", ...), a path of a Hugging
// Face config.json, of a Vitrine run file or model section. Throws ConfigError: unknown names list
// the nearest and all known ones, unknown architectures list the known ones.
ModelShape model_shape(const std::string& name_or_path);
ModelShape model_shape_from_hf(const Json& config, const std::string& source);
const std::vector<std::string>& built_in_shapes();

}  // namespace vitrine
