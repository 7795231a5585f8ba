// Configurations of GPT-2 and its like.
#include "plan/hf_readers.h"

namespace vitrine::hf {

void set_gpt(ModelShape& m, int64_t layers, int64_t hidden, int64_t heads, int64_t ffn) {
  StackShape& s = m.stack;
  s.layers = layers;
  s.hidden = hidden;
  s.heads = s.kv_heads = heads;
  s.head_dim = hidden / heads;
  s.ffn = ffn;
  s.layer_norm = s.qkv_bias = s.o_bias = s.mlp_bias = true;
}

void read_gpt2(HfConfig& in, ModelShape& m) {
  const int64_t hidden = in.need("n_embd");
  set_gpt(m, in.need("n_layer"), hidden, in.need("n_head"), in.count("n_inner", 4 * hidden));
  m.vocab = in.need("vocab_size");
  m.positions = m.max_sequence = in.need("n_positions", "n_ctx");
  m.tied_embeddings = in.flag("tie_word_embeddings", true);
  m.stack.dropout = in.number("resid_pdrop", 0.1);
}

void read_neox(HfConfig& in, ModelShape& m) {
  set_gpt(m,
          in.need("num_hidden_layers"),
          in.need("hidden_size"),
          in.need("num_attention_heads"),
          in.need("intermediate_size"));
  m.vocab = in.need("vocab_size");
  m.max_sequence = in.count("max_position_embeddings", 2048);
  m.tied_embeddings = in.flag("tie_word_embeddings", false);
  m.stack.rotary = true;
  m.stack.parallel_block = in.flag("use_parallel_residual", true);
  m.stack.qkv_bias = m.stack.o_bias = in.flag("attention_bias", true);
  m.stack.dropout = in.number("hidden_dropout", 0);
}

void read_bloom(HfConfig& in, ModelShape& m) {
  const int64_t hidden = in.need("hidden_size", "n_embed");
  const int64_t heads = in.need("n_head", "num_attention_heads");
  set_gpt(m, in.need("n_layer", "num_hidden_layers"), hidden, heads, 4 * hidden);
  m.vocab = in.need("vocab_size");
  m.max_sequence = in.count("seq_length", 2048);
  m.tied_embeddings = in.flag("tie_word_embeddings", true);
  m.embedding_norm = true;
  m.stack.dropout = in.number("hidden_dropout", 0);
}

void read_opt(HfConfig& in, ModelShape& m) {
  const int64_t hidden = in.need("hidden_size");
  set_gpt(
      m, in.need("num_hidden_layers"), hidden, in.need("num_attention_heads"), in.need("ffn_dim"));
  if (in.count("word_embed_proj_dim", hidden) != hidden) {
    in.refuse("word_embed_proj_dim other than hidden_size is not known (opt-350m has it)");
  }
  if (!in.flag("do_layer_norm_before", true)) {
    in.refuse("do_layer_norm_before: false is not known (opt-350m has it)");
  }
  m.vocab = in.need("vocab_size");
  m.max_sequence = in.need("max_position_embeddings");
  m.positions = m.max_sequence + 2;  // OPTLearnedPositionalEmbedding's offset
  m.tied_embeddings = in.flag("tie_word_embeddings", true);
  const bool bias = in.flag("enable_bias", true);
  m.stack.qkv_bias = m.stack.o_bias = m.stack.mlp_bias = bias;
  m.stack.dropout = in.number("dropout", 0.1);
}

}  // namespace vitrine::hf
