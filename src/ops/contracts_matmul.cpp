// Contracts of the operations that are one matrix product: linear, linear_cross_entropy, embedding.
#include <algorithm>

#include "core/format.h"
#include "ops/contracts.h"
#include "ops/fp8.h"

namespace vitrine::contracts {
namespace {

// linear: x[..., K], w[N, K], bias[N]? -> y[..., N]; saved in fp8, as far as they are kept: scales
// of x and w[8] f32, x8ᵀ[K, rows], w8ᵀ[K, N]
OpSignature infer_linear(const Attrs& attrs, Types in) {
  const char* op = "linear";
  const int64_t fp8 = whole(op, attrs, "fp8", 0, 0);
  if (fp8 > static_cast<int64_t>(Fp8Linears::kAllKept)) fail(op, "fp8 is 0 to 3");
  check_count(op, in, 2, 3);
  check_floating(op, in);
  check_rank_at_least(op, "x", in[0].shape, 1);
  const Shape& w = in[1].shape;
  if (w.rank() != 2 || w[1] != in[0].shape[-1]) {
    fail(op,
         format("expected w [N, %lld] for x %s, got %s",
                static_cast<long long>(in[0].shape[-1]),
                in[0].shape.str().c_str(),
                w.str().c_str()));
  }
  if (in.size() == 3) check_shape(op, "bias", in[2].shape, Shape{w[0]});
  OpSignature s{.out = {{in[0].shape.with_last(w[0]), in[0].dtype}}, .saved = {}};
  if (fp8 < static_cast<int64_t>(Fp8Linears::kInputsKept)) return s;
  if (in[1].dtype != in[0].dtype || !linear_in_fp8(attrs, in[0].shape, w, in[0].dtype)) return s;
  s.saved = {{Shape{8}, DType::kF32}, {Shape{w[1], in[0].shape.rows()}, DType::kU8}};
  if (fp8 == static_cast<int64_t>(Fp8Linears::kAllKept)) {
    s.saved.push_back({Shape{w[1], w[0]}, DType::kU8});
  }
  return s;
}

double product_flops(Types in) {
  return 2.0 * element_count(in[0]) * static_cast<double>(in[1].shape[0]);
}

Cost linear_forward_cost(const Attrs& attrs, Types in) {
  const OpSignature signature = infer_linear(attrs, in);
  const double bias = in.size() == 3 ? element_count(signature.out[0]) : 0;
  return {product_flops(in) + bias, forward_bytes(signature, in), true};
}

// dx = dy w and dw = dyᵀ x are two products of the forward's size; each reads dy.
Cost linear_backward_cost(const Attrs& attrs, Types in) {
  const OpSignature signature = infer_linear(attrs, in);
  const double bias = in.size() == 3 ? element_count(signature.out[0]) : 0;
  const double bytes = backward_bytes(find_op("linear"), signature, in) + sum_bytes(signature.out);
  return {2 * product_flops(in) + bias, bytes, true};
}

// linear_cross_entropy: x[..., D], w[V, D], targets[...] -> loss[1]; saved lse[rows], count[1], and
// logits[rows, V] or, with gradient_in_forward, dx[rows, D] and dw[V, D] of the sum of the losses.
bool gradient_in_forward(const Attrs& attrs) {
  return whole("linear_cross_entropy", attrs, "gradient_in_forward", 0, 0) != 0;
}

OpSignature infer_linear_cross_entropy(const Attrs& attrs, Types in) {
  const char* op = "linear_cross_entropy";
  check_count(op, in, 3, 3);
  check_floating(op, in.first(2));
  check_rank_at_least(op, "x", in[0].shape, 1);
  const int64_t chunk = whole(op, attrs, "chunk_rows", 0, 0);
  const Shape &x = in[0].shape, &w = in[1].shape;
  if (w.rank() != 2 || w[1] != x[-1] || w[0] < 1) {
    fail(op, "expected w [V, " + std::to_string(x[-1]) + "] for x " + x.str() + ", got " + w.str());
  }
  if (in[2].dtype != DType::kI32) {
    fail(op, std::string("targets must be i32, got ") + dtype_name(in[2].dtype));
  }
  std::vector<int64_t> leading = x.dims();
  leading.pop_back();
  check_shape(op, "targets", in[2].shape, Shape(leading));
  const DType dtype = in[0].dtype, statistics = wide(dtype);
  const int64_t rows = x.rows(), vocabulary = w[0];
  OpSignature s{.out = {{Shape{1}, statistics}},
                .saved = {{Shape{rows}, statistics}, {Shape{1}, statistics}}};
  const int64_t size = static_cast<int64_t>(dtype_bytes(dtype));
  const int64_t chunk_bytes = (chunk == 0 ? rows : std::min(chunk, rows)) * vocabulary * size;
  if (gradient_in_forward(attrs)) {
    s.saved.push_back({Shape{rows, x[-1]}, dtype});
    s.saved.push_back({w, statistics});
    s.forward_workspace = chunk_bytes;
    return s;
  }
  if (chunk == 0) {
    s.saved.push_back({Shape{rows, vocabulary}, dtype});
    return s;
  }
  s.forward_workspace = chunk_bytes;
  s.backward_workspace = s.forward_workspace;
  // The weight's gradient is summed over chunks in f32 before it is rounded to a narrow dtype.
  if (size < 4) s.backward_workspace += 64 + w.elements() * 4;
  return s;
}

Cost linear_cross_entropy_forward_cost(const Attrs& attrs, Types in) {
  const OpSignature s = infer_linear_cross_entropy(attrs, in);
  const double logits = static_cast<double>(in[0].shape.rows() * in[1].shape[0]);
  // max, subtract, exp, add; the logits are written once (counted as saved or workspace) and read
  // once.
  const double logit_bytes = logits * static_cast<double>(dtype_bytes(in[0].dtype));
  if (gradient_in_forward(attrs)) {
    // Logits are written, read and written as their gradient, then read by two products.
    return {3 * product_flops(in) + 6 * logits, forward_bytes(s, in) + 5 * logit_bytes, true};
  }
  const double extra = s.saved.size() == 3 ? logit_bytes : 2 * logit_bytes;
  return {product_flops(in) + 4 * logits, forward_bytes(s, in) + extra, true};
}

Cost linear_cross_entropy_backward_cost(const Attrs& attrs, Types in) {
  const OpSignature s = infer_linear_cross_entropy(attrs, in);
  const double logits = static_cast<double>(in[0].shape.rows() * in[1].shape[0]);
  if (gradient_in_forward(attrs)) {
    const double elements = element_count(in[0]) + element_count(in[1]);
    return {elements, sum_bytes(std::span(s.saved).subspan(2)) + sum_bytes(in.first(2)), false};
  }
  const double logit_bytes = logits * static_cast<double>(dtype_bytes(in[0].dtype));
  const bool chunked = s.saved.size() == 2;
  // Logits become their gradient in place (read, write), then two products read it.
  const double bytes =
      backward_bytes(find_op("linear_cross_entropy"), s, in) + (chunked ? 5 : 3) * logit_bytes;
  return {(chunked ? 3 : 2) * product_flops(in) + 4 * logits, bytes, true};
}

// embedding: ids[...] i32, table[V, D] -> y[..., D]
OpSignature infer_embedding(const Attrs&, Types in) {
  const char* op = "embedding";
  check_count(op, in, 2, 2);
  if (in[0].dtype != DType::kI32)
    fail(op, std::string("ids must be i32, got ") + dtype_name(in[0].dtype));
  check_floating(op, in.subspan(1));
  if (in[1].shape.rank() != 2) fail(op, "expected table [V, D], got " + in[1].shape.str());
  std::vector<int64_t> dims = in[0].shape.dims();
  dims.push_back(in[1].shape[1]);
  return {.out = {{Shape(dims), in[1].dtype}}, .saved = {}};
}

// Only the rows asked for are read.
Cost embedding_forward_cost(const Attrs& attrs, Types in) {
  const OpSignature s = infer_embedding(attrs, in);
  return {0, sum_bytes(in.first(1)) + 2 * sum_bytes(s.out), false};
}

Cost embedding_backward_cost(const Attrs& attrs, Types in) {
  const OpSignature s = infer_embedding(attrs, in);
  return {element_count(s.out[0]), backward_bytes(find_op("embedding"), s, in), false};
}

}  // namespace

std::vector<OpDef> matmul_ops() {
  return {
      {"linear",
       2,
       3,
       0b111,
       0b011,
       0,
       infer_linear,
       linear_forward_cost,
       linear_backward_cost,
       0b111},
      {"linear_cross_entropy",
       3,
       3,
       0b011,
       0b111,
       0,
       infer_linear_cross_entropy,
       linear_cross_entropy_forward_cost,
       linear_cross_entropy_backward_cost,
       0b1000},  // dw: without it neither gradient is made
      {"embedding",
       2,
       2,
       0b10,
       0b01,
       0,
       infer_embedding,
       embedding_forward_cost,
       embedding_backward_cost},
  };
}

}  // namespace vitrine::contracts
