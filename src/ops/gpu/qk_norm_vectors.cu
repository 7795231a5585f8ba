// qk_norm of heads whose halves are whole vectors of 16 bytes, with and without rotary positions.
//
// Bytes an element: 2 storage sizes forward, 3 backward (values 2: x is not read): [16384, 2048]
// bf16 134 MB and 193 MB, 32 and 46 us at 4.17 TB/s. A thread has one place of a row, the same
// vector of both halves of two neighbouring heads: rotary turns the halves against each other, with
// angles that are read once for both heads; the lanes of a head are neighbours. Forward takes one
// row a thread. Backward's blocks stay and go from row to row, so that divisions, weights and the
// sums of their gradients stay in registers, and the rows ahead are copied to shared memory; each
// block ends with one row of partial sums of both weights' gradients.
#include <algorithm>

#include "gpu/copy_ahead.cuh"
#include "gpu/following.cuh"
#include "ops/gpu/qk_norm.cuh"

namespace vitrine::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kBlocks = 2;  // of a multiprocessor
constexpr int kHeads = 2;   // of a thread
constexpr size_t kBlockOverhead = 2048;

// Pairs of neighbouring heads; queries, keys and values each begin with a pair of their own.
template <typename T>
__host__ __device__ inline int pairs_of_row(const QkNorm<T>& a) {
  return (a.queries + 1) / kHeads + 2 * ((a.keys + 1) / kHeads);
}

// Where a thread works: `there` is false of lanes beyond a head and of threads left over.
struct Place {
  int64_t first_row, step;
  int head, heads;  // the first of its heads, how many there are
  bool query, value;
  bool there;

  template <int kLanes, typename T>
  static __device__ Place of(const QkNorm<T>& a, const Divisor& pairs, int lane_width) {
    const int lane = static_cast<int>(threadIdx.x) % kLanes;
    const int64_t group = (static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x) / kLanes;
    const int64_t groups = static_cast<int64_t>(gridDim.x) * (blockDim.x / kLanes);
    const int of_queries = (a.queries + 1) / kHeads, of_keys = (a.keys + 1) / kHeads;
    Place place;
    place.step = quotient(groups, pairs);
    place.first_row = quotient(group, pairs);
    int pair = static_cast<int>(group - place.first_row * pairs.value);
    place.query = pair < of_queries;
    place.value = pair >= of_queries + of_keys;
    int begin = 0, end = a.queries;
    if (place.value) {
      pair -= of_queries + of_keys, begin = a.normed(), end = a.row_heads();
    } else if (!place.query) {
      pair -= of_queries, begin = a.queries, end = a.normed();
    }
    place.head = begin + pair * kHeads;
    place.heads = min(kHeads, end - place.head);
    place.there = place.first_row < place.step && lane * lane_width < a.d / 2;
    return place;
  }
};

// The copies of a thread, [stage][vector][thread] of 16 bytes: half 0 and 1 of head 0, of head 1,
// then the same of the second tensor.
template <typename T, int kVectors>
struct Copies {
  uint4* ring;
  __device__ uint4* at(int stage, int vector) const {
    return ring + (stage * kVectors + vector) * kThreads + threadIdx.x;
  }
  __device__ Vec<T, 16 / sizeof(T)> get(int stage, int vector, bool there) const {
    constexpr int kN = 16 / sizeof(T);
    return there ? load<kN>(reinterpret_cast<const T*>(at(stage, vector))) : Vec<T, kN>{};
  }
  // Both halves of the heads of a row from `from`, that of the first.
  __device__ void fetch(int stage, int tensor, const T* from, int heads, int d) const {
#pragma unroll
    for (int u = 0; u < kHeads; ++u) {
      if (u >= heads) continue;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        copy_ahead(at(stage, (tensor * kHeads + u) * 2 + h), from + u * d + h * (d / 2));
      }
    }
  }
};

// Cosines and sines of a thread's pairs; no turn where `there` is false.
template <int kN>
struct Angles {
  Vec<float, kN> cosine, sine;

