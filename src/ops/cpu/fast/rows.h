// Rows of any dtype as f32: f32 rows in place, narrow ones through a thread's scratch. Kernels are
// written once.
#pragma once

#include <algorithm>

#include "core/parallel.h"
#include "ops/cpu/fast/scratch.h"
#include "ops/cpu/operands.h"
#include "ops/op.h"

namespace vitrine::fast::VITRINE_ISA {

void widen(DType from, const void* source, int64_t offset, int64_t count, float* destination);
// destination = source rounded, or destination + source rounded.
void narrow(
    DType to, void* destination, int64_t offset, int64_t count, const float* source, bool add);

static inline const float* read_row(const TensorView& view,
                                    int64_t offset,
                                    int64_t count,
                                    Scratch where) {
  if (view.dtype == DType::kF32) return static_cast<const float*>(view.data) + offset;
  float* copy = scratch(where, count);
  widen(view.dtype, view.data, offset, count, copy);
  return copy;
}

// Where to compute a row that finish_row then puts in place.
static inline float* begin_row(const GradView& to, int64_t offset, int64_t count, Scratch where) {
  if (to.view.dtype == DType::kF32 && !to.accumulate)
    return static_cast<float*>(to.view.data) + offset;
  return scratch(where, count);
}
static inline void finish_row(const GradView& to, int64_t offset, int64_t count, const float* row) {
  if (to.view.dtype == DType::kF32 && !to.accumulate) return;
  narrow(to.view.dtype, to.view.data, offset, count, row, to.accumulate);
}
static inline float* begin_row(const TensorView& to, int64_t offset, int64_t count, Scratch where) {
  return begin_row(GradView{to, false}, offset, count, where);
}
static inline void finish_row(const TensorView& to,
                              int64_t offset,
                              int64_t count,
                              const float* row) {
  finish_row(GradView{to, false}, offset, count, row);
}

// Rows to a thread at least: below about 32k elements a second thread costs more than it saves.
static inline int64_t grain_rows(int64_t width) {
  return std::max<int64_t>(1, 32768 / std::max<int64_t>(1, width));
}

// Sums over rows: the rows are cut into parts by index, each part adds to its own `width` floats,
// and the parts are added in order. The cut depends on the number of threads alone.
template <typename Body>
static const float* sum_parts(int64_t rows, int64_t width, int64_t grain, const Body& body) {
  const int64_t parts = std::max<int64_t>(
      1, std::min<int64_t>(compute_threads(), rows / std::max<int64_t>(1, grain)));
  float* partial = scratch(Scratch::kPartial, parts * width);
  parallel_for(parts, 1, [&](int64_t first, int64_t last) {
    for (int64_t part = first; part < last; ++part) {
      float* sums = partial + part * width;
      for (int64_t c = 0; c < width; ++c) sums[c] = 0;
      body(rows * part / parts, rows * (part + 1) / parts, sums);
    }
  });
  for (int64_t part = 1; part < parts; ++part) {
    for (int64_t c = 0; c < width; ++c) partial[c] += partial[part * width + c];
  }
  return partial;
}

// Writes a whole small gradient from f32 sums.
static inline void store_sums(const GradView& gradient, const float* sums) {
  if (gradient)
    narrow(gradient.view.dtype,
           gradient.view.data,
           0,
           gradient.view.elements(),
           sums,
           gradient.accumulate);
}

// The rows of this instruction set, by family. f64 goes to the reference row.
void add_matmul(Backend& backend);
void add_norm(Backend& backend);
void add_attention(Backend& backend);
void add_pointwise(Backend& backend);
void add_layout(Backend& backend);

using Forward = void (*)(const OpCall&);
using Backward = void (*)(const OpCall&, std::span<const TensorView>, std::span<const GradView>);

// Sends f64 to the reference row, which computes wholly in double.
template <Forward F, Backward B>
struct FastRow {
  static inline OpKernels reference;
  static void forward(const OpCall& call) {
    if (call.out[0].dtype == DType::kF64) return reference.forward(call);
    F(call);
  }
  static void backward(const OpCall& call,
                       std::span<const TensorView> dout,
                       std::span<const GradView> din) {
    for (const TensorView& view : dout) {
      if (view && view.dtype == DType::kF64) return reference.backward(call, dout, din);
    }
    guarded<B>(call, dout, din);
  }
  static void add(Backend& backend, const char* op) {
    reference = reference_backend().kernels(op);
    backend.add(op, {forward, backward});
  }
};

}  // namespace vitrine::fast::VITRINE_ISA
