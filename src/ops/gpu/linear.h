// Parts of linear's backward for the kernels that run it together with its neighbour.
#pragma once

#include "ops/gpu/gradient.h"

namespace vitrine::gpu {

// Gradients of the weight and the bias, where wanted; that of x is left out.
void linear_parameter_gradients(const OpCall& call, const TensorView& dy, Gradients din);

}  // namespace vitrine::gpu
