// The decoder of the Llama and Qwen families: RMSNorm, rotary grouped-query attention, SwiGLU.
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "models/names.h"
#include "nn/model.h"
#include "ops/fp8.h"

namespace vitrine {

struct DecoderConfig {
  std::string name = "custom";
  int64_t vocab = 0, hidden = 0, layers = 0;
  int64_t heads = 0, kv_heads = 0, head_dim = 0;
  int64_t ffn = 0;            // width of gate and of up
  int64_t max_positions = 0;  // longest sequence
  double rope_theta = 10000, rms_eps = 1e-6;
  bool qkv_bias = false, o_bias = false, mlp_bias = false;
  bool qk_norm = false;  // RMSNorm of each query and key head, before the rotation
  bool tied_embeddings = false;
  // Standard deviation of starting weights; wo and w_down get it divided by sqrt(2 layers).
  double init_std = 0.02;
  int64_t loss_chunk_rows = 0;  // rows of logits alive at once in the loss; 0 = all
  // Where the loss is in chunks, its gradients are made in forward, from each chunk while it is
  // there: no logits twice, for an f32 gradient of the head kept until backward.
  bool loss_gradient_in_forward = true;
  // Not part of a run file: the head also gives its normed input, result "hidden" [B, T, D], from
  // which whoever samples computes the logits of single positions.
  bool with_hidden = false;
  // Not part of a run file's model section either: the body's linears read 8-bit operands.
  Fp8Linears fp8 = Fp8Linears::kOff;
  // Throws ConfigError naming the field.
  void validate() const;
};

// "tiny", "qwen2.5-0.5b", "qwen2.5-1.5b", "qwen2.5-7b", "llama3-8b". Throws ConfigError otherwise.
DecoderConfig decoder_size(const std::string& size);
const std::vector<std::string>& decoder_sizes();

// A Hugging Face config.json of LlamaForCausalLM, MistralForCausalLM, Qwen2ForCausalLM or
// Qwen3ForCausalLM. Throws ConfigError for other architectures and for features that would change
// the arithmetic and are not there (scaled rotary positions, sliding windows, quantised weights).
DecoderConfig decoder_from_hf_config(const Json& config, const std::string& source);

// {"size": name, any field above}: fields given override the size's. Unknown keys throw.
DecoderConfig decoder_from_json(const Json& section, const std::string& where);
Json decoder_to_json(const DecoderConfig& config);

// Blocks "embed", "body.0" ... "body.<layers - 1>", "head"; batch tokens and targets i32 [B, T],
// where target t is the token after token t and negative targets do not count. Result "loss" [1].
//
// Parameters (D hidden, H heads, G kv_heads, d head_dim, F ffn):
//   embed   table [V, D]
//   body.N  attn_norm [D], wqkv [(H + 2G) d, D] (rows of q, then k, then v), bqkv, wo [D, H d], bo,
//           q_norm [d], k_norm [d], mlp_norm [D], w_gate_up [2F, D], b_gate_up, w_down [D, F],
//           b_down
//   head    norm [D], weight [V, D] (tied: embed.table)
Model build_decoder(const DecoderConfig& config, int64_t sequence_length);
BatchTypes decoder_batch(int64_t micro_batch, int64_t sequence_length);

// Names of Hugging Face checkpoints ("model.layers.0.self_attn.q_proj.weight"). Tied weights appear
// once, as model.embed_tokens.weight.
NameTable decoder_hf_names(const DecoderConfig& config);

}  // namespace vitrine
