// What both CPU rows share: optional operands, zero gradients, and the places of a dimension in
// memory.
#pragma once

#include <cstring>
#include <span>

#include "ops/op.h"

namespace vitrine {

// Absent optional operands may be null views or missing at the end.
inline TensorView operand(std::span<const TensorView> views, size_t i) {
  return i < views.size() ? views[i] : TensorView{};
}
inline GradView operand(std::span<const GradView> views, size_t i) {
  return i < views.size() ? views[i] : GradView{};
}

// Gradients of nothing: zero is written, or nothing added. Zero is all bits clear in every dtype.
inline void zero_gradients(std::span<const GradView> din) {
  for (const GradView& gradient : din) {
    if (gradient && !gradient.accumulate) std::memset(gradient.view.data, 0, gradient.view.bytes());
  }
}

// Runs a backward only when some output gradient is there and some input gradient is wanted.
template <void (*Backward)(const OpCall&, std::span<const TensorView>, std::span<const GradView>)>
void guarded(const OpCall& call, std::span<const TensorView> dout, std::span<const GradView> din) {
  bool given = false, wanted = false;
  for (const TensorView& view : dout) given = given || view;
  for (const GradView& gradient : din) wanted = wanted || gradient;
  if (!wanted) return;
  if (given) {
    Backward(call, dout, din);
  } else {
    zero_gradients(din);
  }
}

// Dimension `axis` of a row-major tensor seen as [outer, length, inner, last].
struct AxisRows {
  int64_t outer = 1, length = 1, inner = 1;
  AxisRows(const Shape& shape, int64_t axis) {
    const int at = static_cast<int>(axis < 0 ? axis + shape.rank() : axis);
    for (int i = 0; i < at; ++i) outer *= shape[i];
    length = shape[at];
    for (int i = at + 1; i < shape.rank() - 1; ++i) inner *= shape[i];
  }
  int64_t groups() const { return outer * inner; }
  // Row (a vector of the last dimension) of position `i` of a group; the next position is `inner`
  // rows on.
  int64_t row(int64_t group, int64_t i) const {
    return (group / inner * length + i) * inner + group % inner;
  }
};

}  // namespace vitrine
