// linear with 8-bit operands.
#pragma once

#include "ops/gpu/gradient.h"

namespace vitrine::gpu {

constexpr int kFp8Architecture = 89;  // 8.9, the first that has such products

// Whether this call runs in fp8 here: linear_in_fp8() on a GPU that has such products.
bool fp8_linear(const OpCall& call);
void linear_fp8_forward(const OpCall& call);
// At least one gradient is wanted.
void linear_fp8_backward(const OpCall& call, Views dout, Gradients din);

}  // namespace vitrine::gpu
