// add_broadcast and gated_sigmoid: element by element forward; backward also sums over rows, in the
// same pass (reduce.cuh). Bound by memory: add_broadcast moves x twice forward and its gradient
// twice backward; gated_sigmoid moves 2 and 4 arrays of z's size. At [256, 64, 512] bf16: 34 MB and
// 67 MB, 8 and 16 us at 4.17 TB/s.
#include "ops/gpu/activation.cuh"
#include "ops/gpu/reduce.cuh"
#include "ops/gpu/rows.h"

namespace vitrine::gpu {
namespace {

// Place in y of an element of x; group 0 is the innermost, stride 0: y does not have it.
struct Places {
  int groups = 0;
  Divisor size[Shape::kMaxRank];
  int64_t stride[Shape::kMaxRank] = {};

  __device__ __forceinline__ int64_t at(int64_t i) const {
    int64_t place = 0;
    // Unrolled, so that the arrays stay in the kernel's parameters.
#pragma unroll
    for (int g = 0; g < Shape::kMaxRank; ++g) {
      if (g + 1 >= groups) return place + i * stride[g];
      const int64_t outer = quotient(i, size[g]);
      place += (i - outer * size[g].value) * stride[g];
      i = outer;
    }
    return place;
  }
};

Places places_of(const Shape& x, int64_t dims) {
  Places places;
  int before = -1;
  int64_t stride = 1;
  for (int i = x.rank() - 1; i >= 0; --i) {
    if (x[i] == 1) continue;
    const int kept = static_cast<int>(dims >> i & 1);
    if (kept != before) {
      places.size[places.groups] = 1;
      places.stride[places.groups++] = kept ? stride : 0;
    }
    places.size[places.groups - 1] = places.size[places.groups - 1].value * x[i];
    if (kept) stride *= x[i];
    before = kept;
  }
  return places;
}

template <typename T, bool Columns>
struct AddBroadcast {
  const T *x, *y;
  T* sum;
  Places places;

  // y: N values, or one for all N elements.
  template <int N>
  struct State {
    Vec<T, N> x;
    Vec<T, Columns ? N : 1> y;
  };
  template <int N>
  __device__ __forceinline__ State<N> load(int64_t at) const {
    return {gpu::load<N>(x + at), gpu::load < Columns ? N : 1 > (y + places.at(at))};
  }
  template <int N>
  __device__ __forceinline__ void finish(int64_t at, State<N> state) const {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      state.x.v[j] = from_wide<T>(to_wide(state.x.v[j]) + to_wide(state.y.v[Columns ? j : 0]));
    }
    store(sum + at, state.x);
  }
};

void add_broadcast_forward(const OpCall& call) {
  const TensorView& x = call.in[0];
  const Places places = places_of(x.shape, call.attrs->integer("dims"));
  const bool columns = places.stride[0] != 0;
  dispatch_float(x.dtype, "add_broadcast", [&]<typename T>() {
    const auto run = [&]<bool Columns>() {
      const AddBroadcast<T, Columns> f{
          x.as<const T>(), call.in[1].as<const T>(), call.out[0].as<T>(), places};
      const bool wide = aligned_to(16, {f.x, f.sum, Columns ? f.y : nullptr}) &&
                        places.size[0].value % kVector<T> == 0;
      map_elements<T>(f, x.elements(), wide, "add_broadcast");
    };
    columns ? run.template operator()<true>() : run.template operator()<false>();
  });
}

void add_broadcast_backward(const OpCall& call, Views dout, Gradients din) {
  const TensorView& g = dout[0];
  const GradView dy = operand(din, 1);
  if (!dy) return spread_gradient(g, 1, operand(din, 0), {}, "add_broadcast backward");
  const ReduceShape shape = reduce_shape(g.shape, call.attrs->integer("dims"));
  dispatch_float(g.dtype, "add_broadcast backward", [&]<typename T>() {
    const SumAndCopy<T> f{{g.as<const T>()},
                          gradient_to<T>(operand(din, 0), g.dtype, "add_broadcast backward")};
    reduce<T, 1>(f,
                 shape,
                 aligned_to(16, {f.sum.g, f.copy.data}),
                 1,
                 {gradient_to<T>(dy, g.dtype, "add_broadcast backward")},
                 "add_broadcast backward");
  });
}

template <typename T>
struct GatedForward {
  const T *z, *gain, *offset;
  T* y;
  Divisor channels;

