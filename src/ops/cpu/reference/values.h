// Tensors of any dtype as vectors of double, so that the reference reads like the formulas.
#pragma once

#include <vector>

#include "ops/cpu/operands.h"
#include "ops/op.h"

namespace vitrine::reference {

using Values = std::vector<double>;

Values load(const TensorView& view);
// `count` zeros when the view is null.
Values load_or_zero(const TensorView& view, int64_t count);
// Rounds each value once to the view's dtype.
void store(const TensorView& view, const Values& values);
// The values as they would be after a store in this dtype.
Values rounded(const Values& values, DType dtype);
// Writes over or adds to; nothing when the gradient is not wanted.
void store_gradient(const GradView& gradient, const Values& values);

inline size_t at(int64_t i) { return static_cast<size_t>(i); }
inline Values zeros(int64_t count) { return Values(at(count), 0.0); }

// Pairs (c, c + d/2) of the first `heads` heads of each row turned by `sign` times the angle of the
// row's position along `axis`.
Values turned(const Values& x,
              const Shape& shape,
              int64_t axis,
              int64_t heads,
              int64_t head_dim,
              double base,
              double sign);

// The rows of the table, by family.
void add_matmul(Backend& backend);
void add_norm(Backend& backend);
void add_attention(Backend& backend);
void add_pointwise(Backend& backend);
void add_loss(Backend& backend);
void add_layout(Backend& backend);

}  // namespace vitrine::reference
