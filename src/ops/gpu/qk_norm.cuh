// What the kernels of qk_norm share: operands, heads, and the angles of rotary positions.
#pragma once

#include "ops/gpu/norm.h"
#include "ops/gpu/rotary_table.h"
#include "ops/gpu/rows.cuh"

namespace vitrine::gpu {

template <typename T>
struct QkNorm {
  const T* x;
  const T* wq;
  const T* wk;
  const T* dy;  // turned, as y is
  T* y;
  Wide<T>* rstd;  // [rows, queries + keys]
  GradientTo<T> dx;
  Wide<T>* partial;  // [blocks, 2, d]; null: not wanted
  int64_t rows;
  int queries, keys, d;  // as many values as keys
  Wide<T> eps;
  // Turned by the angle of the position, row / inner % length.
  bool turned;
  double base;
  RotaryTable table;  // for all but f64
  Divisor by_inner, by_length;

  __host__ __device__ int row_heads() const { return queries + 2 * keys; }
  __host__ __device__ int normed() const { return queries + keys; }
  __device__ int64_t position(int64_t row) const {
    int64_t round, position;
    divide(quotient(row, by_inner), by_length, round, position);
    return position;
  }
};

// Rows of 16-byte vectors whose half heads are whole vectors. False: not of that form, or shared
// memory is too small. `blocks` rows of partial sums are left by backward.
template <typename T>
bool qk_norm_vectors(const QkNorm<T>& a, bool aligned);
template <typename T>
bool qk_norm_vectors_backward(QkNorm<T>& a, bool aligned, bool parameters, int64_t& blocks);

}  // namespace vitrine::gpu
