// Operations that move rows: patchify, unpatchify, time_slice, shift_window, flatten_frames. Each
// is one gather driven by its destination, so every element is written once, zeros included. Bound
// by memory: source and destination once. At [256, 64, 512] bf16: 34 MB, 8 us at 4.17 TB/s.
#include "ops/gpu/elementwise.cuh"
#include "ops/gpu/layout.h"
#include "ops/gpu/rows.h"

namespace vitrine::gpu {
namespace {

constexpr int kCopyInFlight = 4;

// A map as kernels take it.
struct DeviceMap : RowMap {
  Divisor by_b, by_c;
  DeviceMap() = default;
  explicit DeviceMap(const RowMap& map) : RowMap(map), by_b(map.b), by_c(map.c) {}
};

// What a row becomes: where it starts in its source (null: zeros).
template <typename T>
__device__ __forceinline__ const T* source_row(const DeviceMap& map,
                                               int64_t row,
                                               const Divisor& unit) {
  const int64_t ab = quotient(row, map.by_c), a = quotient(ab, map.by_b);
  const int64_t b = ab - a * map.b, c = row - ab * map.c;
  // Chosen number by number: a reference to either would move the map to local memory.
  const bool in = b >= map.low && b < map.high;
  const RowSource &x = map.inside, &y = map.outside;
  const void* data = in ? x.data : y.data;
  if (!data) return nullptr;
  const int64_t at =
      (in ? x.base : y.base) + a * (in ? x.a : y.a) + b * (in ? x.b : y.b) + c * (in ? x.c : y.c);
  return static_cast<const T*>(data) + quotient(at, unit);
}

// Elements of one size, whatever their meaning; Unit holds `unit` of them.
template <typename Unit>
__device__ __forceinline__ void copy_units(
    Unit* to, const DeviceMap& map, int64_t units, const Divisor& row_units, const Divisor& unit) {
  const int64_t first =
      static_cast<int64_t>(blockIdx.x) * (kMapThreads * kCopyInFlight) + threadIdx.x;
  Unit values[kCopyInFlight];
#pragma unroll
  for (int u = 0; u < kCopyInFlight; ++u) {
    const int64_t i = first + u * kMapThreads;
    if (i >= units) continue;
    const int64_t row = quotient(i, row_units);
    const Unit* from = source_row<Unit>(map, row, unit);
    values[u] = from ? from[i - row * row_units.value] : Unit{};
  }
  let_next_begin();
#pragma unroll
  for (int u = 0; u < kCopyInFlight; ++u) {
    const int64_t i = first + u * kMapThreads;
    if (i < units) to[i] = values[u];
  }
}

template <typename Unit>
__global__ void __launch_bounds__(kMapThreads) copy_kernel(
    Unit* to, const DeviceMap map, int64_t units, const Divisor row_units, const Divisor unit) {
  wait_for_previous();
  copy_units(to, map, units, row_units, unit);
}

// Two destinations of one size, by the block's y.
template <typename Unit>
__global__ void __launch_bounds__(kMapThreads) copy_both_kernel(Unit* first,
                                                                Unit* second,
                                                                const DeviceMap first_map,
                                                                const DeviceMap second_map,
                                                                int64_t units,
                                                                const Divisor row_units,
                                                                const Divisor unit) {
  wait_for_previous();
  if (blockIdx.y == 0) {
    copy_units(first, first_map, units, row_units, unit);
  } else {
    copy_units(second, second_map, units, row_units, unit);
  }
}

// Conversion, factor and accumulation on the way.
template <typename T>
struct Gather {
  DeviceMap map;
  Divisor length;  // of a row, in elements
  Wide<T> factor;
  GradientTo<T> to;

