// linear_cross_entropy: logits as a product with the vocabulary, rows of softmax, two products
// back. 2 rows V D operations a product, three of them in a step (four when chunks of logits are
// made again). d logits is kept as softmax - onehot, which every dtype can hold; the loss's
// gradient over the count is read from the device by the products that follow.
#include <algorithm>

#include "gpu/runtime.h"
#include "ops/gpu/columns.h"
#include "ops/gpu/cublaslt.h"
#include "ops/gpu/gradient.h"
#include "ops/gpu/rows.h"
#include "ops/gpu/softmax_rows.h"

namespace vitrine::gpu {
namespace {

size_t rounded(int64_t bytes) { return (static_cast<size_t>(bytes) + 255) / 256 * 256; }

// Sizes of one call and its pieces of scratch: the products', row losses or scales, one chunk of
// logits, a sum of dw in f32.
struct Problem {
  int64_t rows, depth, vocabulary, chunk;
  DType dtype, wide;
  const int32_t* target;
  void *x, *w;
  TensorView logits;  // saved, or null

  explicit Problem(const OpCall& call)
      : rows(call.in[2].elements()),
        depth(call.in[1].shape[1]),
        vocabulary(call.in[1].shape[0]),
        chunk(call.attrs->integer("chunk_rows", 0)),
        dtype(call.in[0].dtype),
        wide(dtype == DType::kF64 ? DType::kF64 : DType::kF32),
        target(call.in[2].as<int32_t>()),
        x(call.in[0].data),
        w(call.in[1].data) {
    if (chunk == 0 || chunk > rows) chunk = std::max<int64_t>(rows, 1);
  }

  int64_t size() const { return static_cast<int64_t>(dtype_bytes(dtype)); }
  int64_t wide_size() const { return static_cast<int64_t>(dtype_bytes(wide)); }
  size_t row_bytes() const { return rounded(std::max<int64_t>(rows, 4) * wide_size()); }
  size_t chunk_bytes() const { return logits ? 0 : rounded(chunk * vocabulary * size()); }
  char* x_at(int64_t row) const { return static_cast<char*>(x) + row * depth * size(); }
};

struct Scratch {
  void* gemm;
  char* rows;    // of the wide dtype, one a row (at least four)
  void* logits;  // one chunk, where none are saved
  void* dw;      // f32

