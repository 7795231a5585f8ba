// Attention on tensor cores for short sequences: the fast part of own_attention().
#pragma once

#include "ops/gpu/attention.h"

namespace vitrine::gpu {

// bf16 and f16, head_dim 32, 64 or 128, operands aligned to 16 bytes; false for others. `row_sum`
// is sum over d of dout * out, f32 [groups, H, L].
bool mma_attention(const AttentionForward& call);
bool mma_attention(const AttentionBackward& call, const float* row_sum);

}  // namespace vitrine::gpu
