// Fast rows of linear, linear_cross_entropy and embedding.
#include <cmath>

#include "ops/cpu/fast/gemm.h"
#include "ops/cpu/fast/rows.h"
#include "ops/cpu/fast/vector_math.h"
#include "ops/cpu/ids.h"
#include "ops/fp8.h"

namespace vitrine::fast::VITRINE_ISA {
namespace {

using Gradients = std::span<const GradView>;
using Views = std::span<const TensorView>;

Matrix matrix(const TensorView& view, int64_t stride, bool transposed = false) {
  return {view.data, view.dtype, stride, transposed};
}

// An operand of linear; where the call is in fp8, an f32 copy that went through `format`.
TensorView operand_of(const OpCall& call, const TensorView& view, Fp8 format, Scratch where) {
  if (!linear_in_fp8(*call.attrs, call.in[0].shape, call.in[1].shape, view.dtype)) return view;
  const int64_t count = view.elements(), grain = grain_rows(1);
  float* copy = scratch(where, count);
  widen(view.dtype, view.data, 0, count, copy);
  const float scale = fp8_scale(largest_magnitude(copy, count), format);
  parallel_for(count, grain, [&](int64_t begin, int64_t end) {
    through_fp8(copy + begin, end - begin, scale, format);
  });
  return {copy, view.shape, DType::kF32};
}

// The bias is laid down first and the product added to it, so that the sum is rounded once.
void linear_forward(const OpCall& call) {
  const int64_t n = call.in[1].shape[0], k = call.in[1].shape[1], m = call.in[0].shape.rows();
  const TensorView bias = operand(call.in, 2), y = call.out[0];
  if (bias) {
    const size_t bytes = static_cast<size_t>(n) * dtype_bytes(y.dtype);
    parallel_for(m, grain_rows(n), [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r)
        std::memcpy(static_cast<char*>(y.data) + static_cast<size_t>(r) * bytes, bias.data, bytes);
    });
  }
  gemm(m,
       n,
       k,
       matrix(operand_of(call, call.in[0], Fp8::kE4M3, Scratch::kRoundedX), k),
       matrix(operand_of(call, call.in[1], Fp8::kE4M3, Scratch::kRoundedW), k, true),
       {y.data, y.dtype, n, bool(bias)});
}

void column_sums(const TensorView& dy, int64_t rows, int64_t width, const GradView& gradient) {
  const float* sums =
      sum_parts(rows, width, grain_rows(width), [&](int64_t begin, int64_t end, float* sum) {
        for (int64_t r = begin; r < end; ++r) {
          const float* row = read_row(dy, r * width, width, Scratch::kRowA);
#pragma omp simd
          for (int64_t c = 0; c < width; ++c) sum[c] += row[c];
        }
      });
  store_sums(gradient, sums);
}

void linear_backward(const OpCall& call, Views dout, Gradients din) {
  const int64_t n = call.in[1].shape[0], k = call.in[1].shape[1], m = call.in[0].shape.rows();
  const TensorView dy = operand_of(call, dout[0], Fp8::kE5M2, Scratch::kRoundedGradient);
  const GradView dx = operand(din, 0), dw = operand(din, 1), dbias = operand(din, 2);
  if (dx)
    gemm(m,
         k,
         n,
         matrix(dy, n),
         matrix(operand_of(call, call.in[1], Fp8::kE4M3, Scratch::kRoundedW), k),
         {dx.view.data, dx.view.dtype, k, dx.accumulate});
  if (dw)
    gemm(n,
         k,
         m,
         matrix(dy, n, true),
         matrix(operand_of(call, call.in[0], Fp8::kE4M3, Scratch::kRoundedX), k),
         {dw.view.data, dw.view.dtype, k, dw.accumulate});
  if (dbias) column_sums(dout[0], m, n, dbias);
}

// One block of rows of linear_cross_entropy with its logits[rows, V].
struct LogitBlock {
  TensorView logits;
  const int32_t* target;
  float* lse;
  int64_t rows, vocabulary;
};

int64_t offset_bytes(const TensorView& view, int64_t elements) {
  return elements * static_cast<int64_t>(dtype_bytes(view.dtype));
}

Matrix x_rows(const TensorView& x, int64_t first, int64_t depth, bool transposed) {
  return {static_cast<char*>(x.data) + offset_bytes(x, first * depth), x.dtype, depth, transposed};
}

void make_logits(const OpCall& call, const LogitBlock& block, int64_t first) {
  const int64_t depth = call.in[1].shape[1];
  gemm(block.rows,
       block.vocabulary,
       depth,
       x_rows(call.in[0], first, depth, false),
       matrix(call.in[1], depth, true),
       {block.logits.data, block.logits.dtype, block.vocabulary});
}

float row_lse(const float* row, int64_t count) {
  float highest = row[0], sum = 0;
#pragma omp simd reduction(max : highest)
  for (int64_t v = 0; v < count; ++v) highest = row[v] > highest ? row[v] : highest;
#pragma omp simd reduction(+ : sum)
  for (int64_t v = 0; v < count; ++v) sum += vexp(row[v] - highest);
  return highest + std::log(sum);
}

void losses_of(const LogitBlock& block, float* row_loss) {
  parallel_for(block.rows, grain_rows(block.vocabulary), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* row =
          read_row(block.logits, r * block.vocabulary, block.vocabulary, Scratch::kRowA);
      block.lse[r] = row_lse(row, block.vocabulary);
      row_loss[r] = block.target[r] < 0 ? 0.0f : block.lse[r] - row[block.target[r]];
    }
  });
}

