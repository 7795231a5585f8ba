// gelu, add and scale. Bound by memory: each operand moves once. At [16384, 8960] bf16 gelu moves
// 587 MB forward (141 us at 4.17 TB/s) and 881 MB backward (211 us); its arithmetic, two special
// functions and about a dozen multiply-adds an element, takes about two thirds of that time.
#include "ops/gpu/activation.cuh"
#include "ops/gpu/elementwise.cuh"
#include "ops/gpu/rows.h"

namespace vitrine::gpu {
namespace {

template <typename T, int Form>
struct GeluForward {
  const T* x;
  T* y;

  template <int N>
  using State = Vec<T, N>;
  template <int N>
  __device__ __forceinline__ State<N> load(int64_t at) const {
    return gpu::load<N>(x + at);
  }
  template <int N>
  __device__ __forceinline__ void finish(int64_t at, State<N> state) const {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const Wide<T> value = to_wide(state.v[j]);
      state.v[j] = from_wide<T>(value * phi<T, Form>(value).value);
    }
    store(y + at, state);
  }
};

template <typename T, int N>
struct Pair {
  Vec<T, N> a, b;
};

template <typename T, int Form>
struct GeluBackward {
  const T *x, *dy;
  GradientTo<T> dx;

  template <int N>
  using State = Pair<T, N>;
  template <int N>
  __device__ __forceinline__ State<N> load(int64_t at) const {
    return {gpu::load<N>(x + at), gpu::load<N>(dy + at)};
  }
  template <int N>
  __device__ __forceinline__ void finish(int64_t at, const State<N>& state) const {
    Wide<T> values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const Wide<T> value = to_wide(state.a.v[j]);
      const auto p = phi<T, Form>(value);
      values[j] = to_wide(state.b.v[j]) * (p.value + value * p.slope);
    }
    dx.put(at, values);
  }
};

template <typename T>
struct Add {
  const T *a, *b;
  T* sum;

  template <int N>
  using State = Pair<T, N>;
  template <int N>
  __device__ __forceinline__ State<N> load(int64_t at) const {
    return {gpu::load<N>(a + at), gpu::load<N>(b + at)};
  }
  template <int N>
  __device__ __forceinline__ void finish(int64_t at, State<N> state) const {
#pragma unroll
    for (int j = 0; j < N; ++j) {
      state.a.v[j] = from_wide<T>(to_wide(state.a.v[j]) + to_wide(state.b.v[j]));
    }
    store(sum + at, state.a);
  }
};

// Calls f.operator()<T, Form>().
template <typename F>
void dispatch_gelu(const OpCall& call, F&& f) {
  const int64_t form = call.attrs->integer("form");
  dispatch_float(call.in[0].dtype, "gelu", [&]<typename T>() {
    if (form == 0) return f.template operator()<T, 0>();
    if (form == 1) return f.template operator()<T, 1>();
    return f.template operator()<T, 2>();
  });
}

void gelu_forward(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  dispatch_gelu(call, [&]<typename T, int Form>() {
    const GeluForward<T, Form> f{x.as<const T>(), y.as<T>()};
    map_elements<T>(f, x.elements(), aligned_to(16, {f.x, f.y}), "gelu");
  });
}

void gelu_backward(const OpCall& call, Views dout, Gradients din) {
  const TensorView &x = call.in[0], &dy = dout[0];
  dispatch_gelu(call, [&]<typename T, int Form>() {
    const GeluBackward<T, Form> f{
        x.as<const T>(), dy.as<const T>(), gradient_to<T>(din[0], x.dtype, "gelu")};
    map_elements<T>(f, x.elements(), aligned_to(16, {f.x, f.dy, f.dx.data}), "gelu backward");
  });
}

void add_forward(const OpCall& call) {
  const TensorView& sum = call.out[0];
  dispatch_float(sum.dtype, "add", [&]<typename T>() {
    const Add<T> f{call.in[0].as<const T>(), call.in[1].as<const T>(), sum.as<T>()};
    map_elements<T>(f, sum.elements(), aligned_to(16, {f.a, f.b, f.sum}), "add");
  });
}

void add_backward(const OpCall&, Views dout, Gradients din) {
  spread_gradient(dout[0], 1, operand(din, 0), operand(din, 1), "add backward");
}

void scale_forward(const OpCall& call) {
  spread_gradient(
      call.in[0], call.attrs->number("factor"), GradView{call.out[0], false}, {}, "scale");
}

void scale_backward(const OpCall& call, Views dout, Gradients din) {
  spread_gradient(dout[0], call.attrs->number("factor"), din[0], {}, "scale backward");
}

}  // namespace

void spread_gradient(const TensorView& dy,
                     double factor,
                     const GradView& first,
                     const GradView& second,
                     const char* op) {
  dispatch_float(dy.dtype, op, [&]<typename T>() {
    const Spread<T> f{dy.as<const T>(),
                      static_cast<Wide<T>>(factor),
                      {gradient_to<T>(first, dy.dtype, op), gradient_to<T>(second, dy.dtype, op)}};
    map_elements<T>(f, dy.elements(), aligned_to(16, {f.dy, f.to[0].data, f.to[1].data}), op);
  });
}

void add_pointwise_rows(Backend& backend) {
  backend.add("gelu", {gelu_forward, when_wanted<gelu_backward>});
  backend.add("add", {add_forward, when_wanted<add_backward>});
  backend.add("scale", {scale_forward, when_wanted<scale_backward>});
  add_broadcast_rows(backend);
}

}  // namespace vitrine::gpu
