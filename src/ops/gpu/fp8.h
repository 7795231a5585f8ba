// Whole tensors in 8-bit floating formats, each with one scale: operands of fp8 products.
#pragma once

#include <cstdint>

#include "ops/fp8.h"

namespace vitrine::gpu {

// On the device. `inverse` is 1 / fp8_scale(amax): what a product of the rounded values is
// multiplied by.
struct alignas(16) Fp8Scale {
  uint32_t amax_bits;  // of a bf16 magnitude
  float inverse;
};

// Of a row-major tensor [rows, columns], 16-byte aligned; null: not wanted.
struct Fp8Copies {
  void* as_it_is = nullptr;    // [rows, columns]
  void* transposed = nullptr;  // [columns, rows]
};

// Once before the scales are used.
void clear_fp8_scales(Fp8Scale* scales, int count);

// Finds the scale of `from`, bf16 [rows, columns] of any alignment, and writes its rounded copies:
// the bits of round_to_fp8(value * fp8_scale(amax)). Rows and columns are multiples of 16.
void to_fp8(const void* from,
            int64_t rows,
            int64_t columns,
            Fp8 format,
            Fp8Scale* scale,
            const Fp8Copies& copies);

}  // namespace vitrine::gpu
