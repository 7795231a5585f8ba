// swiglu: y = silu(gate) up, gate and up the halves of a row; forward and backward.
//
// Bytes an output element: forward 3 storage sizes, backward 5 (gate, up, dy; dgate, dup):
// [16384, 8960] outputs in bf16 are 881 MB and 1.47 GB, 211 and 352 us at 4.17 TB/s. A thread takes
// two vectors of 16 bytes of each array at a time. Storage of 16 bits uses the fast exponential and
// division (2 ulp of float), far below its rounding. Beside linears in fp8 the largest magnitude
// that is written is found on the way, which spares the linear reading it all once more.
#include <bit>
#include <type_traits>

#include "ops/gpu/fp8.h"
#include "ops/gpu/pointwise.h"
#include "ops/gpu/rows.cuh"

namespace vitrine::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kAtOnce = 2;  // vectors of each array in flight a thread

template <typename T, typename W>
__device__ __forceinline__ W sigmoid(W x) {
  if constexpr (sizeof(T) == 2) {
    return __fdividef(1.0f, 1.0f + __expf(-x));
  } else {
    return 1 / (1 + exp(-x));
  }
}

// The largest magnitude among what a block wrote, as bits of bf16, to `amax_bits`. As whole numbers
// magnitudes are in the order of their values, with NaN above all, and rounding keeps that order.
__device__ __forceinline__ void note_amax(uint32_t most, uint32_t* amax_bits) {
  __shared__ uint32_t shared[kThreads / VITRINE_WARP];
  most = warp_max(most);
  if (threadIdx.x % VITRINE_WARP == 0) shared[threadIdx.x / VITRINE_WARP] = most;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (const uint32_t other : shared) most = other > most ? other : most;
  // To nearest even, as what is stored; NaN is above all.
  const uint32_t rounded = (most + 0x7fffu + (most >> 16 & 1u)) >> 16;
  const uint32_t bits = most > 0x7f800000u ? 0x7fffu : rounded;
  // Most blocks find that others had more.
  if (bits > *static_cast<volatile uint32_t*>(amax_bits)) atomicMax(amax_bits, bits);
}
template <typename W>
__device__ __forceinline__ void raise(uint32_t& most, W x) {
  const uint32_t bits = std::bit_cast<uint32_t>(static_cast<float>(x)) & 0x7fffffffu;
  most = bits > most ? bits : most;
}

// `vectors` of kN elements in y, `row_vectors` of them a row.
template <typename T, int kN, bool kNote>
__global__ void __launch_bounds__(kThreads) swiglu_kernel(
    const T* x, T* y, int64_t vectors, const Divisor row_vectors, uint32_t* amax_bits) {
  using W = Wide<T>;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * (kThreads * kAtOnce) + threadIdx.x;
  Vec<T, kN> gate[kAtOnce], up[kAtOnce];
  uint32_t most = 0;
#pragma unroll
  for (int u = 0; u < kAtOnce; ++u) {
    if (i + u * kThreads >= vectors) continue;
    int64_t row, column;
    divide(i + u * kThreads, row_vectors, row, column);
    const T* from = x + (2 * row * row_vectors.value + column) * kN;
    gate[u] = load_once<kN>(from);
    up[u] = load_once<kN>(from + row_vectors.value * kN);
  }
#pragma unroll
  for (int u = 0; u < kAtOnce; ++u) {
    if (i + u * kThreads >= vectors) continue;
    Vec<T, kN> out;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      const W g = to_wide(gate[u].v[j]);
      const W value = g * sigmoid<T>(g) * to_wide(up[u].v[j]);
      if constexpr (kNote) raise(most, value);
      out.v[j] = from_wide<T>(value);
    }
    store(y + (i + u * kThreads) * kN, out);
  }
  if constexpr (kNote) note_amax(most, amax_bits);
}

