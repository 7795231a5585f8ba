// linear with 8-bit operands: tensor cores at twice the rate of bf16, for roundings that memory
// pays. Both operands of an fp8 product have to lie along the sum on Hopper, so the backward reads
// transposed copies.
//
// Bytes of the roundings: 6 (m k + n k + m n), of which finding the largest magnitudes is 2, spared
// where the operation before has noted it; 10 (m k + n k) + 6 m n where no copies are kept from
// forward. At m = 8192 and the widths of a 7B model, in ms on H200 (products as measured
// one by one; roundings at 4.1 TB/s, w_gate_up's dy and w_down's x noted by swiglu):
//                         bf16: fwd, bwd     fp8 products        roundings
//   n 4608  k 3584        0.33, 0.67         0.19, 0.38          0.12
//   n 3584  k 3584        0.26, 0.55         0.15, 0.31          0.10
//   n 37888 k 3584        2.76, 5.77         1.81, 3.46          0.55
//   n 3584  k 18944       1.53, 2.93         0.84, 1.76          0.29
#include "ops/gpu/linear_fp8.h"

#include <algorithm>

#include "ops/gpu/columns.h"
#include "ops/gpu/cublaslt.h"
#include "ops/gpu/fp8.h"

namespace vitrine::gpu {
namespace {

// Pieces of one workspace, 256-byte aligned.
class Cutter {
 public:
  size_t add(int64_t bytes) {
    const size_t begin = total_;
    total_ += (static_cast<size_t>(bytes) + 255) / 256 * 256;
    return begin;
  }
  size_t total() const { return total_; }

