// The second stage of gradients of parameters: partial sums of blocks, added in the blocks' order.
#pragma once

#include "ops/gpu/gradients.cuh"

namespace vitrine::gpu {

// partial[blocks, sinks * width] to gradients of `width` elements: the first from the first
// columns, the second (where `both`) from those behind. Bits depend on `blocks` alone.
void sum_columns(
    const float* partial, int64_t blocks, int64_t width, Sink first, Sink second, bool both);
void sum_columns(
    const double* partial, int64_t blocks, int64_t width, Sink first, Sink second, bool both);

}  // namespace vitrine::gpu