// Logits become factor (p - onehot), in place; rows without a target become 0.
void logits_to_gradient(const LogitBlock& block, float factor) {
  parallel_for(block.rows, grain_rows(block.vocabulary), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t place = r * block.vocabulary;
      const bool used = block.target[r] >= 0;
      const float* row = read_row(block.logits, place, block.vocabulary, Scratch::kRowA);
      float* gradient = begin_row(block.logits, place, block.vocabulary, Scratch::kRowB);
      const float lse = block.lse[r], scale = used ? factor : 0.0f;
      if (used) {
#pragma omp simd
        for (int64_t v = 0; v < block.vocabulary; ++v) gradient[v] = scale * vexp(row[v] - lse);
        gradient[block.target[r]] -= scale;
      } else {
        for (int64_t v = 0; v < block.vocabulary; ++v) gradient[v] = 0;
      }
      finish_row(block.logits, place, block.vocabulary, gradient);
    }
  });
}

// Rows of all logits, or of one chunk; where the block's logits lie: saved whole, or in the
// workspace.
int64_t block_rows(const OpCall& call) {
  const int64_t rows = call.in[0].shape.rows(), chunk = call.attrs->integer("chunk_rows", 0);
  return chunk == 0 ? rows : std::min(rows, chunk);
}

bool gradient_in_forward(const OpCall& call) {
  return call.attrs->integer("gradient_in_forward", 0) != 0;
}

LogitBlock block_at(const OpCall& call, int64_t first, int64_t count) {
  const int64_t vocabulary = call.in[1].shape[0];
  TensorView logits = gradient_in_forward(call) ? TensorView{} : operand(call.saved, 2);
  if (!logits) logits = {call.workspace, Shape{count, vocabulary}, call.in[0].dtype};
  return {logits,
          call.in[2].as<int32_t>() + first,
          call.saved[0].as<float>() + first,
          count,
          vocabulary};
}

// dx of the block's rows, from d logits.
void input_gradient(
    const OpCall& call, const LogitBlock& block, int64_t first, const GradView& dx, float alpha) {
  const int64_t depth = call.in[1].shape[1];
  void* place = static_cast<char*>(dx.view.data) + offset_bytes(dx.view, first * depth);
  gemm(block.rows,
       depth,
       block.vocabulary,
       matrix(block.logits, block.vocabulary),
       matrix(call.in[1], depth),
       {place, dx.view.dtype, depth, dx.accumulate},
       alpha);
}

// dw over the block's rows.
void weight_gradient(
    const OpCall& call, const LogitBlock& block, int64_t first, const MatrixOut& dw, float alpha) {
  const int64_t depth = call.in[1].shape[1];
  gemm(block.vocabulary,
       depth,
       block.rows,
       matrix(block.logits, block.vocabulary, true),
       x_rows(call.in[0], first, depth, false),
       dw,
       alpha);
}

void linear_cross_entropy_forward(const OpCall& call) {
  const int64_t rows = call.in[0].shape.rows(), step = block_rows(call);
  check_ids("linear_cross_entropy", call.in[2], call.in[1].shape[0], true);
  float* row_loss = scratch(Scratch::kRowLoss, rows);
  for (int64_t first = 0; first < rows; first += step) {
    const LogitBlock block = block_at(call, first, std::min(step, rows - first));
    make_logits(call, block, first);
    losses_of(block, row_loss + first);
    if (!gradient_in_forward(call) || !call.saved[3]) continue;
    logits_to_gradient(block, 1.0f);
    input_gradient(call, block, first, {call.saved[2], false}, 1.0f);
    const TensorView& dw = call.saved[3];
    weight_gradient(call, block, first, {dw.data, dw.dtype, dw.shape[1], first > 0}, 1.0f);
  }
  double loss = 0;
  int64_t count = 0;
  for (int64_t r = 0; r < rows; ++r) {
    loss += static_cast<double>(row_loss[r]);
    count += call.in[2].as<int32_t>()[r] >= 0;
  }
  *call.saved[1].as<float>() = static_cast<float>(count);
  *call.out[0].as<float>() = count ? static_cast<float>(loss / static_cast<double>(count)) : 0.0f;
}

// gradient (+)= scale * saved
void store_scaled(const GradView& gradient, const TensorView& saved, float scale) {
  if (!gradient) return;
  const int64_t width = saved.shape[-1];
  parallel_for(saved.shape[0], grain_rows(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* from = read_row(saved, r * width, width, Scratch::kRowA);
      float* to = begin_row(gradient, r * width, width, Scratch::kRowB);
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) to[c] = scale * from[c];
      finish_row(gradient, r * width, width, to);
    }
  });
}

