// The second stage of gradients of parameters: partial sums of blocks, added in a fixed order.
#pragma once

#include "ops/gpu/elementwise.cuh"

namespace vitrine::gpu {

// scale * sums: from partial[rows, width] to one gradient of `width` elements, or with `both` from
// partial[rows, 2 width] to two. Bits depend on the partial sums alone.
template <typename T>
void sum_columns(const Wide<T>* partial,
                 int64_t rows,
                 int64_t width,
                 const GradientTo<T>& first,
                 const GradientTo<T>& second,
                 bool both,
                 Wide<T> scale = 1);

}  // namespace vitrine::gpu
