// What kernels compute, as classes.
#pragma once

#include <cstdint>

namespace vitrine {

enum class KernelClass : uint8_t {
  kMatmul,
  kAttention,
  kConvolution,
  kNormalisation,
  kElementwise,
  kReduction,
  kEmbedding,
  kOptimizer,
  kOther
};
constexpr int kKernelClasses = 9;
const char* kernel_class_name(KernelClass kind);  // "matrix product", ...

}  // namespace vitrine
