// frame_difference and mean_pool. Bound by memory: frame_difference reads z (the frame before comes
// from the L2 cache) and writes twice as much, backward the reverse; mean_pool reads x. At
// [16, 16, 64, 512] bf16: 50 MB (12 us at 4.17 TB/s) and 17 MB (4 us).
#include "ops/gpu/layout.h"
#include "ops/gpu/reduce.cuh"
#include "ops/gpu/rows.h"

namespace vitrine::gpu {
namespace {

// Which frame an element of z[B, T, S, C] is in.
struct FrameShape {
  Divisor time, tokens, channels;

  explicit FrameShape(const Shape& z) : time(z[1]), tokens(z[2]), channels(z[3]) {}
  struct Place {
    int64_t row, frame;
  };
  __device__ __forceinline__ Place at(int64_t i) const {
    const int64_t row = quotient(i, channels), frame = quotient(row, tokens);
    return {row, frame - quotient(frame, time) * time.value};
  }
};

template <typename T, int N>
struct TwoFrames {
  Vec<T, N> own, other;
};

template <typename T, int N>
__device__ __forceinline__ Vec<T, N> no_values() {
  Vec<T, N> zeros;
#pragma unroll
  for (int j = 0; j < N; ++j) zeros.v[j] = from_wide<T>(Wide<T>(0));
  return zeros;
}

template <typename T>
struct DifferenceForward {
  const T* z;
  T* y;
  FrameShape shape;

  // Elements of z and those one frame before; at the first frame the same ones.
  template <int N>
  using State = TwoFrames<T, N>;
  template <int N>
  __device__ __forceinline__ State<N> load(int64_t at) const {
    const int64_t back = shape.at(at).frame == 0 ? 0 : shape.tokens.value * shape.channels.value;
    return {gpu::load<N>(z + at), gpu::load<N>(z + at - back)};
  }
  template <int N>
  __device__ __forceinline__ void finish(int64_t at, State<N> state) const {
    const auto [row, frame] = shape.at(at);
    T* to = y + at + row * shape.channels.value;
    store(to, state.own);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const Wide<T> difference = to_wide(state.own.v[j]) - to_wide(state.other.v[j]);
      state.other.v[j] = from_wide<T>(frame == 0 ? Wide<T>(0) : difference);
    }
    store(to + shape.channels.value, state.other);
  }
};

template <typename T>
struct DifferenceBackward {
  const T* dy;
  GradientTo<T> dz;
  FrameShape shape;

  // The gradient of the value, of its own difference, and of the next frame's.
  template <int N>
  struct State {
    Vec<T, N> value, own, next;
  };
  template <int N>
  __device__ __forceinline__ State<N> load(int64_t at) const {
    const auto [row, frame] = shape.at(at);
    const T* value = dy + at + row * shape.channels.value;
    const T* own = value + shape.channels.value;
    State<N> state{gpu::load<N>(value), no_values<T, N>(), no_values<T, N>()};
    if (frame > 0) state.own = gpu::load<N>(own);
    if (frame + 1 < shape.time.value) {
      state.next = gpu::load<N>(own + 2 * shape.tokens.value * shape.channels.value);
    }
    return state;
  }
  template <int N>
  __device__ __forceinline__ void finish(int64_t at, const State<N>& state) const {
    Wide<T> values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      values[j] = to_wide(state.value.v[j]) + to_wide(state.own.v[j]) - to_wide(state.next.v[j]);
    }
    dz.put(at, values);
  }
};

void difference_forward(const OpCall& call) {
  const TensorView& z = call.in[0];
  dispatch_float(z.dtype, "frame_difference", [&]<typename T>() {
    const DifferenceForward<T> f{z.as<const T>(), call.out[0].as<T>(), FrameShape(z.shape)};
    const bool wide = aligned_to(16, {f.z, f.y}) && z.shape[3] % kVector<T> == 0;
    map_elements<T>(f, z.elements(), wide, "frame_difference");
  });
}

void difference_backward(const OpCall&, Views dout, Gradients din) {
  const TensorView &dy = dout[0], &dz = din[0].view;
  const char* op = "frame_difference backward";
  dispatch_float(dy.dtype, op, [&]<typename T>() {
    const DifferenceBackward<T> f{
        dy.as<const T>(), gradient_to<T>(din[0], dy.dtype, op), FrameShape(dz.shape)};
    const bool wide = aligned_to(16, {f.dy, dz.data}) && dz.shape[3] % kVector<T> == 0;
    map_elements<T>(f, dz.elements(), wide, op);
  });
}

void mean_pool_forward(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const ReduceShape shape = reduce_shape(x.shape, 0b101);
  dispatch_float(x.dtype, "mean_pool", [&]<typename T>() {
    const SumAndCopy<T> f{x.as<const T>(), {}};
    reduce<T, 1>(f,
                 shape,
                 aligned_to(16, {f.g}),
                 1 / static_cast<Wide<T>>(x.shape[1]),
                 {gradient_to<T>({y, false}, x.dtype, "mean_pool")},
                 "mean_pool");
  });
}

void mean_pool_backward(const OpCall&, Views dout, Gradients din) {
  const TensorView& dy = dout[0];
  const int64_t tokens = din[0].view.shape[1], row = dy.shape[1];
  RowMap map{.b = tokens};
  map.inside = {dy.data, row};
  gather_rows(din[0], dy.dtype, map, row, 1 / static_cast<double>(tokens), "mean_pool backward");
}

}  // namespace

void add_frame_rows(Backend& backend) {
  backend.add("frame_difference", {difference_forward, when_wanted<difference_backward>});
  backend.add("mean_pool", {mean_pool_forward, when_wanted<mean_pool_backward>});
}

}  // namespace vitrine::gpu