  template <typename T>
  __device__ void load_of(const QkNorm<T>& a, int64_t row, int pair, bool there) {
    if (there) {
      const int64_t at = a.position(row) * (a.d / 2) + pair;
      cosine = load<kN>(a.table.cosine + at);
      sine = load<kN>(a.table.sine + at);
      return;
    }
#pragma unroll
    for (int j = 0; j < kN; ++j) cosine.v[j] = 1, sine.v[j] = 0;
  }
  // (first, second) by the angle, or back with sign -1.
  __device__ __forceinline__ void turn(int j, float sign, float& first, float& second) const {
    const float c = cosine.v[j], s = sign * sine.v[j], x = first, y = second;
    first = x * c - y * s;
    second = y * c + x * s;
  }
};

// Of forward: small blocks where angles take registers, so that more of them fit.
constexpr int forward_threads(bool turned) { return turned ? kThreads / 2 : kThreads; }
constexpr int forward_blocks(bool turned) { return turned ? 7 : 4; }

template <typename T, int kLanes, bool kTurned>
__global__ void __launch_bounds__(forward_threads(kTurned), forward_blocks(kTurned))
    qk_norm_kernel(const QkNorm<T> a, const Divisor pairs) {
  constexpr int kN = 16 / sizeof(T);
  const int lane = threadIdx.x % kLanes, first = lane * kN, half = a.d / 2;
  const Place place = Place::of<kLanes>(a, pairs, kN);
  const int64_t row = place.first_row;
  const bool there = place.there && row < a.rows;
  const int64_t at = (row * a.row_heads() + place.head) * a.d + first;
  Vec<T, kN> x[kHeads][2];
#pragma unroll
  for (int u = 0; u < kHeads; ++u) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      x[u][h] =
          there && u < place.heads ? load_once<kN>(a.x + at + u * a.d + h * half) : Vec<T, kN>{};
    }
  }
  const T* w = place.query ? a.wq : a.wk;
  Vec<T, kN> weight[2] = {};
  if (there) weight[0] = load<kN>(w + first), weight[1] = load<kN>(w + half + first);
  const bool normed = there && !place.value;
  Angles<kN> angles;
  if constexpr (kTurned) angles.load_of(a, row, first, normed);
  float own = 0;  // the statistic that this lane writes
#pragma unroll
  for (int u = 0; u < kHeads; ++u) {
    float square = 0;
#pragma unroll
    for (int j = 0; j < kN; ++j) {
      square += to_wide(x[u][0].v[j]) * to_wide(x[u][0].v[j]);
      square += to_wide(x[u][1].v[j]) * to_wide(x[u][1].v[j]);
    }
    square = warp_sum<kLanes>(square) / static_cast<float>(a.d);
    const float rstd = 1 / sqrtf(square + a.eps);
    if (lane == u) own = rstd;
    if (!there || u >= place.heads) continue;
    if (normed) {
      stay_packed(weight[0]);
      stay_packed(weight[1]);
      stay_packed(x[u][0]);
      stay_packed(x[u][1]);
#pragma unroll
      for (int j = 0; j < kN; ++j) {
        float y[2] = {to_wide(x[u][0].v[j]) * rstd * to_wide(weight[0].v[j]),
                      to_wide(x[u][1].v[j]) * rstd * to_wide(weight[1].v[j])};
        if constexpr (kTurned) angles.turn(j, 1, y[0], y[1]);
        x[u][0].v[j] = from_wide<T>(y[0]);
        x[u][1].v[j] = from_wide<T>(y[1]);
      }
    }
    store_once(a.y + at + u * a.d, x[u][0]);
    store_once(a.y + at + u * a.d + half, x[u][1]);
  }
  // Also by lanes beyond the head: all of its lanes have the sum.
  if (row < a.rows && !place.value && lane < place.heads && a.rstd) {
    a.rstd[row * a.normed() + place.head + lane] = own;
  }
}

