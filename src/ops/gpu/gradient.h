// What rows of the GPU do with gradients that are absent, unwanted or of nothing.
#pragma once

#include "gpu/runtime.h"
#include "ops/cpu/operands.h"

namespace vitrine::gpu {

using Views = std::span<const TensorView>;
using Gradients = std::span<const GradView>;

// Gradients of nothing: zero is written, or nothing added.
inline void clear_gradient(const GradView& gradient) {
  if (!gradient || gradient.accumulate || gradient.view.bytes() == 0) return;
  VITRINE_GPU_CHECK(cudaMemsetAsync(gradient.view.data, 0, gradient.view.bytes(), stream()));
}

inline void clear_gradients(Gradients din) {
  for (const GradView& gradient : din) clear_gradient(gradient);
}

// As guarded() of ops/cpu/operands.h: Backward runs when an output gradient is there and an input
// gradient is wanted.
template <void (*Backward)(const OpCall&, Views, Gradients)>
void when_wanted(const OpCall& call, Views dout, Gradients din) {
  bool given = false, wanted = false;
  for (const TensorView& view : dout) given = given || view;
  for (const GradView& gradient : din) wanted = wanted || gradient;
  if (!wanted) return;
  if (given) return Backward(call, dout, din);
  clear_gradients(din);
}

// Each destination (=|+=) factor * dy, in one pass. In pointwise.cu.
void spread_gradient(const TensorView& dy,
                     double factor,
                     const GradView& first,
                     const GradView& second,
                     const char* op);

}  // namespace vitrine::gpu
