// Every tolerance of the tests, each with its reason.
#pragma once

#include "core/dtype.h"

namespace vitrine::test {

// Central differences in f64 with step 1e-5: truncation h² f''' / 6 is about 1e-10 and rounding
// 1e-16 / h about 1e-11, so an error of 1e-6 of the largest gradient is a wrong formula.
constexpr double kJacobianStep = 1e-5;
constexpr double kJacobian = 1e-6;

// Fast row against the oracle, as the largest error over the largest value of a tensor. f32: sums
// of up to 1000 products (2^-24 each, growing with the root) and exp to 2 ulp. bf16 and f16: one
// rounding of the result (2^-9, 2^-12) and one of an intermediate that the fast row keeps narrow,
// with a factor of two.
constexpr double fast_row(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return 0x1p-7;
    case DType::kF16:
      return 0x1p-10;
    default:
      return 1e-5;
  }
}

// The GPU's rows, likewise. f32 products run without TF32; atomic sums of gradients add in any
// order.
constexpr double gpu_row(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return 0x1p-7;
    case DType::kF16:
      return 0x1p-10;
    default:
      return 2e-5;
  }
}

// An engine on a GPU against one on the CPU, ten f32 steps. The loss is a mean over many terms of
// rounding errors of 1e-6. Updates are AdamW's, which moves an element by about the learning rate
// whatever the size of its gradient: elements whose gradients are rounding errors move either way.
// The CPU's two rows are 1.5e-5 of the way apart.
constexpr double kDeviceLoss = 1e-5;
constexpr double kDeviceUpdate = 1e-3;
// bf16 against f32 losses of a few steps: one rounding of 2^-9 in each of many terms.
constexpr double kBf16Loss = 2e-2;

// PyTorch's f32 results against the f64 reference row.
constexpr double kGolden = 1e-5;

}  // namespace vitrine::test
