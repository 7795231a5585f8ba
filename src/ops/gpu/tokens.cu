// Tokens before, out of and over sequences: prepend_token, take_token, mean_pool. Bound by memory:
// at [256, 64, 512] bf16 prepend_token moves 34 MB each way, 8 us at 4.17 TB/s, mean_pool and
// take_token's backward 17 MB. Each direction is one launch: the sum that is the token's gradient
// is the work of a few blocks of the kernel that copies the rest.
#include "ops/gpu/layout.h"
#include "ops/gpu/reduce.cuh"
#include "ops/gpu/rows.h"

namespace vitrine::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kCopies = 4;                // vectors of a thread that copies
constexpr int kLanes = 8;                 // vectors side by side of a block that adds
constexpr int kRows = kThreads / kLanes;  // sequences that it takes at once
constexpr int kWarps = kThreads / VITRINE_WARP;
constexpr int kSpread = 8;  // tokens that a thread writes one value to

void prepend_token_forward(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const int64_t row = y.shape[2];
  RowMap map{.b = y.shape[1], .low = 1};
  map.inside = {x.data, x.shape[1] * row, row, 0, -row};
  map.outside = {call.in[1].data};
  gather_rows({y, false}, x.dtype, map, row, 1, "prepend_token");
}

// dy[B, 1 + S, D] in vectors: `row` are D, `sample` S D.
template <typename T>
struct PrependBackward {
  const T* dy;
  GradientTo<T> dx, dtoken;
  Divisor sample;
  int64_t row, batch;
};

// The gradient of kLanes vectors of the token, added in fixed order.
template <typename T, int N>
__device__ __forceinline__ void add_tokens(const PrependBackward<T>& a) {
  using W = Wide<T>;
  __shared__ W tree[kWarps][kLanes][N];
  const int lane = threadIdx.x % kLanes, warp = threadIdx.x / VITRINE_WARP;
  const int64_t vector = static_cast<int64_t>(blockIdx.x) * kLanes + lane;
  const int64_t stride = (a.sample.value + a.row) * N;
  W sums[N] = {};
  if (vector < a.row) {
    const T* from = a.dy + vector * N;
    for (int64_t b = threadIdx.x / kLanes; b < a.batch; b += kRows * kCopies) {
      Vec<T, N> values[kCopies];
#pragma unroll
      for (int u = 0; u < kCopies; ++u) {
        if (b + u * kRows < a.batch) values[u] = load<N>(from + (b + u * kRows) * stride);
      }
#pragma unroll
      for (int u = 0; u < kCopies; ++u) {
        if (b + u * kRows >= a.batch) break;
#pragma unroll
        for (int j = 0; j < N; ++j) sums[j] += to_wide(values[u].v[j]);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < N; ++j) {
#pragma unroll
    for (int below = kLanes; below < VITRINE_WARP; below *= 2) {
      sums[j] += __shfl_xor_sync(VITRINE_FULL_MASK, sums[j], below);
    }
    if (threadIdx.x % VITRINE_WARP < kLanes) tree[warp][lane][j] = sums[j];
  }
  __syncthreads();
  if (warp > 0 || threadIdx.x >= kLanes || vector >= a.row) return;
#pragma unroll
  for (int j = 0; j < N; ++j) {
    sums[j] = 0;
#pragma unroll
    for (int w = 0; w < kWarps; ++w) sums[j] += tree[w][lane][j];
  }
  a.dtoken.put(vector * N, sums);
}

// The first `adding` blocks add, the others copy.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads, 4)
    prepend_backward_kernel(const PrependBackward<T> a, unsigned adding) {
  wait_for_previous();
  if (blockIdx.x < adding) return add_tokens<T, N>(a);
  const int64_t first =
      static_cast<int64_t>(blockIdx.x - adding) * (kThreads * kCopies) + threadIdx.x;
  const int64_t vectors = a.batch * a.sample.value;
  Vec<T, N> values[kCopies];
#pragma unroll
  for (int u = 0; u < kCopies; ++u) {
    const int64_t i = first + u * kThreads;
    if (i >= vectors) continue;
    values[u] = load<N>(a.dy + (i + (quotient(i, a.sample) + 1) * a.row) * N);
  }
  let_next_begin();
#pragma unroll
  for (int u = 0; u < kCopies; ++u) {
    const int64_t i = first + u * kThreads;
    if (i < vectors) a.dx.put(i * N, values[u]);
  }
}

// Both gradients in one launch.
void prepend_backward_both(const TensorView& dy, const GradView& dx, const GradView& token) {
  const char* op = "prepend_token backward";
  const int64_t batch = dy.shape[0], tokens = dy.shape[1], row = dy.shape[2];
  if (row == 0) return;
  dispatch_float(dy.dtype, op, [&]<typename T>() {
    const auto launch = [&]<int N>() {
      const PrependBackward<T> a{dy.as<const T>(),
                                 gradient_to<T>(dx, dy.dtype, op),
                                 gradient_to<T>(token, dy.dtype, op),
                                 (tokens - 1) * row / N,
                                 row / N,
                                 batch};
      const auto adding = static_cast<unsigned>((a.row + kLanes - 1) / kLanes);
      const auto copying = static_cast<unsigned>((batch * a.sample.value + kThreads * kCopies - 1) /
                                                 (kThreads * kCopies));
      launch_following(op, prepend_backward_kernel<T, N>, adding + copying, kThreads, a, adding);
    };
    if (row % kVector<T> == 0 && aligned_to(16, {dy.data, dx.view.data, token.view.data})) {
      launch.template operator()<kVector<T>>();
    } else {
      launch.template operator()<1>();
    }
  });
}

void prepend_token_backward(const OpCall&, Views dout, Gradients din) {
  // With fewer tokens the sum is no longer little beside the copy, and wants more blocks.
  constexpr int64_t kManyTokens = 16;
  const TensorView& dy = dout[0];
  const char* op = "prepend_token backward";
  const int64_t batch = dy.shape[0], tokens = dy.shape[1], row = dy.shape[2];
  const GradView dx = operand(din, 0), token = operand(din, 1);
  if (dx && token && tokens > kManyTokens) return prepend_backward_both(dy, dx, token);
  RowMap map;
  map.inside = {dy.data, tokens * row, 0, 0, row};
  gather_rows(dx, dy.dtype, map, (tokens - 1) * row, 1, op);
  if (!token) return;
  ReduceShape shape;
  shape.kept[2] = row;
  shape.kept_stride[2] = 1;
  shape.summed[2] = batch;
  shape.summed_stride[2] = tokens * row;
  dispatch_float(dy.dtype, op, [&]<typename T>() {
    const PlainSum<T> f{dy.as<const T>()};
    reduce<T, 1>(f, shape, aligned_to(16, {f.g}), 1, {gradient_to<T>(token, dy.dtype, op)}, op);
  });
}

void take_token_forward(const OpCall& call) {
  const TensorView& x = call.in[0];
  const int64_t row = x.shape[2];
  RowMap map;
  map.inside = {x.data, x.shape[1] * row, 0, 0, call.attrs->integer("index") * row};
  gather_rows({call.out[0], false}, x.dtype, map, row, 1, "take_token");
}

void take_token_backward(const OpCall& call, Views dout, Gradients din) {
  const int64_t index = call.attrs->integer("index"), row = dout[0].shape[1];
  RowMap map{.b = din[0].view.shape[1], .low = index, .high = index + 1};
  map.inside = {dout[0].data, row};
  gather_rows(din[0], dout[0].dtype, map, row, 1, "take_token backward");
}

void mean_pool_forward(const OpCall& call) {
  const TensorView &x = call.in[0], &y = call.out[0];
  const ReduceShape shape = reduce_shape(x.shape, 0b101);
  dispatch_float(x.dtype, "mean_pool", [&]<typename T>() {
    const PlainSum<T> f{x.as<const T>()};
    reduce<T, 1>(f,
                 shape,
                 aligned_to(16, {f.g}),
                 1 / static_cast<Wide<T>>(x.shape[1]),
                 {gradient_to<T>({y, false}, x.dtype, "mean_pool")},
                 "mean_pool");
  });
}

// dx[b, s] (=|+=) factor * dy[b] for every token s; `row` vectors a token.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads) spread_kernel(const T* dy,
                                                          const GradientTo<T> dx,
                                                          Wide<T> factor,
                                                          int64_t threads,
                                                          int64_t tokens,
                                                          const Divisor row,
                                                          const Divisor chunks) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  wait_for_previous();
  if (i >= threads) return;
  const int64_t run = quotient(i, row), vector = i - run * row.value;
  const int64_t batch = quotient(run, chunks), first = (run - batch * chunks.value) * kSpread;
  const Vec<T, N> value = load<N>(dy + (batch * row.value + vector) * N);
  let_next_begin();
  Wide<T> values[N];
#pragma unroll
  for (int j = 0; j < N; ++j) values[j] = factor * to_wide(value.v[j]);
  const int64_t at = ((batch * tokens + first) * row.value + vector) * N;
#pragma unroll
  for (int t = 0; t < kSpread; ++t) {
    if (first + t < tokens) dx.put(at + t * row.value * N, values);
  }
}

