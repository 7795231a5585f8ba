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

}  // namespace vitrine::gpu
