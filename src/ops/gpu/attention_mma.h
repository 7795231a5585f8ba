// Own attention on tensor cores: whole short heads, and the fast part of own_attention().
#pragma once

#include "ops/gpu/attention.h"

namespace vitrine::gpu {

// bf16 and f16, head_dim 32, 64 or 128, operands aligned to 16 bytes; false for others. `row_sum`
// is sum over d of dout * out, f32 [groups, H, L].
bool mma_attention(const AttentionForward& call);
bool mma_attention(const AttentionBackward& call, const float* row_sum);
// Of these, at most 64 positions, head_dim 32 or 64, backward with as many query heads as key
// heads, at about the speed of memory; false for others.
bool short_attention(const AttentionForward& call);
bool short_attention(const AttentionBackward& call);

}  // namespace vitrine::gpu
