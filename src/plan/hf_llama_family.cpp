// Configurations of Llama and those that keep its keys.
#include <algorithm>
#include <array>

#include "core/format.h"
#include "plan/hf_readers.h"

namespace vitrine::hf {
namespace {

// Qwen's configurations carry a window that is off unless use_sliding_window says otherwise; the
// first max_window_layers then have full attention.
void read_qwen_window(HfConfig& in, ModelShape& m) {
  if (!in.flag("use_sliding_window", false)) return;
  m.stack.window = in.count("sliding_window", 0);
  const int64_t full = in.count("max_window_layers", 0);
  if (m.stack.window > 0) m.stack.window_layers = std::max<int64_t>(0, m.stack.layers - full);
  if (m.stack.window_layers == 0) m.stack.window = 0;
}

// Layers without experts, which have to be the first ones.
int64_t dense_layers(HfConfig& in) {
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

void read_qwen_experts(HfConfig& in, ModelShape& m) {
  StackShape& s = m.stack;
  s.experts = in.need("num_experts");
  s.experts_per_token = in.need("num_experts_per_tok");
  s.expert_ffn = in.need("moe_intermediate_size");
  s.dense_layers = dense_layers(in);
}

}  // namespace

// What Llama's configuration and those after it have in common.
void read_llama(HfConfig& in, ModelShape& m) {
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

void read_mistral(HfConfig& in, ModelShape& m) {
  read_llama(in, m);
  m.stack.window = in.count("sliding_window", 0);
  m.stack.window_layers = m.stack.window > 0 ? m.stack.layers : 0;
}

void read_mixtral(HfConfig& in, ModelShape& m) {
  read_mistral(in, m);
  m.stack.experts = in.need("num_local_experts");
  m.stack.experts_per_token = in.need("num_experts_per_tok");
  m.stack.expert_ffn = m.stack.ffn;
}

void read_qwen2(HfConfig& in, ModelShape& m) {
  read_llama(in, m);
  m.stack.qkv_bias = true;
  m.stack.o_bias = false;
  read_qwen_window(in, m);
}

void read_qwen3(HfConfig& in, ModelShape& m) {
  read_llama(in, m);
  m.stack.head_dim = in.count("head_dim", 128);
  m.stack.qk_norm = true;
  read_qwen_window(in, m);
}

void read_qwen2_moe(HfConfig& in, ModelShape& m) {
  read_qwen2(in, m);
  read_qwen_experts(in, m);
  m.stack.shared_ffn = in.need("shared_expert_intermediate_size");
  m.stack.shared_gate = true;
}

void read_qwen3_moe(HfConfig& in, ModelShape& m) {
  read_qwen3(in, m);
  // Qwen3MoeConfig has no default of its own for head_dim.
  m.stack.head_dim = in.count("head_dim", m.stack.hidden / m.stack.heads);
  read_qwen_experts(in, m);
}

void read_deepseek_v3(HfConfig& in, ModelShape& m) {
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

void read_gpt_oss(HfConfig& in, ModelShape& m) {
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

}  // namespace vitrine::hf
