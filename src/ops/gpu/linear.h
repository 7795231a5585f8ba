// Parts of linear's backward for the kernels that run it together with its neighbour.
#pragma once

#include "ops/gpu/gradient.h"

namespace vitrine::gpu {

// Product of the leading dimensions; shape.rows() divides by the last, which may be 0 here.
inline int64_t rows_of(const Shape& shape) {
  int64_t rows = 1;
  for (int i = 0; i + 1 < shape.rank(); ++i) rows *= shape[i];
  return rows;
}

// Gradients of the weight and the bias, where wanted; that of x is left out.
void linear_parameter_gradients(const OpCall& call, const TensorView& dy, Gradients din);

}  // namespace vitrine::gpu
