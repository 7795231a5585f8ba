// Fast rows of the operations that move or gather elements, of add_broadcast and of rotary.
#include "ops/cpu/fast/rotary_table.h"
#include "ops/cpu/fast/rows.h"

namespace vitrine::fast::VITRINE_ISA {
namespace {

using Gradients = std::span<const GradView>;
using Views = std::span<const TensorView>;

// Copies `count` elements, or adds them, converting where the dtypes differ.
void move_row(
    const TensorView& from, int64_t from_at, const GradView& to, int64_t to_at, int64_t count) {
  if (from.dtype == to.view.dtype && !to.accumulate) {
    const size_t size = dtype_bytes(from.dtype);
    std::memcpy(static_cast<char*>(to.view.data) + static_cast<size_t>(to_at) * size,
                static_cast<const char*>(from.data) + static_cast<size_t>(from_at) * size,
                static_cast<size_t>(count) * size);
    return;
  }
  const float* row = read_row(from, from_at, count, Scratch::kRowE);
  narrow(to.view.dtype, to.view.data, to_at, count, row, to.accumulate);
}

void clear_row(const GradView& to, int64_t at, int64_t count) {
  if (to.accumulate) return;
  const size_t size = dtype_bytes(to.view.dtype);
  std::memset(static_cast<char*>(to.view.data) + static_cast<size_t>(at) * size,
              0,
              static_cast<size_t>(count) * size);
}

GradView written(const TensorView& view) { return {view, false}; }

// Lines of P C elements are whole both in frames[B, T, Y, X, C] and in z[B, T, S, P P C].
template <bool ToPatches>
void move_patches(const TensorView& from, const GradView& to, const Shape& frames, int64_t patch) {
  const int64_t height = frames[2], across = frames[3] / patch, line = patch * frames[4];
  const int64_t lines = frames[0] * frames[1] * height;  // a row of pixels
  parallel_for(lines, grain_rows(across * line), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t frame = row / height, y = row % height;
      for (int64_t x = 0; x < across; ++x) {
        const int64_t pixel = (row * across + x) * line;
        const int64_t s = (frame * (height / patch) + y / patch) * across + x;
        const int64_t z = (s * patch + y % patch) * line;
        move_row(from, ToPatches ? pixel : z, to, ToPatches ? z : pixel, line);
      }
    }
  });
}

void patchify_forward(const OpCall& call) {
  move_patches<true>(
      call.in[0], written(call.out[0]), call.in[0].shape, call.attrs->integer("patch"));
}
void patchify_backward(const OpCall& call, Views dout, Gradients din) {
  move_patches<false>(dout[0], din[0], din[0].view.shape, call.attrs->integer("patch"));
}
void unpatchify_forward(const OpCall& call) {
  move_patches<false>(
      call.in[0], written(call.out[0]), call.out[0].shape, call.attrs->integer("patch"));
}
void unpatchify_backward(const OpCall& call, Views dout, Gradients din) {
  move_patches<true>(dout[0], din[0], dout[0].shape, call.attrs->integer("patch"));
}

// z[B, T, S, C]: the same place a frame before is S rows back.
void frame_difference_forward(const OpCall& call) {
  const Shape& shape = call.in[0].shape;
  const int64_t tokens = shape[2], width = shape[3];
  parallel_for(shape.rows(), grain_rows(3 * width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float* z = read_row(call.in[0], r * width, width, Scratch::kRowA);
      float* y = begin_row(call.out[0], 2 * r * width, 2 * width, Scratch::kRowC);
      const bool first = r / tokens % shape[1] == 0;
      const float* before =
          first ? z : read_row(call.in[0], (r - tokens) * width, width, Scratch::kRowB);
#pragma omp simd
      for (int64_t c = 0; c < width; ++c) {
        y[c] = z[c];
        y[width + c] = z[c] - before[c];
      }
      finish_row(call.out[0], 2 * r * width, 2 * width, y);
    }
  });
}