void mean_pool_backward(const OpCall&, Views dout, Gradients din) {
  const TensorView &dy = dout[0], &dx = din[0].view;
  const char* op = "mean_pool backward";
  if (dx.elements() == 0) return;
  const int64_t batch = dx.shape[0], tokens = dx.shape[1], width = dx.shape[2];
  dispatch_float(dy.dtype, op, [&]<typename T>() {
    const auto launch = [&]<int N>() {
      const int64_t row = width / N, chunks = (tokens + kSpread - 1) / kSpread;
      const int64_t threads = batch * chunks * row;
      launch_following(op,
                       spread_kernel<T, N>,
                       static_cast<unsigned>((threads + kThreads - 1) / kThreads),
                       kThreads,
                       dy.as<const T>(),
                       gradient_to<T>(din[0], dy.dtype, op),
                       1 / static_cast<Wide<T>>(tokens),
                       threads,
                       tokens,
                       Divisor(row),
                       Divisor(chunks));
    };
    if (width % kVector<T> == 0 && aligned_to(16, {dy.data, dx.data})) {
      launch.template operator()<kVector<T>>();
    } else {
      launch.template operator()<1>();
    }
  });
}

}  // namespace

void add_token_rows(Backend& backend) {
  backend.add("prepend_token", {prepend_token_forward, when_wanted<prepend_token_backward>});
  backend.add("take_token", {take_token_forward, when_wanted<take_token_backward>});
  backend.add("mean_pool", {mean_pool_forward, when_wanted<mean_pool_backward>});
}

}  // namespace vitrine::gpu
