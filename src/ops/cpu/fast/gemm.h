// Matrix products by oneDNN: f32 and bf16 natively, f16 (and bf16 where the processor can't)
// through f32.
#pragma once

#include <cstdint>

#include "core/dtype.h"

namespace vitrine::fast {

// A row-major operand; `stride` elements from a stored row to the next. Transposed: the stored rows
// are columns.
struct Matrix {
  const void* data;
  DType dtype;
  int64_t stride;
  bool transposed = false;
};

struct MatrixOut {
  void* data;
  DType dtype;
  int64_t stride;
  bool accumulate = false;
};

// c[m, n] = alpha a[m, k] b[k, n] (+ c). Sums in f32, rounded once. a and b share a dtype; alpha is
// 1 for bf16. Inside parallel_for it runs on the calling thread alone.
void gemm(int64_t m,
          int64_t n,
          int64_t k,
          const Matrix& a,
          const Matrix& b,
          const MatrixOut& c,
          float alpha = 1);

// The f32 case without look-ups, for tiles.
void sgemm(bool transpose_a,
           bool transpose_b,
           int64_t m,
           int64_t n,
           int64_t k,
           float alpha,
           const float* a,
           int64_t lda,
           const float* b,
           int64_t ldb,
           float beta,
           float* c,
           int64_t ldc);

// Row conversions of the instruction set in use; set once when the backend is built.
struct Conversions {
  void (*widen)(DType from, const void* source, int64_t offset, int64_t count, float* destination);
  void (*narrow)(
      DType to, void* destination, int64_t offset, int64_t count, const float* source, bool add);
};
void set_conversions(const Conversions& conversions);

}  // namespace vitrine::fast
