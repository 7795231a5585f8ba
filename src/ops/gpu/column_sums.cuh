// The second stage of gradients of parameters: partial sums of blocks, added in the blocks' order.
#pragma once

#include "ops/gpu/rows.cuh"

namespace vitrine::gpu {

// From partial[blocks, width] to one gradient of `width` elements, or with `both` from
// partial[blocks, 2 width] to two. Bits depend on the partial sums alone.
template <typename T>
void sum_columns(const Wide<T>* partial,
                 int64_t blocks,
                 int64_t width,
                 const GradientTo<T>& first,
                 const GradientTo<T>& second,
                 bool both);

}  // namespace vitrine::gpu
