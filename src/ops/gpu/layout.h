// A tensor made of rows of another one, or of two: what every operation that only moves elements
// is.
#pragma once

#include <cstdint>
#include <limits>

#include "ops/op.h"

namespace vitrine::gpu {

// Row (a, b, c) starts `base + a' a + b' b + c' c` elements from `data`; null: a row of zeros.
struct RowSource {
  const void* data = nullptr;
  int64_t a = 0, b = 0, c = 0, base = 0;
};

// Destination rows in order, index (a' * b + b') * c + c'. Those with low <= b' < high come from
// `inside`.
struct RowMap {
  int64_t b = 1, c = 1;
  int64_t low = 0, high = std::numeric_limits<int64_t>::max();
  RowSource inside, outside;
};

// to (=|+=) factor * rows of `length` elements of `dtype`, in the calling thread's stream. Nothing
// when `to` is not wanted.
void gather_rows(const GradView& to,
                 DType dtype,
                 const RowMap& map,
                 int64_t length,
                 double factor,
                 const char* op);

// The same for two destinations of one shape, in one launch where both are plain copies.
void gather_rows_of_both(const GradView& first,
                         const RowMap& first_map,
                         const GradView& second,
                         const RowMap& second_map,
                         DType dtype,
                         int64_t length,
                         const char* op);

}  // namespace vitrine::gpu
