// Matrix products through cuBLASLt or own kernels (wgmma_matmul.h), with a table of the fastest
// algorithm for each shape.
#pragma once

#include <cstddef>
#include <cstdint>

#include "core/dtype.h"
#include "ops/fp8.h"

namespace vitrine::gpu {

// A row-major matrix: element (i, j) at data[i * stride + j], or at data[j * stride + i] when
// transposed.
struct Matrix {
  const void* data = nullptr;
  int64_t stride = 0;  // elements
  bool transposed = false;
  Fp8 fp8 = Fp8::kNone;  // of 8-bit elements, whatever the product's dtype
  // Of them, on the device at a multiple of 16 bytes: what the product is multiplied by.
  const float* inverse = nullptr;
};

// d[m, n] = alpha a[m, k] b[k, n] (+ d when `accumulate`) (+ bias[n]). Arithmetic in f32 (f64 when
// the operands are), rounded once to d's dtype.
//
// 8-bit operands: short parts of the sums are added by the tensor cores, which keep about 14 bits,
// the parts in f32 (all in the tensor cores is 6 % faster, and loses a quarter of a sum of 18944
// terms of one sign). Both or none, under dtype bf16; a as it is and b transposed, all of m, n, k
// and strides multiples of 16; a GPU of 8.9 or newer.
struct Gemm {
  int64_t m = 0, n = 0, k = 0;
  DType dtype = DType::kF32;  // of a, b and bias
  Matrix a, b;
  void* d = nullptr;
  DType d_dtype = DType::kF32;  // dtype, or f32
  int64_t d_stride = 0;
  bool accumulate = false;
  const void* bias = nullptr;  // none: null
  // On the device, {alpha, accumulate ? 1 : 0} as f32 (f64 when the operands are); null: alpha 1.
  const void* scales = nullptr;
};

// What a product needs of scratch, whatever its shape; 256-byte aligned. Two f32 parts of a weight
// gradient [17920, 1536] fit, so that its last wave of tiles can be split.
constexpr size_t kGemmScratch = size_t{256} << 20;

// In the calling thread's stream. The first product of a shape above 1 GFLOP waits for the stream:
// candidates are timed on the operands (written only to what is written anyway, or to memory taken
// for the moment), above 20 GFLOP for some two seconds; during the capture of a graph the library's
// first suggestion is taken. Shapes that cuBLASLt refuses run on a plain kernel. Thread-safe.
void matmul(const Gemm& gemm, void* scratch);

// Choices are read from and kept in the file that VITRINE_GEMM_CACHE names (empty: nowhere),
// otherwise <cache folder>/vitrine/gemm-<GPU>-<library version>.txt. Written when the process ends
// and here, if there are new ones; a place that cannot be written is no error.
void save_gemm_choices();

// The same product without a library: any shape and alignment, slow.
void plain_matmul(const Gemm& gemm);

}  // namespace vitrine::gpu