  template <int N>
  using State = Vec<T, N>;
  template <int N>
  __device__ __forceinline__ State<N> load(int64_t at) const {
    const int64_t row = quotient(at, length);
    const T* from = source_row<T>(map, row, Divisor());
    if (from) return gpu::load<N>(from + (at - row * length.value));
    State<N> zeros;
#pragma unroll
    for (int j = 0; j < N; ++j) zeros.v[j] = from_wide<T>(Wide<T>(0));
    return zeros;
  }
  template <int N>
  __device__ __forceinline__ void finish(int64_t at, const State<N>& state) const {
    Wide<T> values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = factor * to_wide(state.v[j]);
    to.put(at, values);
  }
};

// Every row starts at a multiple of `unit` elements.
bool divides(int64_t unit, const RowMap& map, int64_t length) {
  int64_t rest = length % unit;
  for (const RowSource& from : {map.inside, map.outside}) {
    for (const int64_t number : {from.a, from.b, from.c, from.base}) rest |= number % unit;
  }
  return rest == 0;
}

// Elements of T that move as one Unit, or 0: rows or addresses do not fit it.
template <typename Unit>
int64_t unit_of(const TensorView& to, const RowMap& map, int64_t length) {
  const int64_t size = static_cast<int64_t>(dtype_bytes(to.dtype));
  const int64_t unit = static_cast<int64_t>(sizeof(Unit)) / size;
  const bool fits = unit > 0 && divides(unit, map, length) &&
                    aligned_to(sizeof(Unit), {to.data, map.inside.data, map.outside.data});
  return fits ? unit : 0;
}

constexpr unsigned copy_blocks(int64_t units) {
  constexpr int64_t kBlock = kMapThreads * kCopyInFlight;
  return static_cast<unsigned>((units + kBlock - 1) / kBlock);
}

template <typename Unit>
bool copy_by(const TensorView& to, const RowMap& map, int64_t length, const char* op) {
  const int64_t unit = unit_of<Unit>(to, map, length);
  if (unit == 0) return false;
  const int64_t units = to.elements() / unit;
  launch_following(op,
                   copy_kernel<Unit>,
                   copy_blocks(units),
                   kMapThreads,
                   to.as<Unit>(),
                   DeviceMap(map),
                   units,
                   Divisor(length / unit),
                   Divisor(unit));
  return true;
}

bool plain_copy(const GradView& to, DType dtype) {
  return to && !to.accumulate && to.view.dtype == dtype;
}

}  // namespace

void gather_rows_of_both(const GradView& first,
                         const RowMap& first_map,
                         const GradView& second,
                         const RowMap& second_map,
                         DType dtype,
                         int64_t length,
                         const char* op) {
  if (plain_copy(first, dtype) && plain_copy(second, dtype) && first.view.elements() > 0 &&
      first.view.elements() == second.view.elements()) {
    const int64_t unit = unit_of<uint4>(first.view, first_map, length);
    if (unit > 0 && unit_of<uint4>(second.view, second_map, length) == unit) {
      const int64_t units = first.view.elements() / unit;
      return launch_following(op,
                              copy_both_kernel<uint4>,
                              dim3(copy_blocks(units), 2),
                              kMapThreads,
                              first.view.as<uint4>(),
                              second.view.as<uint4>(),
                              DeviceMap(first_map),
                              DeviceMap(second_map),
                              units,
                              Divisor(length / unit),
                              Divisor(unit));
    }
  }
  gather_rows(first, dtype, first_map, length, 1, op);
  gather_rows(second, dtype, second_map, length, 1, op);
}

void gather_rows(const GradView& to,
                 DType dtype,
                 const RowMap& map,
                 int64_t length,
                 double factor,
                 const char* op) {
  if (!to || to.view.elements() == 0) return;
  if (plain_copy(to, dtype) && factor == 1) {
    const bool done = copy_by<uint4>(to.view, map, length, op) ||
                      copy_by<uint2>(to.view, map, length, op) ||
                      copy_by<unsigned>(to.view, map, length, op) ||
                      copy_by<unsigned short>(to.view, map, length, op);
    if (done) return;
  }
  dispatch_float(dtype, op, [&]<typename T>() {
    const Gather<T> f{
        DeviceMap(map), length, static_cast<Wide<T>>(factor), gradient_to<T>(to, dtype, op)};
    const bool wide = divides(kVector<T>, map, length) &&
                      aligned_to(16, {f.to.data, map.inside.data, map.outside.data});
    map_elements<T>(f, to.view.elements(), wide, op);
  });
}

namespace {

// z[.., S, (y, x, c)] from frames: rows of one patch line; a counts lines of patches, b patches in
// a line, c lines in a patch. The other way a is the same, b lines in a patch, c patches in a line.
void to_patches(const TensorView& frames, const GradView& z, int64_t patch, const char* op) {
  const int64_t width = frames.shape[3], channels = frames.shape[4], run = patch * channels;
  RowMap map{.b = width / patch, .c = patch};
  map.inside = {frames.data, patch * width * channels, run, width * channels};
  gather_rows(z, frames.dtype, map, run, 1, op);
}

void to_frames(const TensorView& z, const GradView& frames, int64_t patch, const char* op) {
  const Shape& shape = frames.view.shape;
  const int64_t across = shape[3] / patch, run = patch * shape[4];
  RowMap map{.b = patch, .c = across};
  map.inside = {z.data, across * patch * run, run, patch * run};
  gather_rows(frames, z.dtype, map, run, 1, op);
}

void patchify_forward(const OpCall& call) {
  to_patches(call.in[0], {call.out[0], false}, call.attrs->integer("patch"), "patchify");
}
void patchify_backward(const OpCall& call, Views dout, Gradients din) {
  to_frames(dout[0], din[0], call.attrs->integer("patch"), "patchify backward");
}
void unpatchify_forward(const OpCall& call) {
  to_frames(call.in[0], {call.out[0], false}, call.attrs->integer("patch"), "unpatchify");
}
void unpatchify_backward(const OpCall& call, Views dout, Gradients din) {
  to_patches(dout[0], din[0], call.attrs->integer("patch"), "unpatchify backward");
}

// Elements of one step of x[B, T, ...].
int64_t step_of(const Shape& shape) {
  int64_t step = 1;
  for (int i = 2; i < shape.rank(); ++i) step *= shape[i];
  return step;
}

void time_slice_forward(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const int64_t step = step_of(x.shape);
  RowMap map;
  map.inside = {x.data, x.shape[1] * step, 0, 0, call.attrs->integer("begin") * step};
  gather_rows({y, false}, x.dtype, map, y.shape[1] * step, 1, "time_slice");
}

void time_slice_backward(const OpCall& call, Views dout, Gradients din) {
  const TensorView& dy = dout[0];
  const int64_t step = step_of(dy.shape), begin = call.attrs->integer("begin");
  RowMap map{.b = din[0].view.shape[1], .low = begin, .high = begin + dy.shape[1]};
  map.inside = {dy.data, dy.shape[1] * step, step, 0, -begin * step};
  gather_rows(din[0], dy.dtype, map, step, 1, "time_slice backward");
}

void shift_window_forward(const OpCall& call) {
  const Shape& shape = call.in[0].shape;
  const int64_t time = shape[1], step = step_of(shape);
  RowMap map{.b = time, .high = time - 1};
  map.inside = {call.in[0].data, time * step, step, 0, step};
  map.outside = {call.in[1].data, time * step, step};
  gather_rows({call.out[0], false}, call.in[0].dtype, map, step, 1, "shift_window");
}

void shift_window_backward(const OpCall&, Views dout, Gradients din) {
  const TensorView& dy = dout[0];
  const int64_t time = dy.shape[1], step = step_of(dy.shape);
  RowMap window{.b = time, .low = 1};
  window.inside = {dy.data, time * step, step, 0, -step};
  RowMap next{.b = time, .low = time - 1};
  next.inside = {dy.data, time * step, step};
  gather_rows_of_both(
      operand(din, 0), window, operand(din, 1), next, dy.dtype, step, "shift_window backward");
}

void flatten_frames_forward(const OpCall& call) {
  RowMap map;
  map.inside = {call.in[0].data};
  gather_rows(
      {call.out[0], false}, call.in[0].dtype, map, call.in[0].elements(), 1, "flatten_frames");
}

void flatten_frames_backward(const OpCall&, Views dout, Gradients din) {
  spread_gradient(dout[0], 1, din[0], {}, "flatten_frames backward");
}

}  // namespace

void add_layout_rows(Backend& backend) {
  backend.add("patchify", {patchify_forward, when_wanted<patchify_backward>});
  backend.add("unpatchify", {unpatchify_forward, when_wanted<unpatchify_backward>});
  backend.add("time_slice", {time_slice_forward, when_wanted<time_slice_backward>});
  backend.add("shift_window", {shift_window_forward, when_wanted<shift_window_backward>});
  backend.add("flatten_frames", {flatten_frames_forward, when_wanted<flatten_frames_backward>});
  add_token_rows(backend);
  add_frame_rows(backend);
}

}  // namespace vitrine::gpu
