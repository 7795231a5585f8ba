// The GPU's rows by file; gpu_backend.cpp puts them in the table.
#pragma once

#include "ops/op.h"

namespace vitrine::gpu {

void add_matmul_rows(Backend& backend);         // linear
void add_cross_entropy_rows(Backend& backend);  // linear_cross_entropy
void add_attention_rows(Backend& backend);      // attention
void add_norm_rows(
    Backend& backend);  // rms_norm, add_rms_norm, layer_norm, add_layer_norm, qk_norm
void add_pointwise_rows(Backend& backend);  // gelu, add, scale, add_broadcast, gated_sigmoid
void add_broadcast_rows(Backend& backend);  // the last two; called by add_pointwise_rows
void add_layout_rows(Backend& backend);     // patchify, ..., flatten_frames
void add_token_rows(Backend& backend);      // prepend_token, take_token, mean_pool; called by it
void add_frame_rows(Backend& backend);      // frame_difference; called by it
void add_loss_rows(Backend& backend);       // mse, l1
void add_swiglu_rotary_rows(Backend& backend);
void add_embedding_rows(Backend& backend);
void add_linear_swiglu_pairs(Backend& backend);  // both in one kernel where it can

}  // namespace vitrine::gpu