  // Gain and offset come from the nearest cache, so that registers are left for z in flight.
  template <int N>
  using State = Vec<T, N>;
  template <int N>
  __device__ __forceinline__ State<N> load(int64_t at) const {
    return gpu::load<N>(z + at);
  }
  template <int N>
  __device__ __forceinline__ void finish(int64_t at, State<N> state) const {
    using W = Wide<T>;
    const int64_t c = at - quotient(at, channels) * channels.value;
    const Vec<T, N> gains = gpu::load<N>(gain + c), offsets = gpu::load<N>(offset + c);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const W gate = to_wide(gains.v[j]) * (to_wide(state.v[j]) - W(0.5)) + to_wide(offsets.v[j]);
      state.v[j] = from_wide<T>(sigmoid<T>(gate));
    }
    store(y + at, state);
  }
};

void gated_forward(const OpCall& call) {
  const TensorView &z = call.in[0], &gain = call.in[1], &offset = call.in[2];
  dispatch_float(z.dtype, "gated_sigmoid", [&]<typename T>() {
    const GatedForward<T> f{z.as<const T>(),
                            gain.as<const T>(),
                            offset.as<const T>(),
                            call.out[0].as<T>(),
                            z.shape[-1]};
    const bool wide =
        aligned_to(16, {f.z, f.gain, f.offset, f.y}) && f.channels.value % kVector<T> == 0;
    map_elements<T>(f, z.elements(), wide, "gated_sigmoid");
  });
}

// Sums 0 and 1: the gradients of gain and offset. That of z is written on the way.
template <typename T>
struct GatedBackward {
  const T *z, *gain, *y, *dy;
  GradientTo<T> dz;

  template <int N>
  struct State {
    Vec<T, N> z, y, dy;
  };
  template <int N>
  __device__ __forceinline__ State<N> load(int64_t at) const {
    return {gpu::load<N>(z + at), gpu::load<N>(y + at), gpu::load<N>(dy + at)};
  }
  template <int N>
  __device__ __forceinline__ void finish(int64_t at,
                                         int64_t channel,
                                         State<N>& state,
                                         Wide<T> (&sums)[2][N]) const {
    using W = Wide<T>;
    stay_packed(state.z);
    stay_packed(state.y);
    stay_packed(state.dy);
    const Vec<T, N> gains = gpu::load<N>(gain + channel);
    W values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const W s = to_wide(state.y.v[j]);
      const W slope = to_wide(state.dy.v[j]) * s * (1 - s);
      values[j] = slope * to_wide(gains.v[j]);
      sums[0][j] += slope * (to_wide(state.z.v[j]) - W(0.5));
      sums[1][j] += slope;
    }
    dz.put(at, values);
  }
};

void gated_backward(const OpCall& call, Views dout, Gradients din) {
  const TensorView& z = call.in[0];
  const char* op = "gated_sigmoid backward";
  const ReduceShape shape = reduce_shape(z.shape, int64_t{1} << (z.shape.rank() - 1));
  dispatch_float(z.dtype, op, [&]<typename T>() {
    const GatedBackward<T> f{z.as<const T>(),
                             call.in[1].as<const T>(),
                             call.out[0].as<const T>(),
                             dout[0].as<const T>(),
                             gradient_to<T>(operand(din, 0), z.dtype, op)};
    reduce<T, 2>(f,
                 shape,
                 aligned_to(16, {f.z, f.gain, f.y, f.dy, f.dz.data}),
                 1,
                 {gradient_to<T>(operand(din, 1), z.dtype, op),
                  gradient_to<T>(operand(din, 2), z.dtype, op)},
                 op);
  });
}

}  // namespace

void add_broadcast_rows(Backend& backend) {
  backend.add("add_broadcast", {add_broadcast_forward, when_wanted<add_broadcast_backward>});
  backend.add("gated_sigmoid", {gated_forward, when_wanted<gated_backward>});
}

}  // namespace vitrine::gpu