template <typename T, int kLanes, bool kTurned>
__global__ void __launch_bounds__(kThreads, kBlocks)
    qk_norm_backward_kernel(const QkNorm<T> a, const Divisor pairs, int64_t rounds) {
  constexpr int kN = 16 / sizeof(T);
  extern __shared__ uint4 ring[];
  const Copies<T, 4 * kHeads> copies{ring};
  const int lane = threadIdx.x % kLanes, first = lane * kN, half = a.d / 2;
  const Place place = Place::of<kLanes>(a, pairs, kN);
  const int64_t width = int64_t{a.row_heads()} * a.d;
  const int64_t within = int64_t{place.head} * a.d + first;
  const T* w = place.query ? a.wq : a.wk;
  Vec<T, kN> weight[2] = {};
  if (place.there) weight[0] = load<kN>(w + first), weight[1] = load<kN>(w + half + first);
  const float inverse = 1 / static_cast<float>(a.d);
  const auto fetch = [&](int64_t row, int stage) {
    if (place.there && row < a.rows) {
      copies.fetch(stage, 0, a.dy + row * width + within, place.heads, a.d);
      if (!place.value) copies.fetch(stage, 1, a.x + row * width + within, place.heads, a.d);
    }
    end_stage();
  };
  const auto fetch_rstd = [&](int64_t row, float(&rstd)[kHeads]) {
#pragma unroll
    for (int u = 0; u < kHeads; ++u) {
      const bool given = place.there && !place.value && u < place.heads && row < a.rows;
      rstd[u] = given ? a.rstd[row * a.normed() + place.head + u] : 0;
    }
  };
  for (int s = 0; s < kStages; ++s) fetch(place.first_row + s * place.step, s);
  int stage = 0;
  int64_t row = place.first_row;
  float next[kHeads], sums[2][kN] = {};
  fetch_rstd(row, next);
  for (int64_t round = 0; round < rounds; ++round, row += place.step) {
    const bool there = place.there && row < a.rows;
    Angles<kN> angles;
    if constexpr (kTurned) angles.load_of(a, row, first, there && !place.value);
    float rstd[kHeads];
#pragma unroll
    for (int u = 0; u < kHeads; ++u) rstd[u] = next[u];
    fetch_rstd(row + place.step, next);
    wait_for_oldest();
#pragma unroll
    for (int u = 0; u < kHeads; ++u) {
      const bool given = there && u < place.heads, normed = given && !place.value;
      const int in_x = 2 * (kHeads + u);
      Vec<T, kN> x[2];
      float d[2][kN], gn = 0;
      // x, and dy turned back.
      const auto read = [&] {
        Vec<T, kN> dy[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          x[h] = copies.get(stage, in_x + h, normed);
          dy[h] = copies.get(stage, 2 * u + h, given);
        }
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          d[0][j] = to_wide(dy[0].v[j]), d[1][j] = to_wide(dy[1].v[j]);
          if constexpr (kTurned) {
            if (normed) angles.turn(j, -1, d[0][j], d[1][j]);
          }
        }
        stay_packed(weight[0]);
        stay_packed(weight[1]);
      };
      read();
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int j = 0; j < kN; ++j) {
          const float product = d[h][j] * to_wide(x[h].v[j]) * rstd[u];
          sums[h][j] += product;
          gn += product * to_wide(weight[h].v[j]);
        }
      }
      gn = warp_sum<kLanes>(gn) * inverse;
      if (!given) continue;
      read_again();
      read();
      if (normed) {
        const float back = rstd[u] * rstd[u] * gn;
#pragma unroll
        for (int h = 0; h < 2; ++h) {
#pragma unroll
          for (int j = 0; j < kN; ++j) {
            d[h][j] = rstd[u] * (d[h][j] * to_wide(weight[h].v[j])) - to_wide(x[h].v[j]) * back;
          }
        }
      }
      const int64_t to = row * width + within + u * a.d;
      a.dx.put(to, d[0]);
      a.dx.put(to + half, d[1]);
    }
    fetch(row + kStages * place.step, stage);
    stage ^= 1;
  }
  if (a.partial == nullptr) return;
  let_next_begin();
  // The groups' sums are added in the groups' order, where the copies lay: nothing but empty stages
  // is left of those. [half, element of a vector][thread], so that lanes are side by side.
  float* part = reinterpret_cast<float*>(ring);
  constexpr int kColumns = 2 * kN * kLanes;
  for (int which = 0; which < 2; ++which) {
    const bool own = !place.value && place.query == (which == 0);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < 2 * kN; ++k) {
      part[k * kThreads + threadIdx.x] = own ? sums[k / kN][k % kN] : 0.0f;
    }
    __syncthreads();
    for (int c = threadIdx.x; c < kColumns; c += kThreads) {
      const int k = c / kLanes, of = c % kLanes, column = k / kN * half + of * kN + k % kN;
      if (of * kN >= half) continue;
      float sum = 0;
#pragma unroll 8
      for (int g = 0; g < kThreads / kLanes; ++g) sum += part[k * kThreads + g * kLanes + of];
      a.partial[(static_cast<int64_t>(blockIdx.x) * 2 + which) * a.d + column] = sum;
    }
  }
}

