// What a kernel computes, by its name.
#pragma once

#include <string>

#include "analysis/rank_facts.h"

namespace vitrine {

struct KernelTraits {
  KernelClass kind = KernelClass::kOther;
  bool tensor_core = false;  // true is certain, false is not
  bool backward = false;     // its name says that it is of a backward pass
};

// Names of cuBLAS, CUTLASS, cuDNN, rocBLAS (Tensile), hipBLASLt, Composable Kernel, MIOpen, flash
// attention, ATen, Apex, Triton and Inductor (fused names hold the operators they fuse).
KernelTraits kernel_traits(const std::string& name);

}  // namespace vitrine
