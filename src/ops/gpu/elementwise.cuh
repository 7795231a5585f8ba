// One pass over flat arrays: the launch that element-by-element operations share, and gradients
// that are written over or added to, in the values' dtype or in f32.
#pragma once

#include <type_traits>

#include "gpu/following.cuh"
#include "gpu/vector.cuh"
#include "ops/gpu/gradient.h"

namespace vitrine::gpu {

constexpr int kMapThreads = 256;
constexpr int kMapInFlight = 2;  // vectors that a thread loads before it uses the first

// Elements of one 16-byte access.
template <typename T>
constexpr int kVector = static_cast<int>(16 / sizeof(T));

// Index arithmetic stays in 32 bits wherever the numbers allow it: a division of 64 bits costs as
// much as moving the vector.
__device__ __forceinline__ int64_t quotient(int64_t n, int64_t d) {
  if (((n | d) >> 32) == 0) return static_cast<uint32_t>(n) / static_cast<uint32_t>(d);
  return n / d;
}

// A divisor known at launch: a multiplication and a shift (Granlund and Montgomery, "Division by
// invariant integers using multiplication", PLDI 1994), in 32 bits for numbers below 2^31. None of
// it is a call, which would cost kernels the registers that loads in flight need.
struct Divisor {
  int64_t value = 1;
  uint64_t wide_magic = 1;
  uint32_t magic = 1;
  int shift = 0;

  Divisor() = default;
  Divisor(int64_t d) : value(d) {
    if (d < 1) return;  // sizes of nothing, by which nothing is divided
    __extension__ using Twice = unsigned __int128;
    const auto divisor = static_cast<uint64_t>(d);
    while ((uint64_t{1} << shift) < divisor) ++shift;
    const uint64_t over = (uint64_t{1} << shift) - divisor;
    wide_magic = static_cast<uint64_t>((static_cast<Twice>(over) << 64) / divisor) + 1;
    if (shift < 32) magic = static_cast<uint32_t>((over << 32) / divisor) + 1;
  }
};
__device__ __forceinline__ int64_t quotient(int64_t n, const Divisor& d) {
  const auto whole = static_cast<uint64_t>(n);
  if (whole >> 31 != 0) {
    return static_cast<int64_t>((__umul64hi(whole, d.wide_magic) + whole) >> d.shift);
  }
  const auto small = static_cast<uint32_t>(whole);
  return d.shift < 32 ? (__umulhi(small, d.magic) + small) >> d.shift : 0;
}

// Destination of a gradient of values of type T; null data: not wanted.
template <typename T>
struct GradientTo {
  void* data = nullptr;
  bool accumulate = false;
  bool f32 = false;

  template <typename To, int N>
  __device__ __forceinline__ void put_as(int64_t at, const Wide<T> (&values)[N]) const {
    To* to = static_cast<To*>(data) + at;
    Vec<To, N> out;
    if (accumulate) {
      const Vec<To, N> before = load<N>(to);
#pragma unroll
      for (int j = 0; j < N; ++j) {
        out.v[j] = from_wide<To>(values[j] + static_cast<Wide<T>>(to_wide(before.v[j])));
      }
    } else {
#pragma unroll
      for (int j = 0; j < N; ++j) out.v[j] = from_wide<To>(values[j]);
    }
    store(to, out);
  }
  // Elements [at, at + N).
  template <int N>
  __device__ __forceinline__ void put(int64_t at, const Wide<T> (&values)[N]) const {
    if (!data) return;
    if constexpr (!std::is_same_v<T, float>) {
      if (f32) return put_as<float, N>(at, values);
    }
    put_as<T, N>(at, values);
  }
  // The same of values that are T already.
  template <int N>
  __device__ __forceinline__ void put(int64_t at, const Vec<T, N>& packed) const {
    if (!data) return;
    if (!accumulate && (std::is_same_v<T, float> || !f32)) {
      return store(static_cast<T*>(data) + at, packed);
    }
    Wide<T> values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = to_wide(packed.v[j]);
    put(at, values);
  }
};

// Throws ConfigError unless the gradient's dtype is f32 or `dtype`, that of the values.
template <typename T>
GradientTo<T> gradient_to(const GradView& gradient, DType dtype, const char* op) {
  if (!gradient) return {};
  const DType own = gradient.view.dtype;
  if (own != dtype && own != DType::kF32) {
    throw ConfigError(std::string(op) + ": a gradient in " + dtype_name(own) + " of values in " +
                      dtype_name(dtype));
  }
  return {gradient.view.data, gradient.accumulate, own == DType::kF32};
}

// Null pointers count as aligned.
inline bool aligned_to(size_t bytes, std::initializer_list<const void*> pointers) {
  uintptr_t bits = 0;
  for (const void* pointer : pointers) bits |= reinterpret_cast<uintptr_t>(pointer);
  return bits % bytes == 0;
}

// F has State<N>, load<N>(at) -> State<N> and finish<N>(at, state), for N elements from `at`.
template <int N, typename F>
__global__ void __launch_bounds__(kMapThreads)
    map_kernel(const F f, int64_t vectors, int64_t count) {
  const int64_t first =
      static_cast<int64_t>(blockIdx.x) * (kMapThreads * kMapInFlight) + threadIdx.x;
  typename F::template State<N> state[kMapInFlight];
  wait_for_previous();
#pragma unroll
  for (int u = 0; u < kMapInFlight; ++u) {
    const int64_t i = first + u * kMapThreads;
    if (i < vectors) state[u] = f.template load<N>(i * N);
  }
  let_next_begin();
#pragma unroll
  for (int u = 0; u < kMapInFlight; ++u) {
    const int64_t i = first + u * kMapThreads;
    if (i < vectors) f.template finish<N>(i * N, state[u]);
  }
  if constexpr (N > 1) {  // fewer than N elements are left
    const int64_t i = vectors * N + threadIdx.x;
    if (blockIdx.x == 0 && i < count) f.template finish<1>(i, f.template load<1>(i));
  }
}

// Runs f over `count` elements of type T, by vectors when `wide`.
template <typename T, typename F>
void map_elements(const F& f, int64_t count, bool wide, const char* op) {
  if (count == 0) return;
  const int64_t vectors = wide ? count / kVector<T> : count;
  constexpr int64_t kBlock = kMapThreads * kMapInFlight;
  const int64_t blocks = vectors == 0 ? 1 : (vectors + kBlock - 1) / kBlock;
  const FollowingLaunch launch{op, static_cast<unsigned>(blocks), kMapThreads};
  if (wide) {
    launch_following(launch, map_kernel<kVector<T>, F>, f, vectors, count);
  } else {
    launch_following(launch, map_kernel<1, F>, f, vectors, count);
  }
}

// gradient[k] (=|+=) factor * dy, for up to two destinations in one pass.
template <typename T>
struct Spread {
  const T* dy;
  Wide<T> factor;
  GradientTo<T> to[2];

  template <int N>
  using State = Vec<T, N>;
  template <int N>
  __device__ __forceinline__ State<N> load(int64_t at) const {
    return gpu::load<N>(dy + at);
  }
  template <int N>
  __device__ __forceinline__ void finish(int64_t at, const State<N>& state) const {
    Wide<T> values[N];
#pragma unroll
    for (int j = 0; j < N; ++j) values[j] = factor * to_wide(state.v[j]);
    to[0].put(at, values);
    to[1].put(at, values);
  }
};

}  // namespace vitrine::gpu
