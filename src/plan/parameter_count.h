// Parameters of a model by its parts, from its shape.
#pragma once

#include <cstdint>

#include "plan/model_shape.h"

namespace vitrine {

// Of one layer, in elements.
struct LayerParameters {
  int64_t attention = 0;  // all of the layer's attentions, with their query and key norms
  int64_t norms = 0;      // with the six vectors of an adaptive norm
  int64_t mlp = 0;        // dense
  int64_t router = 0;
  int64_t experts = 0;  // routed, all of them
  int64_t shared = 0;   // experts that every token visits, with their gate
  int64_t total() const { return attention + norms + mlp + router + experts + shared; }
  // What one token passes through.
  int64_t active(const StackShape& shape) const;
};

// `with_experts`: a layer after the first `dense_layers` of a mixture of experts.
LayerParameters layer_parameters(const StackShape& shape, bool with_experts);
inline bool layer_has_experts(const StackShape& shape, int64_t layer) {
  return shape.experts > 0 && layer >= shape.dense_layers;
}

// Before the first layer: tables of tokens and positions, of a picture its patches; what encodes
// text and time of a diffusion model.
int64_t stem_parameters(const ModelShape& model);
// After the last layer: norm, and the output matrix where it is not the table of tokens.
int64_t head_parameters(const ModelShape& model);
// Tower and projector of a multimodal model; 0 for others.
int64_t tower_parameters(const ModelShape& model);
// Layers that predict the tokens after the next one.
int64_t next_token_parameters(const ModelShape& model);

}  // namespace vitrine