template <typename T, int kN, bool kNote>
__global__ void __launch_bounds__(kThreads) swiglu_backward_kernel(const T* x,
                                                                   const T* dy,
                                                                   GradientTo<T> dx,
                                                                   int64_t vectors,
                                                                   const Divisor row_vectors,
                                                                   uint32_t* amax_bits) {
  using W = Wide<T>;
  const int64_t i = static_cast<int64_t>(blockIdx.x) * (kThreads * kAtOnce) + threadIdx.x;
  Vec<T, kN> gate[kAtOnce], up[kAtOnce], grad[kAtOnce];
  int64_t place[kAtOnce];
  uint32_t most = 0;
#pragma unroll
  for (int u = 0; u < kAtOnce; ++u) {
    if (i + u * kThreads >= vectors) continue;
    int64_t row, column;
    divide(i + u * kThreads, row_vectors, row, column);
    place[u] = (2 * row * row_vectors.value + column) * kN;
    gate[u] = load_once<kN>(x + place[u]);
    up[u] = load_once<kN>(x + place[u] + row_vectors.value * kN);
    grad[u] = load_once<kN>(dy + (i + u * kThreads) * kN);
  }
#pragma unroll
  for (int u = 0; u < kAtOnce; ++u) {
    if (i + u * kThreads >= vectors) continue;
    W dgate[kN], dup[kN];
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      const W g = to_wide(gate[u].v[j]), d = to_wide(grad[u].v[j]), s = sigmoid<T>(g);
      dgate[j] = d * to_wide(up[u].v[j]) * s * (1 + g * (1 - s));
      dup[j] = d * g * s;
      if constexpr (kNote) {
        raise(most, dgate[j]);
        raise(most, dup[j]);
      }
    }
    dx.put(place[u], dgate);
    dx.put(place[u] + row_vectors.value * kN, dup);
  }
  if constexpr (kNote) note_amax(most, amax_bits);
}

unsigned blocks_of(int64_t vectors) {
  constexpr int64_t kBlock = kThreads * kAtOnce;
  return static_cast<unsigned>((vectors + kBlock - 1) / kBlock);
}

// Whether a linear in fp8 may come next, and can take the largest magnitude from here.
template <typename T>
bool wanted_note(const OpCall& call, const TensorView& written) {
  return std::is_same_v<T, __nv_bfloat16> && written.dtype == DType::kBF16 &&
         call.attrs->integer("fp8", 0) != 0;
}

template <typename T, int kN>
void forward(const OpCall& call, int64_t width) {
  const TensorView x = call.in[0], y = call.out[0];
  const int64_t vectors = y.elements() / kN;
  const auto launch = [&](auto kernel, uint32_t* amax_bits) {
    kernel<<<blocks_of(vectors), kThreads, 0, stream()>>>(
        x.as<const T>(), y.as<T>(), vectors, width / kN, amax_bits);
    VITRINE_GPU_LAUNCHED("swiglu");
  };
  if (!wanted_note<T>(call, y)) return launch(swiglu_kernel<T, kN, false>, nullptr);
  launch(swiglu_kernel<T, kN, std::is_same_v<T, __nv_bfloat16>>, begin_amax_note());
  end_amax_note(y.data, y.elements());
}

template <typename T, int kN>
void backward(const OpCall& call, const TensorView& dy, const GradView& dx, int64_t width) {
  const TensorView x = call.in[0];
  const int64_t vectors = dy.elements() / kN;
  const auto launch = [&](auto kernel, uint32_t* amax_bits) {
    kernel<<<blocks_of(vectors), kThreads, 0, stream()>>>(x.as<const T>(),
                                                          dy.as<const T>(),
                                                          gradient_to<T>(dx, x.dtype, "swiglu"),
                                                          vectors,
                                                          width / kN,
                                                          amax_bits);
    VITRINE_GPU_LAUNCHED("swiglu backward");
  };
  if (dx.accumulate || !wanted_note<T>(call, dx.view)) {
    return launch(swiglu_backward_kernel<T, kN, false>, nullptr);
  }
  launch(swiglu_backward_kernel<T, kN, std::is_same_v<T, __nv_bfloat16>>, begin_amax_note());
  end_amax_note(dx.view.data, dx.view.elements());
}

void swiglu_forward(const OpCall& call) {
  const TensorView x = call.in[0], y = call.out[0];
  if (y.elements() == 0) return;
  const int64_t width = y.shape[-1];
  dispatch_float(x.dtype, "swiglu", [&]<typename T>() {
    constexpr int kN = 16 / sizeof(T);
    if (width % kN == 0 && aligned_to(16, {x.as<const T>(), y.as<const T>()})) {
      forward<T, kN>(call, width);
    } else {
      forward<T, 1>(call, width);
    }
  });
}

void swiglu_backward(const OpCall& call,
                     std::span<const TensorView> dout,
                     std::span<const GradView> din) {
  const TensorView x = call.in[0], dy = dout[0];
  const GradView dx = operand(din, 0);
  if (dy.elements() == 0) return;
  const int64_t width = dy.shape[-1];
  dispatch_float(x.dtype, "swiglu", [&]<typename T>() {
    constexpr int kN = 16 / sizeof(T);
    if (width % kN == 0 &&
        aligned_to(16, {x.as<const T>(), dy.as<const T>(), dx.view.as<const T>()})) {
      backward<T, kN>(call, dy, dx, width);
    } else {
      backward<T, 1>(call, dy, dx, width);
    }
  });
}

}  // namespace

OpKernels swiglu_row() { return {swiglu_forward, when_wanted<swiglu_backward>}; }

}  // namespace vitrine::gpu