void linear_cross_entropy_backward(const OpCall& call, Views dout, Gradients din) {
  const float count = *call.saved[1].as<float>();
  const float scale = count > 0 ? *dout[0].as<float>() / count : 0.0f;
  if (gradient_in_forward(call)) {
    store_scaled(operand(din, 0), call.saved[2], scale);
    store_scaled(operand(din, 1), call.saved[3], scale);
    return;
  }
  const int64_t rows = call.in[0].shape.rows(), step = block_rows(call);
  const int64_t vocabulary = call.in[1].shape[0], depth = call.in[1].shape[1];
  // f16 can't hold p / rows, so there p - onehot is kept and the scale applied to the products.
  const bool late = call.in[0].dtype == DType::kF16;
  const float alpha = late ? scale : 1.0f;
  const bool chunked = !operand(call.saved, 2);
  const GradView dx = operand(din, 0), dw = operand(din, 1);
  // Over several chunks a narrow gradient is summed in f32, behind the chunk's logits.
  const bool summed = dw && chunked && dw.view.dtype != DType::kF32 && step < rows;
  MatrixOut dw_out{dw.view.data, dw.view.dtype, depth, dw.accumulate};
  if (summed) {
    const int64_t logit_bytes = offset_bytes(call.in[0], step * vocabulary);
    dw_out = {static_cast<char*>(call.workspace) + (logit_bytes + 63) / 64 * 64,
              DType::kF32,
              depth,
              false};
  }
  for (int64_t first = 0; first < rows; first += step) {
    const LogitBlock block = block_at(call, first, std::min(step, rows - first));
    if (chunked) make_logits(call, block, first);
    logits_to_gradient(block, late ? 1.0f : scale);
    if (dx) input_gradient(call, block, first, dx, alpha);
    if (dw) weight_gradient(call, block, first, dw_out, alpha);
    dw_out.accumulate = true;
  }
  if (summed) store_sums(dw, static_cast<const float*>(dw_out.data));
}

void embedding_forward(const OpCall& call) {
  const int64_t vocabulary = call.in[1].shape[0], depth = call.in[1].shape[1];
  check_ids("embedding", call.in[0], vocabulary, false);
  const size_t bytes = static_cast<size_t>(depth) * dtype_bytes(call.in[1].dtype);
  const int32_t* id = call.in[0].as<int32_t>();
  const char* table = call.in[1].as<char>();
  char* y = call.out[0].as<char>();
  parallel_for(call.in[0].elements(), grain_rows(depth), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      std::memcpy(
          y + static_cast<size_t>(r) * bytes, table + static_cast<size_t>(id[r]) * bytes, bytes);
    }
  });
}

// Rows are sorted by id (a stable counting sort); each table row then sums its own in order, on any
// thread.
void embedding_backward(const OpCall& call, Views dout, Gradients din) {
  const GradView gradient = operand(din, 1);
  if (!gradient) return;
  const int64_t rows = call.in[0].elements();
  const int64_t vocabulary = gradient.view.shape[0], depth = gradient.view.shape[1];
  const int32_t* id = call.in[0].as<int32_t>();
  int32_t* begin_of = reinterpret_cast<int32_t*>(scratch(Scratch::kSort, vocabulary + 2 + rows));
  int32_t* sorted = begin_of + vocabulary + 2;
  std::fill(begin_of, begin_of + vocabulary + 2, 0);
  for (int64_t r = 0; r < rows; ++r) ++begin_of[id[r] + 2];
  for (int64_t v = 2; v < vocabulary + 2; ++v) begin_of[v] += begin_of[v - 1];
  for (int64_t r = 0; r < rows; ++r) sorted[begin_of[id[r] + 1]++] = static_cast<int32_t>(r);
  parallel_for(vocabulary, grain_rows(depth), [&](int64_t begin, int64_t end) {
    for (int64_t v = begin; v < end; ++v) {
      if (begin_of[v] == begin_of[v + 1] && gradient.accumulate) continue;
      float* sum = begin_row(gradient, v * depth, depth, Scratch::kRowB);
      for (int64_t c = 0; c < depth; ++c) sum[c] = 0;
      for (int32_t i = begin_of[v]; i < begin_of[v + 1]; ++i) {
        const float* row = read_row(dout[0], sorted[i] * depth, depth, Scratch::kRowA);
#pragma omp simd
        for (int64_t c = 0; c < depth; ++c) sum[c] += row[c];
      }
      finish_row(gradient, v * depth, depth, sum);
    }
  });
}

}  // namespace

void add_matmul(Backend& backend) {
  FastRow<linear_forward, linear_backward>::add(backend, "linear");
  FastRow<linear_cross_entropy_forward, linear_cross_entropy_backward>::add(backend,
                                                                            "linear_cross_entropy");
  FastRow<embedding_forward, embedding_backward>::add(backend, "embedding");
}

}  // namespace vitrine::fast::VITRINE_ISA
