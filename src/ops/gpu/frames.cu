// frame_difference. Bound by memory: z is read once and twice as much written, backward the
// reverse: 50 MB at [16, 16, 64, 512] bf16, 12 us at 4.17 TB/s. A thread takes the same place in a
// few frames in a row, so that each frame but the first of them comes from memory, and from the
// cache, once.
#include "ops/gpu/elementwise.cuh"
#include "ops/gpu/rows.h"

namespace vitrine::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kFrames = 4;  // in a row that a thread takes

// z[B, T, S, C] as threads take it: `places` vectors of a frame, `chunks` runs of kFrames frames.
struct Frames {
  Divisor places, chunks, channels;  // vectors of S C and of C
  int64_t threads = 0, time = 0;

  Frames(const Shape& z, int vector)
      : places(z[2] * z[3] / vector),
        chunks((z[1] + kFrames - 1) / kFrames),
        channels(z[3] / vector),
        threads(z[0] * chunks.value * places.value),
        time(z[1]) {}

  // Of a thread: its first frame, how many there are, and where that vector lies in z and in
  // y[B, T, S, 2 C], in vectors.
  struct Run {
    int64_t first, count, in_z, in_y;
  };
  __device__ __forceinline__ Run run(int64_t i) const {
    const int64_t run = quotient(i, places), place = i - run * places.value;
    const int64_t batch = quotient(run, chunks), first = (run - batch * chunks.value) * kFrames;
    const int64_t frame = batch * time + first;
    const int64_t token = quotient(place, channels);
    return {first,
            min(time - first, static_cast<int64_t>(kFrames)),
            frame * places.value + place,
            2 * frame * places.value + place + token * channels.value};
  }
};

template <typename T, int N>
__device__ __forceinline__ Vec<T, N> no_values() {
  Vec<T, N> zeros;
#pragma unroll
  for (int j = 0; j < N; ++j) zeros.v[j] = from_wide<T>(Wide<T>(0));
  return zeros;
}

// y = [z ; z - the frame before], the difference of the first frame 0.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads, 4)
    difference_kernel(const T* z, T* y, const Frames frames) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  wait_for_previous();
  if (i >= frames.threads) return;
  const auto [first, count, in_z, in_y] = frames.run(i);
  const int64_t frame = frames.places.value * N;  // elements
  const T* from = z + in_z * N;
  // Of the frame before the run's first, and of the run.
  Vec<T, N> values[kFrames + 1];
#pragma unroll
  for (int t = 0; t < kFrames; ++t) {
    if (t < count) values[t + 1] = load<N>(from + t * frame);
  }
  values[0] = first > 0 ? load<N>(from - frame) : values[1];
  let_next_begin();
  T* to = y + in_y * N;
#pragma unroll
  for (int t = 0; t < kFrames; ++t) {
    if (t >= count) break;
    store(to + 2 * t * frame, values[t + 1]);
    Vec<T, N> difference;
#pragma unroll
    for (int j = 0; j < N; ++j) {
      const Wide<T> own = to_wide(values[t + 1].v[j]) - to_wide(values[t].v[j]);
      difference.v[j] = from_wide<T>(first + t == 0 ? Wide<T>(0) : own);
    }
    store(to + 2 * t * frame + frames.channels.value * N, difference);
  }
}

// dz = d value + d difference - d difference of the frame after.
template <typename T, int N>
__global__ void __launch_bounds__(kThreads, 3)
    difference_backward_kernel(const T* dy, const GradientTo<T> dz, const Frames frames) {
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  wait_for_previous();
  if (i >= frames.threads) return;
  const auto [first, count, in_z, in_y] = frames.run(i);
  const int64_t frame = frames.places.value * N;
  const T* value = dy + in_y * N;
  const T* difference = value + frames.channels.value * N;
  Vec<T, N> values[kFrames], differences[kFrames + 1];
#pragma unroll
  for (int t = 0; t < kFrames; ++t) {
    if (t < count) values[t] = load<N>(value + 2 * t * frame);
  }
#pragma unroll
  for (int t = 0; t <= kFrames; ++t) {
    const bool there = t <= count && first + t > 0 && first + t < frames.time;
    differences[t] = there ? load<N>(difference + 2 * t * frame) : no_values<T, N>();
  }
  let_next_begin();
#pragma unroll
  for (int t = 0; t < kFrames; ++t) {
    if (t >= count) break;
    stay_packed(values[t]);
    stay_packed(differences[t]);
    stay_packed(differences[t + 1]);
    Wide<T> sums[N];
#pragma unroll
    for (int j = 0; j < N; ++j) {
      sums[j] =
          to_wide(values[t].v[j]) + to_wide(differences[t].v[j]) - to_wide(differences[t + 1].v[j]);
    }
    dz.put(in_z * N + t * frame, sums);
  }
}

// f.operator()<N>(frames, launch) with vectors of N elements; nothing where z has none.
template <typename T, typename F>
void over_frames(const Shape& z, bool wide, const char* op, F&& f) {
  if (z.elements() == 0) return;
  const auto with = [&]<int N>() {
    const Frames frames(z, N);
    const int64_t blocks = (frames.threads + kThreads - 1) / kThreads;
    f.template operator()<N>(frames, FollowingLaunch{op, static_cast<unsigned>(blocks), kThreads});
  };
  if (wide && z[3] % kVector<T> == 0) {
    with.template operator()<kVector<T>>();
  } else {
    with.template operator()<1>();
  }
}

void difference_forward(const OpCall& call) {
  const TensorView &z = call.in[0], &y = call.out[0];
  const char* op = "frame_difference";
  dispatch_float(z.dtype, op, [&]<typename T>() {
    const bool wide = aligned_to(16, {z.data, y.data});
    const auto run = [&]<int N>(const Frames& frames, const FollowingLaunch& launch) {
      launch_following(launch, difference_kernel<T, N>, z.as<const T>(), y.as<T>(), frames);
    };
    over_frames<T>(z.shape, wide, op, run);
  });
}

void difference_backward(const OpCall&, Views dout, Gradients din) {
  const TensorView &dy = dout[0], &dz = din[0].view;
  const char* op = "frame_difference backward";
  dispatch_float(dy.dtype, op, [&]<typename T>() {
    const bool wide = aligned_to(16, {dy.data, dz.data});
    const GradientTo<T> to = gradient_to<T>(din[0], dy.dtype, op);
    const auto run = [&]<int N>(const Frames& frames, const FollowingLaunch& launch) {
      launch_following(launch, difference_backward_kernel<T, N>, dy.as<const T>(), to, frames);
    };
    over_frames<T>(dz.shape, wide, op, run);
  });
}

}  // namespace

void add_frame_rows(Backend& backend) {
  backend.add("frame_difference", {difference_forward, when_wanted<difference_backward>});
}

}  // namespace vitrine::gpu
