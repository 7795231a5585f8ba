// Fills, conversions and sums of whole arrays.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace vitrine::gpu {

// In the calling thread's stream. Throws ConfigError for dtypes that are not floating.
void convert_array(DType to, void* destination, DType from, const void* source, int64_t count);
// By the multiprocessors (cudaMemcpyAsync in a graph may take the slower copy engines): `bytes` are
// a multiple of 16, ends aligned to it.
void copy_array(void* to, const void* from, size_t bytes);
void add_array(DType dtype, void* sum, const void* term, int64_t count);

struct Terms {
  static constexpr int kMost = 16;
  const void* of[kMost] = {};
  int count = 0;
};
// sum = the terms, added in their order in f32 and rounded once. `sum` may be one of them.
void sum_arrays(DType dtype, void* sum, const Terms& terms, int64_t count);

}  // namespace vitrine::gpu