// dz_t = dy_t + (difference of t, but at t = 0) - (difference of t + 1, but at the last).
void frame_difference_backward(const OpCall&, Views dout, Gradients din) {
  const Shape& shape = dout[0].shape;
  const int64_t tokens = shape[2], width = shape[3] / 2;
  parallel_for(shape.rows(), grain_rows(3 * width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t t = r / tokens % shape[1];
      const float* dy = read_row(dout[0], 2 * r * width, 2 * width, Scratch::kRowA);
      float* dz = begin_row(din[0], r * width, width, Scratch::kRowC);
      for (int64_t c = 0; c < width; ++c) dz[c] = dy[c];
      if (t > 0) {
        for (int64_t c = 0; c < width; ++c) dz[c] += dy[width + c];
      }
      if (t + 1 < shape[1]) {
        const float* next =
            read_row(dout[0], (2 * (r + tokens) + 1) * width, width, Scratch::kRowB);
        for (int64_t c = 0; c < width; ++c) dz[c] -= next[c];
      }
      finish_row(din[0], r * width, width, dz);
    }
  });
}

int64_t step_of(const Shape& shape) {
  int64_t step = 1;
  for (int i = 2; i < shape.rank(); ++i) step *= shape[i];
  return step;
}

void time_slice_forward(const OpCall& call) {
  const Shape &from = call.in[0].shape, &to = call.out[0].shape;
  const int64_t step = step_of(from), begin = call.attrs->integer("begin");
  for (int64_t b = 0; b < from[0]; ++b) {
    move_row(call.in[0],
             (b * from[1] + begin) * step,
             written(call.out[0]),
             b * to[1] * step,
             to[1] * step);
  }
}

void time_slice_backward(const OpCall& call, Views dout, Gradients din) {
  const Shape &from = dout[0].shape, &to = din[0].view.shape;
  const int64_t step = step_of(from), begin = call.attrs->integer("begin"), end = begin + from[1];
  for (int64_t b = 0; b < from[0]; ++b) {
    const int64_t place = b * to[1] * step;
    clear_row(din[0], place, begin * step);
    move_row(dout[0], b * from[1] * step, din[0], place + begin * step, from[1] * step);
    clear_row(din[0], place + end * step, (to[1] - end) * step);
  }
}

void shift_window_forward(const OpCall& call) {
  const Shape& shape = call.in[0].shape;
  const int64_t step = step_of(shape), kept = (shape[1] - 1) * step;
  for (int64_t b = 0; b < shape[0]; ++b) {
    const int64_t place = b * shape[1] * step;
    move_row(call.in[0], place + step, written(call.out[0]), place, kept);
    move_row(call.in[1], place + kept, written(call.out[0]), place + kept, step);
  }
}

void shift_window_backward(const OpCall&, Views dout, Gradients din) {
  const Shape& shape = dout[0].shape;
  const int64_t step = step_of(shape), kept = (shape[1] - 1) * step;
  const GradView dwindow = operand(din, 0), dnext = operand(din, 1);
  for (int64_t b = 0; b < shape[0]; ++b) {
    const int64_t place = b * shape[1] * step;
    if (dwindow) {
      clear_row(dwindow, place, step);
      move_row(dout[0], place, dwindow, place + step, kept);
    }
    if (dnext) {
      clear_row(dnext, place, kept);
      move_row(dout[0], place + kept, dnext, place + kept, step);
    }
  }
}

void prepend_token_forward(const OpCall& call) {
  const Shape& shape = call.in[0].shape;
  const int64_t width = shape[2], length = shape[1] * width;
  for (int64_t b = 0; b < shape[0]; ++b) {
    const int64_t place = b * (length + width);
    move_row(call.in[1], 0, written(call.out[0]), place, width);
    move_row(call.in[0], b * length, written(call.out[0]), place + width, length);
  }
}

void prepend_token_backward(const OpCall&, Views dout, Gradients din) {
  const Shape& shape = dout[0].shape;
  const int64_t width = shape[2], length = (shape[1] - 1) * width;
  const GradView dx = operand(din, 0), dtoken = operand(din, 1);
  float* sum = scratch(Scratch::kRowB, width);
  for (int64_t c = 0; c < width; ++c) sum[c] = 0;
  for (int64_t b = 0; b < shape[0]; ++b) {
    const int64_t place = b * (length + width);
    if (dx) move_row(dout[0], place + width, dx, b * length, length);
    const float* token = read_row(dout[0], place, width, Scratch::kRowA);
    for (int64_t c = 0; c < width; ++c) sum[c] += token[c];
  }
  store_sums(dtoken, sum);
}

void take_token_forward(const OpCall& call) {
  const Shape& shape = call.in[0].shape;
  const int64_t index = call.attrs->integer("index"), width = shape[2];
  for (int64_t b = 0; b < shape[0]; ++b) {
    move_row(call.in[0], (b * shape[1] + index) * width, written(call.out[0]), b * width, width);
  }
}