 private:
  size_t total_ = 0;
};

Matrix fp8_matrix(void* data, int64_t stride, bool transposed, Fp8 format, const Fp8Scale* scale) {
  return {data, stride, transposed, format, &scale->inverse};
}

// Of forward, for backward; null where it is not kept.
struct Kept {
  explicit Kept(const OpCall& call) {
    const auto at = [&](size_t i) { return i < call.saved.size() ? call.saved[i].data : nullptr; };
    scales = static_cast<Fp8Scale*>(at(0));
    x = at(1);
    w = at(2);
  }
  Fp8Scale* scales;  // of x and w
  void *x, *w;       // transposed copies
};

constexpr int kScales = 3;  // of x, w, dy
constexpr int64_t kScaleBytes = kScales * static_cast<int64_t>(sizeof(Fp8Scale));

}  // namespace

bool fp8_linear(const OpCall& call) {
  const TensorView &x = call.in[0], &w = call.in[1];
  if (!linear_in_fp8(*call.attrs, x.shape, w.shape, w.dtype)) return false;
  return limits().major * 10 + limits().minor >= kFp8Architecture;
}

void linear_fp8_forward(const OpCall& call) {
  const TensorView &x = call.in[0], &w = call.in[1], &y = call.out[0];
  const int64_t n = w.shape[0], k = w.shape[1], m = x.elements() / k;
  const uint32_t* noted = noted_amax(x.data, m * k);  // before anything is issued
  const Kept kept(call);
  Cutter cut;
  const size_t product = cut.add(kGemmScratch), scale_bytes = cut.add(kScaleBytes);
  const size_t x_bytes = cut.add(m * k), w_bytes = cut.add(n * k);
  char* scratch = static_cast<char*>(workspace(cut.total()));
  Fp8Scale* scales = kept.scales;
  if (!scales) scales = reinterpret_cast<Fp8Scale*>(scratch + scale_bytes);
  char *x8 = scratch + x_bytes, *w8 = scratch + w_bytes;
  clear_fp8_scales(scales, 2);
  to_fp8(x.data, m, k, Fp8::kE4M3, noted, &scales[0], {x8, kept.x});
  to_fp8(w.data, n, k, Fp8::kE4M3, nullptr, &scales[1], {w8, kept.w});
  const TensorView bias = operand(call.in, 2);
  const bool fused = bias && reinterpret_cast<uintptr_t>(bias.data) % 16 == 0;
  matmul({.m = m,
          .n = n,
          .k = k,
          .dtype = y.dtype,
          .a = fp8_matrix(x8, k, false, Fp8::kE4M3, &scales[0]),
          .b = fp8_matrix(w8, k, true, Fp8::kE4M3, &scales[1]),
          .d = y.data,
          .d_dtype = y.dtype,
          .d_stride = n,
          .bias = fused ? bias.data : nullptr},
         scratch + product);
  if (bias && !fused) add_to_rows(y, m, n, bias);
}

// dw first, as in bf16; copies of x and w that were not kept take turns in one place.
void linear_fp8_backward(const OpCall& call, Views dout, Gradients din) {
  const TensorView &x = call.in[0], &w = call.in[1], &dy = dout[0];
  const int64_t n = w.shape[0], k = w.shape[1], m = dy.elements() / n;
  const GradView dx = operand(din, 0), dw = operand(din, 1), dbias = operand(din, 2);
  const uint32_t* noted = noted_amax(dy.data, m * n);  // before anything is issued
  const Kept kept(call);
  Cutter cut;
  const size_t product = cut.add(kGemmScratch), scale_bytes = cut.add(kScaleBytes);
  const size_t sums = cut.add(dbias ? static_cast<int64_t>(column_sum_scratch(dy.dtype, m, n)) : 0);
  const size_t dy_bytes = cut.add(dx ? m * n : 0), dyt_bytes = cut.add(dw ? m * n : 0);
  const size_t other_bytes =
      cut.add(std::max(dw && !kept.x ? m * k : 0, dx && !kept.w ? n * k : 0));
  char* scratch = static_cast<char*>(workspace(cut.total()));
  auto* scales = reinterpret_cast<Fp8Scale*>(scratch + scale_bytes);
  char *dy8 = scratch + dy_bytes, *dyt8 = scratch + dyt_bytes, *other8 = scratch + other_bytes;
  if (dw || dx) {
    clear_fp8_scales(scales, kScales);
    to_fp8(dy.data,
           m,
           n,
           Fp8::kE5M2,
           noted,
           &scales[2],
           {.as_it_is = dx ? dy8 : nullptr, .transposed = dw ? dyt8 : nullptr});
  }
  // The transposed copy of x or w, kept or made again; a kept scale spares the search.
  const auto transposed = [&](const TensorView& from, int64_t rows, int which, void* copy) {
    if (copy) return fp8_matrix(copy, rows, true, Fp8::kE4M3, &kept.scales[which]);
    const uint32_t* amax = kept.scales ? &kept.scales[which].amax_bits : nullptr;
    to_fp8(from.data, rows, k, Fp8::kE4M3, amax, &scales[which], {.transposed = other8});
    return fp8_matrix(other8, rows, true, Fp8::kE4M3, &scales[which]);
  };
  if (dw) {
    matmul({.m = n,
            .n = k,
            .k = m,
            .dtype = dy.dtype,
            .a = fp8_matrix(dyt8, m, false, Fp8::kE5M2, &scales[2]),
            .b = transposed(x, m, 0, kept.x),
            .d = dw.view.data,
            .d_dtype = dw.view.dtype,
            .d_stride = k,
            .accumulate = dw.accumulate},
           scratch + product);
  }
  if (dbias) column_sum(dy, m, n, dbias, scratch + sums);
  if (dx) {
    matmul({.m = m,
            .n = k,
            .k = n,
            .dtype = dy.dtype,
            .a = fp8_matrix(dy8, n, false, Fp8::kE5M2, &scales[2]),
            .b = transposed(w, n, 1, kept.w),
            .d = dx.view.data,
            .d_dtype = dx.view.dtype,
            .d_stride = k,
            .accumulate = dx.accumulate},
           scratch + product);
  }
}

}  // namespace vitrine::gpu
