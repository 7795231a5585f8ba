// Sums over rows, and rows added to every row: what bias vectors need.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/op.h"

namespace vitrine::gpu {

// gradient[width] (+)= sum over rows of dy[rows, width], in a fixed order. `scratch` holds
// column_sum_scratch() bytes, 256-byte aligned.
size_t column_sum_scratch(DType dtype, int64_t rows, int64_t width);
void column_sum(
    const TensorView& dy, int64_t rows, int64_t width, const GradView& gradient, void* scratch);

// y[rows, width] += bias[width].
void add_to_rows(const TensorView& y, int64_t rows, int64_t width, const TensorView& bias);

// gradient (+)= factor * source, factor on the device (f32, f64 under f64; null: 1). `source` is of
// the gradient's dtype or wider.
void store_scaled(const GradView& gradient, DType dtype, const void* source, const void* factor);

}  // namespace vitrine::gpu
