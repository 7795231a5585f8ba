// Ids in order of their value, with the places where they stood.
#pragma once

#include "ops/op.h"

namespace vitrine::gpu {

struct SortedIds {
  const uint32_t* keys;    // [count], ascending; ids outside [0, vocabulary) count as 0
  const uint32_t* places;  // [count], ascending among equal keys
};

// Bytes of scratch, a multiple of 256. Throws ShapeError beyond 2^31 ids.
size_t sorted_ids_scratch(int64_t count, int64_t vocabulary);
// In the calling thread's stream; the result lies in `scratch` (256-byte aligned). On the way
// `table` is cleared where it is a gradient that is written over.
SortedIds sort_ids(
    const int32_t* ids, int64_t count, int64_t vocabulary, void* scratch, const GradView& table);

}  // namespace vitrine::gpu