void take_token_backward(const OpCall& call, Views dout, Gradients din) {
  const Shape& shape = din[0].view.shape;
  const int64_t index = call.attrs->integer("index"), width = shape[2];
  clear_row(din[0], 0, shape.elements());
  for (int64_t b = 0; b < shape[0]; ++b) {
    move_row(dout[0], b * width, din[0], (b * shape[1] + index) * width, width);
  }
}

void mean_pool_forward(const OpCall& call) {
  const Shape& shape = call.in[0].shape;
  const int64_t tokens = shape[1], width = shape[2];
  const float share = 1.0f / static_cast<float>(tokens);
  parallel_for(shape[0], grain_rows(tokens * width), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      float* sum = scratch(Scratch::kRowB, width);
      for (int64_t c = 0; c < width; ++c) sum[c] = 0;
      for (int64_t s = 0; s < tokens; ++s) {
        const float* x = read_row(call.in[0], (b * tokens + s) * width, width, Scratch::kRowA);
        for (int64_t c = 0; c < width; ++c) sum[c] += x[c];
      }
      for (int64_t c = 0; c < width; ++c) sum[c] *= share;
      narrow(call.out[0].dtype, call.out[0].data, b * width, width, sum, false);
    }
  });
}

void mean_pool_backward(const OpCall&, Views dout, Gradients din) {
  const Shape& shape = din[0].view.shape;
  const int64_t tokens = shape[1], width = shape[2];
  const float share = 1.0f / static_cast<float>(tokens);
  parallel_for(shape[0], grain_rows(tokens * width), [&](int64_t begin, int64_t end) {
    for (int64_t b = begin; b < end; ++b) {
      const float* dy = read_row(dout[0], b * width, width, Scratch::kRowA);
      float* row = scratch(Scratch::kRowB, width);
      for (int64_t c = 0; c < width; ++c) row[c] = share * dy[c];
      for (int64_t s = 0; s < tokens; ++s) {
        narrow(din[0].view.dtype,
               din[0].view.data,
               (b * tokens + s) * width,
               width,
               row,
               din[0].accumulate);
      }
    }
  });
}

// The same elements under another shape.
void flatten_frames_forward(const OpCall& call) {
  const int64_t count = call.in[0].shape.rows(), width = call.in[0].shape[-1];
  parallel_for(count, grain_rows(width), [&](int64_t begin, int64_t end) {
    move_row(call.in[0], begin * width, written(call.out[0]), begin * width, (end - begin) * width);
  });
}

void flatten_frames_backward(const OpCall&, Views dout, Gradients din) {
  const int64_t count = dout[0].shape.rows(), width = dout[0].shape[-1];
  parallel_for(count, grain_rows(width), [&](int64_t begin, int64_t end) {
    move_row(dout[0], begin * width, din[0], begin * width, (end - begin) * width);
  });
}

// Where in y the row `r` of x (all dimensions but the last) begins; y has the dimensions whose bit
// is set.
struct BroadcastRows {
  Shape x;
  int64_t dims, width, y_elements = 1;
  bool whole_row;  // y has the last dimension

  BroadcastRows(const Shape& shape, int64_t bits)
      : x(shape), dims(bits), width(shape.rank() ? shape[-1] : 1) {
    for (int i = 0; i < x.rank(); ++i) y_elements *= dims >> i & 1 ? x[i] : 1;
    whole_row = x.rank() == 0 || (dims >> (x.rank() - 1) & 1);
  }
  int64_t place(int64_t r) const {
    int64_t at = 0, stride = whole_row ? width : 1;
    for (int i = x.rank() - 2; i >= 0; --i) {
      const int64_t index = r % x[i];
      r /= x[i];
      if (!(dims >> i & 1)) continue;
      at += index * stride;
      stride *= x[i];
    }
    return at;
  }
};

void add_broadcast_forward(const OpCall& call) {
  const BroadcastRows rows(call.in[0].shape, call.attrs->integer("dims"));
  const float* y = read_row(call.in[1], 0, rows.y_elements, Scratch::kParameterA);
  const int64_t width = rows.width;
  parallel_for(call.in[0].shape.rows(), grain_rows(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const float *x = read_row(call.in[0], r * width, width, Scratch::kRowA),
                  *add = y + rows.place(r);
      float* out = begin_row(call.out[0], r * width, width, Scratch::kRowB);
      if (rows.whole_row) {
#pragma omp simd
        for (int64_t c = 0; c < width; ++c) out[c] = x[c] + add[c];
      } else {
        const float value = *add;
        for (int64_t c = 0; c < width; ++c) out[c] = x[c] + value;
      }
      finish_row(call.out[0], r * width, width, out);
    }
  });
}

