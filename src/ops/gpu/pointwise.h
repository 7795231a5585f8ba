// Rows of single element-by-element operations that have a file of their own.
#pragma once

#include "ops/op.h"

namespace vitrine::gpu {

OpKernels swiglu_row();
OpKernels rotary_row();

}  // namespace vitrine::gpu
