// Where kernels put gradients, and the checks that every backward of the GPU's table begins with.
#pragma once

#include <span>
#include <string>

#include "gpu/runtime.h"
#include "gpu/vector.cuh"
#include "ops/cpu/operands.h"
#include "ops/op.h"

namespace vitrine::gpu {

template <typename T>
struct StorageOf;
template <>
struct StorageOf<float> {
  static constexpr DType value = DType::kF32;
};
template <>
struct StorageOf<double> {
  static constexpr DType value = DType::kF64;
};
template <>
struct StorageOf<__nv_bfloat16> {
  static constexpr DType value = DType::kBF16;
};
template <>
struct StorageOf<__half> {
  static constexpr DType value = DType::kF16;
};

// A gradient that is written over or added to; none when `data` is null. The branches on its
// members are the same for a whole launch.
struct Sink {
  void* data = nullptr;
  DType dtype = DType::kF32;
  bool accumulate = false;

  Sink() = default;
  explicit Sink(const GradView& gradient)
      : data(gradient.view.data), dtype(gradient.view.dtype), accumulate(gradient.accumulate) {}
};

template <typename S, int N, typename W>
__device__ __forceinline__ void put_as(const Sink& sink, int64_t at, const W* values) {
  S* to = static_cast<S*>(sink.data) + at;
  Vec<S, N> out;
  if (sink.accumulate) {
    out = load<N>(to);
#pragma unroll
    for (int j = 0; j < N; ++j) {
      out.v[j] = from_wide<S>(static_cast<W>(to_wide(out.v[j])) + values[j]);
    }
  } else {
#pragma unroll
    for (int j = 0; j < N; ++j) out.v[j] = from_wide<S>(values[j]);
  }
  store(to, out);
}

// N values from element `at` on; the sink's dtype is T or f32 (check_sink), and 16-byte aligned
// there when N is not 1.
template <typename T, int N>
__device__ __forceinline__ void put(const Sink& sink, int64_t at, const Wide<T>* values) {
  if (sink.data == nullptr) return;
  if (sink.dtype == StorageOf<T>::value) {
    put_as<T, N>(sink, at, values);
  } else {
    put_as<float, N>(sink, at, values);
  }
}

// One value, whatever the sink's floating dtype.
template <typename W>
__device__ __forceinline__ void put_any(const Sink& sink, int64_t at, W value) {
  if (sink.data == nullptr) return;
  switch (sink.dtype) {
    case DType::kBF16:
      return put_as<__nv_bfloat16, 1>(sink, at, &value);
    case DType::kF16:
      return put_as<__half, 1>(sink, at, &value);
    case DType::kF64:
      return put_as<double, 1>(sink, at, &value);
    default:
      return put_as<float, 1>(sink, at, &value);
  }
}

// Quotient and remainder; 32-bit division where it is enough.
__device__ __forceinline__ void divide(int64_t i, int64_t by, int64_t& quotient, int64_t& rest) {
  if (((i | by) >> 32) == 0) {
    const auto q = static_cast<uint32_t>(i) / static_cast<uint32_t>(by);
    quotient = q;
    rest = static_cast<uint32_t>(i) - q * static_cast<uint32_t>(by);
  } else {
    quotient = i / by;
    rest = i - quotient * by;
  }
}

// What put<T, N> can write.
inline void check_sink(const char* op, const GradView& gradient, DType dtype) {
  if (!gradient || gradient.view.dtype == dtype || gradient.view.dtype == DType::kF32) return;
  throw ConfigError(std::string(op) + ": a gradient in " + dtype_name(gradient.view.dtype) +
                    " of values in " + dtype_name(dtype));
}

// 16-byte accesses are possible from the first element on; null pointers are not accessed.
template <typename... Pointers>
bool aligned16(const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) | ... | uintptr_t{0}) % 16) == 0;
}

inline void zero_gradients_async(std::span<const GradView> din) {
  for (const GradView& gradient : din) {
    if (!gradient || gradient.accumulate) continue;
    VITRINE_GPU_CHECK(cudaMemsetAsync(gradient.view.data, 0, gradient.view.bytes(), stream()));
  }
}

// As guarded() of ops/cpu/operands.h.
template <void (*Backward)(const OpCall&, std::span<const TensorView>, std::span<const GradView>)>
void guarded_async(const OpCall& call,
                   std::span<const TensorView> dout,
                   std::span<const GradView> din) {
  bool given = false, wanted = false;
  for (const TensorView& view : dout) given = given || view;
  for (const GradView& gradient : din) wanted = wanted || gradient;
  if (!wanted) return;
  if (given) {
    Backward(call, dout, din);
  } else {
    zero_gradients_async(din);
  }
}

// Blocks for a grid-stride loop of `items` threads.
inline unsigned blocks_for(int64_t items, int threads, int blocks_a_multiprocessor) {
  const int64_t wanted = (items + threads - 1) / threads;
  const int64_t most = static_cast<int64_t>(limits().multiprocessors) * blocks_a_multiprocessor;
  return static_cast<unsigned>(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

}  // namespace vitrine::gpu
