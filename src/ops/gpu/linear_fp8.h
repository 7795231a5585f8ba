// linear with 8-bit operands.
#pragma once

#include "ops/gpu/gradient.h"

namespace vitrine::gpu {

// Whether this call runs in fp8 here: linear_in_fp8() on a GPU that has such products (8.9 on).
bool fp8_linear(const OpCall& call);
void linear_fp8_forward(const OpCall& call);
// At least one gradient is wanted.
void linear_fp8_backward(const OpCall& call, Views dout, Gradients din);

}  // namespace vitrine::gpu
