// Counting of parameters.
#include "plan/parameter_count.h"

namespace vitrine {
namespace {

int64_t norm_elements(const StackShape& s) { return s.hidden * (s.layer_norm ? 2 : 1); }

int64_t biased(bool bias, int64_t in, int64_t out) { return in * out + (bias ? out : 0); }

int64_t latent_attention(const StackShape& s) {
  const int64_t query_width = s.heads * (s.head_dim + s.rope_head_dim);
  const int64_t query = s.q_rank > 0 ? s.hidden * s.q_rank + s.q_rank + s.q_rank * query_width
                                     : s.hidden * query_width;
  const int64_t down = biased(s.qkv_bias, s.hidden, s.kv_rank + s.rope_head_dim) + s.kv_rank;
  const int64_t up = s.kv_rank * s.heads * (s.head_dim + s.v_head_dim);
  return query + down + up + biased(s.o_bias, s.heads * s.v_head_dim, s.hidden);
}

int64_t attention(const StackShape& s) {
  if (s.kv_rank > 0) return latent_attention(s);
  const int64_t query = s.heads * s.head_dim, key = s.kv_heads * s.head_dim;
  int64_t sum = biased(s.qkv_bias, s.hidden, query) + 2 * biased(s.qkv_bias, s.hidden, key) +
                biased(s.o_bias, query, s.hidden);
  if (s.qk_norm) sum += s.wide_qk_norm ? query + key : 2 * s.head_dim;
  return sum + (s.sinks ? s.heads : 0);
}

int64_t mlp(const StackShape& s, int64_t width, bool bias) {
  return biased(bias, s.hidden, (s.gated ? 2 : 1) * width) + biased(bias, width, s.hidden);
}

int64_t all_layers(const StackShape& s, bool active) {
  const int64_t dense = s.experts > 0 ? s.dense_layers : s.layers;
  const LayerParameters with_experts = layer_parameters(s, true);
  return dense * layer_parameters(s, false).total() +
         (s.layers - dense) * (active ? with_experts.active(s) : with_experts.total());
}

// Patches into the stack: of a vit, of a tower.
int64_t picture_stem(const ModelShape& m, const StackShape& s, int64_t patch_values) {
  const int64_t positions = m.picture_patches + (m.class_token ? 1 : 0);
  return biased(m.patch_bias, patch_values, s.hidden) + positions * s.hidden +
         (m.class_token ? s.hidden : 0) + (m.stem_norm ? 2 * s.hidden : 0);
}

int64_t world_stem(const ModelShape& m) {
  const int64_t width = m.encoder_width > 0 ? m.encoder_width : m.patch_values;
  return (m.encoder_width > 0 ? biased(true, m.patch_values, m.encoder_width) : 0) +
         2 * width * m.stack.hidden + (m.patches + m.positions + m.actions) * m.stack.hidden;
}

// Wan: patches, the text encoder's states and the time step through small networks.
int64_t diffusion_stem(const ModelShape& m) {
  const int64_t h = m.stack.hidden;
  return biased(true, m.patch_values, h) + biased(true, m.text_width, h) + biased(true, h, h) +
         biased(true, m.time_width, h) + biased(true, h, h) + biased(true, h, 6 * h);
}

// DeepSeek-V3's report, equation 21: norms of both inputs, their joining matrix, one layer; the
// output norm is its own, tables are shared.
int64_t next_token(const ModelShape& m, bool active) {
  const LayerParameters layer = layer_parameters(m.stack, m.stack.experts > 0);
  return m.next_token_layers * (2 * m.stack.hidden * m.stack.hidden + 3 * norm_elements(m.stack) +
                                (active ? layer.active(m.stack) : layer.total()));
}

int64_t count(const ModelShape& m, bool active) {
  return stem_parameters(m) + all_layers(m.stack, active) + next_token(m, active) +
         head_parameters(m) + (m.tower_frozen ? 0 : tower_parameters(m));
}

}  // namespace

int64_t LayerParameters::active(const StackShape& shape) const {
  const int64_t visited =
      shape.experts > 0 ? experts / shape.experts * shape.experts_per_token : experts;
  return total() - experts + visited;
}

LayerParameters layer_parameters(const StackShape& s, bool with_experts) {
  LayerParameters p;
  p.attention = s.attentions * attention(s) + (s.cross_attention ? attention(s) : 0);
  const int64_t norms = s.shared_norm ? 1 : s.attentions + 1;
  p.norms = (s.adaptive_norm ? 6 * s.hidden : norms * norm_elements(s)) +
            (s.cross_attention ? norm_elements(s) : 0);
  if (!with_experts || s.experts == 0) {
    p.mlp = mlp(s, s.ffn, s.mlp_bias);
    return p;
  }
  p.router = biased(s.router_bias, s.hidden, s.experts);
  p.experts = s.experts * mlp(s, s.expert_ffn, s.expert_bias);
  if (s.shared_ffn > 0) p.shared = mlp(s, s.shared_ffn, false) + (s.shared_gate ? s.hidden : 0);
  return p;
}

int64_t stem_parameters(const ModelShape& m) {
  if (m.family == "vit") return picture_stem(m, m.stack, m.patch_values);
  if (m.family == "world_model") return world_stem(m);
  if (m.family == "diffusion") return diffusion_stem(m);
  return (m.vocab + m.positions + (m.embedding_norm ? 2 : 0)) * m.stack.hidden;
}

int64_t head_parameters(const ModelShape& m) {
  const int64_t h = m.stack.hidden;
  if (m.family == "vit") return norm_elements(m.stack) + biased(m.head_bias, h, m.classes);
  if (m.family == "world_model") {
    return norm_elements(m.stack) + h * m.patch_values + (m.gated_head ? 2 * m.patch_values : 0);
  }
  if (m.family == "diffusion") return biased(true, h, m.patch_values) + 2 * h;
  return norm_elements(m.stack) + (m.tied_embeddings ? 0 : m.vocab * h);
}

int64_t tower_parameters(const ModelShape& m) {
  if (m.tower.layers == 0) return 0;
  const int64_t h = m.stack.hidden;
  return picture_stem(m, m.tower, m.patch_values) + all_layers(m.tower, false) +
         norm_elements(m.tower) + biased(true, m.tower.hidden, h) + biased(true, h, h);
}

int64_t next_token_parameters(const ModelShape& m) { return next_token(m, false); }

int64_t ModelShape::parameters() const { return count(*this, false); }

int64_t ModelShape::active_parameters() const { return count(*this, true); }

}  // namespace vitrine
