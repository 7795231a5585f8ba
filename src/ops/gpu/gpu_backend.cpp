// The GPU's table of operations.
#include "ops/gpu/rows.h"

namespace vitrine {

Backend& gpu_backend() {
  static auto* backend = [] {
    auto* made = new Backend("gpu");
    made->set_brings_workspace();
    gpu::add_norm_rows(*made);
    gpu::add_swiglu_rotary_rows(*made);
    gpu::add_embedding_rows(*made);
    gpu::add_matmul_rows(*made);
    gpu::add_cross_entropy_rows(*made);
    gpu::add_attention_rows(*made);
    gpu::add_pointwise_rows(*made);
    gpu::add_layout_rows(*made);
    gpu::add_loss_rows(*made);
    gpu::add_linear_swiglu_pairs(*made);
    return made;
  }();
  return *backend;
}

}  // namespace vitrine