void add_broadcast_backward(const OpCall& call, Views dout, Gradients din) {
  const BroadcastRows rows(dout[0].shape, call.attrs->integer("dims"));
  const int64_t width = rows.width, count = dout[0].shape.rows();
  const GradView dx = operand(din, 0), dy = operand(din, 1);
  if (dx) {
    parallel_for(count, grain_rows(width), [&](int64_t begin, int64_t end) {
      move_row(dout[0], begin * width, dx, begin * width, (end - begin) * width);
    });
  }
  if (!dy) return;
  // Every part holds a whole dy, so a part must be worth more than clearing and adding one.
  const int64_t grain = std::max(grain_rows(width), 4 * rows.y_elements / width);
  const float* sums =
      sum_parts(count, rows.y_elements, grain, [&](int64_t begin, int64_t end, float* sum) {
        for (int64_t r = begin; r < end; ++r) {
          const float* g = read_row(dout[0], r * width, width, Scratch::kRowA);
          float* to = sum + rows.place(r);
          if (rows.whole_row) {
#pragma omp simd
            for (int64_t c = 0; c < width; ++c) to[c] += g[c];
          } else {
            float total = 0;
#pragma omp simd reduction(+ : total)
            for (int64_t c = 0; c < width; ++c) total += g[c];
            *to += total;
          }
        }
      });
  store_sums(dy, sums);
}

// Rotates by the angles, or back by them with sign -1.
void rotate(const TensorView& from, const GradView& to, const Attrs& attrs, float sign) {
  const int64_t heads = attrs.integer("heads"), half = attrs.integer("head_dim") / 2,
                width = from.shape[-1];
  const AxisRows axis(from.shape, attrs.integer("axis"));
  const RotaryTable table = rotary_table(axis.length, half, attrs.number("base"));
  parallel_for(from.shape.rows(), grain_rows(width), [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; ++r) {
      const int64_t position = r / axis.inner % axis.length;
      const float* cosine = table.cosine + position * half;
      const float* sine = table.sine + position * half;
      const float* x = read_row(from, r * width, width, Scratch::kRowA);
      float* y = begin_row(to, r * width, width, Scratch::kRowB);
      for (int64_t h = 0; h < heads; ++h) {
        const float *a = x + 2 * h * half, *b = a + half;
        float *ya = y + 2 * h * half, *yb = ya + half;
#pragma omp simd
        for (int64_t c = 0; c < half; ++c) {
          const float first = a[c], second = b[c], s = sign * sine[c];
          ya[c] = first * cosine[c] - second * s;
          yb[c] = second * cosine[c] + first * s;
        }
      }
      for (int64_t c = 2 * heads * half; c < width; ++c) y[c] = x[c];
      finish_row(to, r * width, width, y);
    }
  });
}

void rotary_forward(const OpCall& call) {
  rotate(call.in[0], written(call.out[0]), *call.attrs, 1);
}
void rotary_backward(const OpCall& call, Views dout, Gradients din) {
  rotate(dout[0], din[0], *call.attrs, -1);
}

}  // namespace

void add_layout(Backend& backend) {
  FastRow<patchify_forward, patchify_backward>::add(backend, "patchify");
  FastRow<unpatchify_forward, unpatchify_backward>::add(backend, "unpatchify");
  FastRow<frame_difference_forward, frame_difference_backward>::add(backend, "frame_difference");
  FastRow<time_slice_forward, time_slice_backward>::add(backend, "time_slice");
  FastRow<shift_window_forward, shift_window_backward>::add(backend, "shift_window");
  FastRow<prepend_token_forward, prepend_token_backward>::add(backend, "prepend_token");
  FastRow<take_token_forward, take_token_backward>::add(backend, "take_token");
  FastRow<mean_pool_forward, mean_pool_backward>::add(backend, "mean_pool");
  FastRow<flatten_frames_forward, flatten_frames_backward>::add(backend, "flatten_frames");
  FastRow<add_broadcast_forward, add_broadcast_backward>::add(backend, "add_broadcast");
  FastRow<rotary_forward, rotary_backward>::add(backend, "rotary");
}

}  // namespace vitrine::fast::VITRINE_ISA
