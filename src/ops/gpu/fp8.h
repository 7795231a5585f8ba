// Whole tensors in 8-bit floating formats, each with one scale: operands of fp8 products.
#pragma once

#include <cstdint>

#include "ops/fp8.h"

namespace vitrine::gpu {

// On the device. `inverse` is 1 / fp8_scale(amax): what a product of the rounded values is
// multiplied by. It comes first because cuBLASLt takes scales at multiples of 16 bytes only, and
// otherwise names candidates that it then refuses to run.
struct alignas(16) Fp8Scale {
  float inverse;
  uint32_t amax_bits;  // of a bf16 magnitude
};

// Of a row-major tensor [rows, columns], 16-byte aligned; null: not wanted.
struct Fp8Copies {
  void* as_it_is = nullptr;    // [rows, columns]
  void* transposed = nullptr;  // [columns, rows]
};

// Once before the scales are used.
void clear_fp8_scales(Fp8Scale* scales, int count);

// Rounded copies of `from`, bf16 [rows, columns] of any alignment, and the scale for them: the bits
// of round_to_fp8(value * fp8_scale(amax)). Rows and columns are multiples of 16. `amax_bits`, on
// the device, is the largest magnitude where it is known; null: it is found first, in `scale`,
// which must have been cleared.
void to_fp8(const void* from,
            int64_t rows,
            int64_t columns,
            Fp8 format,
            const uint32_t* amax_bits,
            Fp8Scale* scale,
            const Fp8Copies& copies);

// The largest magnitude of what an operation writes, found on its way for the operation after it. A
// note holds as long as its thread issues nothing else, so that what it is about cannot have
// changed. Where its kernel has to put the maximum (zero now):
uint32_t* begin_amax_note();
// After the kernel was launched: `count` bf16 elements at `data`.
void end_amax_note(const void* data, int64_t count);
// Null without a note of just these elements.
const uint32_t* noted_amax(const void* data, int64_t count);

}  // namespace vitrine::gpu