  Scratch(const Problem& p, size_t dw_bytes) {
    char* all =
        static_cast<char*>(workspace(kGemmScratch + p.row_bytes() + p.chunk_bytes() + dw_bytes));
    gemm = all;
    rows = all + kGemmScratch;
    logits = rows + p.row_bytes();
    dw = rows + p.row_bytes() + p.chunk_bytes();
  }
};

// Rows [first, first + rows) of the logits.
LogitRows logit_rows(const Problem& p, const Scratch& scratch, const OpCall& call, int64_t first) {
  LogitRows rows;
  rows.dtype = p.dtype;
  rows.logits = p.logits ? static_cast<char*>(p.logits.data) + first * p.vocabulary * p.size()
                         : static_cast<char*>(scratch.logits);
  rows.target = p.target + first;
  rows.rows = std::min(p.chunk, p.rows - first);
  rows.vocabulary = p.vocabulary;
  rows.first_row = first;
  rows.lse = call.saved[0].as<char>() + first * p.wide_size();
  rows.row_loss = scratch.rows + first * p.wide_size();
  return rows;
}

// logits = x wᵀ
void make_logits(const Problem& p, const Scratch& scratch, const LogitRows& rows) {
  matmul({.m = rows.rows,
          .n = p.vocabulary,
          .k = p.depth,
          .dtype = p.dtype,
          .a = {p.x_at(rows.first_row), p.depth},
          .b = {p.w, p.depth, true},
          .d = rows.logits,
          .d_dtype = p.dtype,
          .d_stride = p.vocabulary},
         scratch.gemm);
}

// dw[V, D] (+)= alpha d logitsᵀ x, and dx[rows, D] (+)= alpha d logits w.
void weight_gradient(const Problem& p,
                     const Scratch& scratch,
                     const LogitRows& rows,
                     const GradView& dw,
                     const void* scales) {
  matmul({.m = p.vocabulary,
          .n = p.depth,
          .k = rows.rows,
          .dtype = p.dtype,
          .a = {rows.logits, p.vocabulary, true},
          .b = {p.x_at(rows.first_row), p.depth},
          .d = dw.view.data,
          .d_dtype = dw.view.dtype,
          .d_stride = p.depth,
          .accumulate = dw.accumulate,
          .scales = scales},
         scratch.gemm);
}

void input_gradient(const Problem& p,
                    const Scratch& scratch,
                    const LogitRows& rows,
                    const GradView& dx,
                    const void* scales) {
  const int64_t size = static_cast<int64_t>(dtype_bytes(dx.view.dtype));
  matmul({.m = rows.rows,
          .n = p.depth,
          .k = p.vocabulary,
          .dtype = p.dtype,
          .a = {rows.logits, p.vocabulary},
          .b = {p.w, p.depth},
          .d = dx.view.as<char>() + rows.first_row * p.depth * size,
          .d_dtype = dx.view.dtype,
          .d_stride = p.depth,
          .accumulate = dx.accumulate,
          .scales = scales},
         scratch.gemm);
}

bool in_forward(const OpCall& call) { return call.attrs->integer("gradient_in_forward", 0) != 0; }

void cross_entropy_forward(const OpCall& call) {
  Problem p(call);
  const bool gradients = in_forward(call) && call.saved[3];
  if (!in_forward(call)) p.logits = operand(call.saved, 2);
  const Scratch scratch(p, 0);
  const GradView dx{gradients ? call.saved[2] : TensorView{}, false};
  GradView dw{gradients ? call.saved[3] : TensorView{}, false};
  if (gradients && p.rows == 0) clear_gradient(dw);
  for (int64_t first = 0; first < p.rows; first += p.chunk) {
    const LogitRows rows = logit_rows(p, scratch, call, first);
    make_logits(p, scratch, rows);
    if (!gradients) {
      softmax_statistics(rows);
      continue;
    }
    softmax_loss_and_gradient(rows);
    weight_gradient(p, scratch, rows, dw, nullptr);
    input_gradient(p, scratch, rows, dx, nullptr);
    dw.accumulate = true;
  }
  mean_loss(
      p.dtype, p.target, p.rows, p.vocabulary, scratch.rows, call.out[0].data, call.saved[1].data);
}

// Forward left the gradients of the sum of the rows' losses.
void scale_saved_gradients(const Problem& p, const OpCall& call, Views dout, Gradients din) {
  const Scratch scratch(p, 0);
  loss_scales(p.dtype, dout[0].data, call.saved[1].data, scratch.rows);
  for (size_t i = 0; i < 2; ++i) {
    const GradView gradient = operand(din, i);
    const TensorView& saved = call.saved[2 + i];
    if (gradient) store_scaled(gradient, saved.dtype, saved.data, scratch.rows);
  }
}

void cross_entropy_backward(const OpCall& call, Views dout, Gradients din) {
  Problem p(call);
  if (in_forward(call)) return scale_saved_gradients(p, call, dout, din);
  p.logits = operand(call.saved, 2);
  const GradView dx = operand(din, 0), dw = operand(din, 1);
  if (p.rows == 0) return clear_gradient(dw);
  // Over several chunks a narrow dw is summed in f32, so that it is rounded once.
  const bool summed = dw && p.chunk < p.rows && dtype_bytes(dw.view.dtype) < 4;
  const Scratch scratch(p, summed ? rounded(dw.view.elements() * 4) : 0);
  const char *scales = scratch.rows, *adding_scales = scales + 2 * p.wide_size();
  loss_scales(p.dtype, dout[0].data, call.saved[1].data, scratch.rows);
  // f16 cannot hold softmax / rows: there the products scale, reading the factor on the device.
  const bool late = p.dtype == DType::kF16;
  GradView sum = dw;
  if (summed) sum = {{scratch.dw, dw.view.shape, DType::kF32}, false};
  for (int64_t first = 0; first < p.rows; first += p.chunk) {
    const LogitRows rows = logit_rows(p, scratch, call, first);
    if (!p.logits) make_logits(p, scratch, rows);
    softmax_gradient(rows, late ? nullptr : scales);
    const auto scales_for = [&](const GradView& gradient) {
      return late ? gradient.accumulate ? adding_scales : scales : nullptr;
    };
    if (dw) weight_gradient(p, scratch, rows, sum, scales_for(sum));
    if (dx) input_gradient(p, scratch, rows, dx, scales_for(dx));
    sum.accumulate = true;
  }
  if (summed) store_scaled(dw, DType::kF32, scratch.dw, nullptr);
}

}  // namespace

void add_cross_entropy_rows(Backend& backend) {
  backend.add("linear_cross_entropy", {cross_entropy_forward, when_wanted<cross_entropy_backward>});
}

}  // namespace vitrine::gpu
