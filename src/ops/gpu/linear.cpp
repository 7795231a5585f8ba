// linear: three matrix products and the bias. 2 m n k operations each; at the sizes of language
// models bound by the tensor cores (bf16 on H200: 0.75 PFLOP/s).
#include "ops/gpu/linear.h"

#include "gpu/runtime.h"
#include "ops/gpu/columns.h"
#include "ops/gpu/cublaslt.h"
#include "ops/gpu/gradient.h"
#include "ops/gpu/linear_fp8.h"
#include "ops/gpu/rows.h"

namespace vitrine::gpu {
namespace {

// y = x wᵀ + bias
void linear_forward(const OpCall& call) {
  if (fp8_linear(call)) return linear_fp8_forward(call);
  const int64_t n = call.in[1].shape[0], k = call.in[1].shape[1], m = rows_of(call.in[0].shape);
  const TensorView bias = operand(call.in, 2), y = call.out[0];
  // The library adds the bias before it rounds; it has no such form for f64.
  const bool fused =
      bias && y.dtype != DType::kF64 && reinterpret_cast<uintptr_t>(bias.data) % 16 == 0;
  matmul({.m = m,
          .n = n,
          .k = k,
          .dtype = y.dtype,
          .a = {call.in[0].data, k},
          .b = {call.in[1].data, k, true},
          .d = y.data,
          .d_dtype = y.dtype,
          .d_stride = n,
          .bias = fused ? bias.data : nullptr},
         workspace(kGemmScratch));
  if (bias && !fused) add_to_rows(y, m, n, bias);
}

// dw = dyᵀ x before dx = dy w: the reduction of dw over ranks can start while dx is computed.
void linear_backward(const OpCall& call, Views dout, Gradients din) {
  if (fp8_linear(call)) return linear_fp8_backward(call, dout, din);
  const int64_t n = call.in[1].shape[0], k = call.in[1].shape[1];
  const TensorView& dy = dout[0];
  const int64_t m = rows_of(dy.shape);
  linear_parameter_gradients(call, dy, din);
  const GradView dx = operand(din, 0);
  if (dx) {
    matmul({.m = m,
            .n = k,
            .k = n,
            .dtype = dy.dtype,
            .a = {dy.data, n},
            .b = {call.in[1].data, k},
            .d = dx.view.data,
            .d_dtype = dx.view.dtype,
            .d_stride = k,
            .accumulate = dx.accumulate},
           workspace(kGemmScratch));
  }
}

}  // namespace

void linear_parameter_gradients(const OpCall& call, const TensorView& dy, Gradients din) {
  const int64_t n = call.in[1].shape[0], k = call.in[1].shape[1];
  const int64_t m = rows_of(dy.shape);
  const GradView dw = operand(din, 1), dbias = operand(din, 2);
  const size_t sums = dbias ? column_sum_scratch(dy.dtype, m, n) : 0;
  char* scratch = static_cast<char*>(workspace(kGemmScratch + sums));
  if (dw) {
    matmul({.m = n,
            .n = k,
            .k = m,
            .dtype = dy.dtype,
            .a = {dy.data, n, true},
            .b = {call.in[0].data, k},
            .d = dw.view.data,
            .d_dtype = dw.view.dtype,
            .d_stride = k,
            .accumulate = dw.accumulate},
           scratch);
  }
  if (dbias) column_sum(dy, m, n, dbias, scratch + kGemmScratch);
}

void add_matmul_rows(Backend& backend) {
  backend.add("linear", {linear_forward, when_wanted<linear_backward>});
}

}  // namespace vitrine::gpu