// Lanes for half a head, or 0: heads are too long, or halves are not whole vectors.
template <typename T>
int lanes_for(int d) {
  constexpr int kN = 16 / sizeof(T);
  const int vectors = d / (2 * kN);
  if (d % (2 * kN) != 0 || vectors < 1 || vectors > 32) return 0;
  return vectors <= 4 ? 4 : vectors <= 8 ? 8 : vectors <= 16 ? 16 : 32;
}

template <typename T, int kLanes>
bool forward(const QkNorm<T>& a) {
  const int threads = forward_threads(a.turned);
  const int64_t groups = threads / kLanes, pairs = pairs_of_row(a);
  const auto kernel = a.turned ? qk_norm_kernel<T, kLanes, true> : qk_norm_kernel<T, kLanes, false>;
  kernel<<<static_cast<unsigned>((a.rows * pairs + groups - 1) / groups), threads, 0, stream()>>>(
      a, pairs);
  VITRINE_GPU_LAUNCHED("qk_norm");
  return true;
}

// A round of the grid takes as many whole rows as it has threads for, one at least.
template <typename T, int kLanes>
bool backward(QkNorm<T>& a, bool parameters, int64_t& blocks) {
  constexpr size_t kBytes = size_t{16} * kStages * 4 * kHeads * kThreads;
  if (kBytes + kBlockOverhead > limits().shared_bytes_a_block / kBlocks) return false;
  constexpr int64_t kGroups = kThreads / kLanes;
  const int64_t pairs = pairs_of_row(a);
  const int64_t enough = (a.rows * pairs + kGroups - 1) / kGroups;
  const int64_t most = static_cast<int64_t>(limits().multiprocessors) * kBlocks;
  blocks = std::max(std::min(enough, most), (pairs + kGroups - 1) / kGroups);
  const int64_t at_once = blocks * kGroups / pairs;
  if (parameters) {
    a.partial =
        static_cast<float*>(workspace(static_cast<size_t>(blocks * 2 * a.d) * sizeof(float)));
  }
  const auto kernel = a.turned ? qk_norm_backward_kernel<T, kLanes, true>
                               : qk_norm_backward_kernel<T, kLanes, false>;
  VITRINE_GPU_CHECK(cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(kBytes)));
  kernel<<<static_cast<unsigned>(blocks), kThreads, kBytes, stream()>>>(
      a, pairs, (a.rows + at_once - 1) / at_once);
  VITRINE_GPU_LAUNCHED("qk_norm backward");
  return true;
}

// Calls f.operator()<lanes>(); false where there is no kernel.
template <typename T, typename F>
bool with_lanes(const QkNorm<T>& a, bool aligned, F&& f) {
  if constexpr (sizeof(T) < 8) {
    switch (aligned ? lanes_for<T>(a.d) : 0) {
      case 4:
        return f.template operator()<4>();
      case 8:
        return f.template operator()<8>();
      case 16:
        return f.template operator()<16>();
      case 32:
        return f.template operator()<32>();
    }
  }
  return false;
}

}  // namespace

template <typename T>
bool qk_norm_vectors(const QkNorm<T>& a, bool aligned) {
  return with_lanes(a, aligned, [&]<int kLanes>() { return forward<T, kLanes>(a); });
}

template <typename T>
bool qk_norm_vectors_backward(QkNorm<T>& a, bool aligned, bool parameters, int64_t& blocks) {
  return with_lanes(
      a, aligned, [&]<int kLanes>() { return backward<T, kLanes>(a, parameters, blocks); });
}

#define VITRINE_INSTANCE(T)                                 \
  template bool qk_norm_vectors<T>(const QkNorm<T>&, bool); \
  template bool qk_norm_vectors_backward<T>(QkNorm<T>&, bool, bool, int64_t&)
VITRINE_INSTANCE(float);
VITRINE_INSTANCE(__nv_bfloat16);
VITRINE_INSTANCE(__half);
#undef VITRINE_INSTANCE

}  // namespace vitrine::gpu
