// AdamW on the GPU, with the bits of optim/adamw.cpp.
//
// Bytes an element: master, exp_avg and exp_avg_sq read and written (24), the gradient read (2 or
// 4), the parameter written where it is not the master (2): 28 to 30, so 1.5 billion elements take
// 11 ms at 4.17 TB/s. Two divisions and a root an element, about fifty instructions, are a quarter
// of what the cores issue in that time. A thread takes two groups of four elements, so that every
// access of a warp covers whole sectors (wider groups would write half sectors twice) and eight
// 16-byte loads are in flight; the arrays are far larger than the caches and are streamed.
//
// With bf16 masters and moments: parameter, exp_avg and exp_avg_sq read and written (12), the
// gradient read (2 or 4): 14 to 16, 1.5 billion elements in 5 to 6 ms. In a step this comes when
// the card's power has its clock at three quarters, so instructions count: a thread takes one group
// of eight elements (16 bytes an access again), which share one block of Philox; roots and
// quotients are rounded right without the checks of the general ones, which one test of the group
// replaces.
#include <algorithm>
#include <array>

#include "gpu/runtime.h"
#include "gpu/vector.cuh"
#include "optim/gpu/step_kernels.h"
#include "optim/gpu/update_math.cuh"
#include "optim/stochastic_rounding.h"

namespace vitrine::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kPieces = 2;       // groups a thread, kThreads groups apart
constexpr int kMostRanges = 80;  // of one launch: kernel parameters hold 4 KB

// Elements of one 16-byte access of the states.
template <typename M, typename S>
constexpr int kGroupOf = sizeof(M) == 2 && sizeof(S) == 2 ? 8 : 4;

struct Ranges {
  int count = 0;
  uint32_t step = 0;
  int64_t begin[kMostRanges], end[kMostRanges];
  int64_t first_tile[kMostRanges];
  int64_t to_parameter[kMostRanges];  // element of the parameter less place in the arrays
  uint64_t key[kMostRanges];
  bool decay[kMostRanges];
};

template <typename G, typename P, typename M, typename S>
struct Arrays {
  static constexpr int kGroup = kGroupOf<M, S>;
  static constexpr bool kRounds = sizeof(M) == 2 || sizeof(S) == 2;
  static constexpr int kBlocks = kGroup == 4 ? 4 : 3;  // of a multiprocessor
  static constexpr int64_t kTile = int64_t{kThreads} * kPieces * kGroup;
  using Gradient = G;
  using Parameter = P;
  using Master = M;
  using State = S;
  M* master;
  S* exp_avg;
  S* exp_avg_sq;
  const G* gradients;
  P* parameters;  // null: the master is the parameter
};

// The random bits of one range.
struct Noise {
  RoundingBits bits;
  int64_t to_parameter;
};

// What rounds kGroup elements, 16 bits each.
template <int kGroup>
struct GroupNoise {
  uint32_t numbers[kGroup];
  __device__ __forceinline__ uint32_t of(RoundingBits::Array array, int j) const {
    return numbers[RoundingBits::number(array, j)];
  }
};

// Of the group at `at`, which is a whole one in the parameter too.
template <int kGroup>
__device__ __forceinline__ GroupNoise<kGroup> group_noise(const Noise& noise, int64_t at) {
  static_assert(kGroup == 4 || kGroup == RoundingBits::kBlock);
  const int64_t element = at + noise.to_parameter;
  uint32_t words[4];
  noise.bits.words(element / RoundingBits::kBlock, words);
  const bool second = kGroup == 4 && element % RoundingBits::kBlock != 0;
  GroupNoise<kGroup> out;
#pragma unroll
  for (int i = 0; i < kGroup / 2; ++i) {
    const uint32_t word = kGroup == 4 && second ? words[(i + 2) % 4] : words[i];
    out.numbers[2 * i] = word & 0xffffu;
    out.numbers[2 * i + 1] = word >> 16;
  }
  return out;
}

template <typename T>
__device__ __forceinline__ T rounded(float x, uint32_t noise) {
  if constexpr (sizeof(T) == 4) {
    return x;
  } else {
    const uint16_t bits = stochastic_bf16(x, noise);
    T out;
    memcpy(&out, &bits, sizeof(out));
    return out;
  }
}

template <typename A>
struct Group {
  Vec<typename A::Master, A::kGroup> master;
  Vec<typename A::State, A::kGroup> m, v;
  Vec<typename A::Gradient, A::kGroup> g;
};

template <typename A>
__device__ __forceinline__ Group<A> fetch(const A& a, int64_t at) {
  return {load_once<A::kGroup>(a.master + at),
          load_once<A::kGroup>(a.exp_avg + at),
          load_once<A::kGroup>(a.exp_avg_sq + at),
          load_once<A::kGroup>(a.gradients + at)};
}

template <typename A>
__device__ __forceinline__ void update_group(const UpdateNumbers& n,
                                             float decay,
                                             float scale,
                                             const Noise& noise,
                                             Group<A>& x,
                                             const A& a,
                                             int64_t at) {
  using M = typename A::Master;
  using S = typename A::State;
  GroupNoise<A::kGroup> numbers{};
  if constexpr (A::kRounds) numbers = group_noise<A::kGroup>(noise, at);
  Vec<typename A::Parameter, A::kGroup> parameter;
#pragma unroll
  for (int j = 0; j < A::kGroup; ++j) {
    float master = to_wide(x.master.v[j]), m = to_wide(x.m.v[j]), v = to_wide(x.v.v[j]);
    update_one(n, decay, scale, to_wide(x.g.v[j]), master, m, v);
    if constexpr (sizeof(M) == 4) parameter.v[j] = from_wide<typename A::Parameter>(master);
    x.master.v[j] = rounded<M>(master, numbers.of(RoundingBits::kMaster, j));
    x.m.v[j] = rounded<S>(m, numbers.of(RoundingBits::kExpAvg, j));
    x.v.v[j] = rounded<S>(v, numbers.of(RoundingBits::kExpAvgSq, j));
  }
  store_once(a.master + at, x.master);
  store_once(a.exp_avg + at, x.m);
  store_once(a.exp_avg_sq + at, x.v);
  if constexpr (sizeof(M) == 4) {
    if (a.parameters) store_once(a.parameters + at, parameter);
  }
}

#ifdef VITRINE_GPU_APPROXIMATE

// Pairs of numbers, no NaN, rounded stochastically into the words of bf16.
template <int kPairs, typename T>
__device__ __forceinline__ void round_pairs(const float (&x)[2 * kPairs],
                                            const GroupNoise<RoundingBits::kBlock>& numbers,
                                            RoundingBits::Array array,
                                            int first,
                                            Vec<T, RoundingBits::kBlock>& to) {
  auto* words = reinterpret_cast<uint32_t*>(&to);
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    const int j = first + 2 * i;
    const uint32_t low = __float_as_uint(x[2 * i]) + numbers.of(array, j);
    const uint32_t high = __float_as_uint(x[2 * i + 1]) + numbers.of(array, j + 1);
    words[j / 2] = __byte_perm(low, high, 0x7632);
  }
}

template <typename T, int kGroup>
__device__ __forceinline__ const Vec<T, kGroup / 2>& half_of(const Vec<T, kGroup>& x, int first) {
  return *reinterpret_cast<const Vec<T, kGroup / 2>*>(x.v + first);
}

// Elements that never had a gradient are in range as well: all zeros.
template <typename A>
__device__ __forceinline__ bool no_momentum(const Group<A>& x) {
  bool none = true;
#pragma unroll
  for (int j = 0; j < A::kGroup; ++j) {
    none = none && to_wide(x.m.v[j]) == 0 && to_wide(x.g.v[j]) == 0;
  }
  return none;
}

// A call, so that what it needs fills no registers before.
template <typename A>
__device__ __noinline__ void update_group_again(
    const UpdateNumbers& n, float decay, float scale, Noise noise, const A& a, int64_t at) {
  Group<A> x = fetch(a, at);
  update_group(n, decay, scale, noise, x, a, at);
}

// As update_group(), for bf16 masters and moments: in two halves, which fewer registers hold.
template <typename A>
__device__ __forceinline__ void update_group_quickly(const UpdateNumbers& n,
                                                     float decay,
                                                     float scale,
                                                     const Noise& noise,
                                                     const Group<A>& x,
                                                     const A& a,
                                                     int64_t at) {
  constexpr int kHalf = A::kGroup / 2;
  const auto numbers = group_noise<A::kGroup>(noise, at);
  Group<A> to = x;
  Seen seen;
#pragma unroll
  for (int first = 0; first < A::kGroup; first += kHalf) {
    float g[kHalf], master[kHalf], m[kHalf], v[kHalf];
    widen(half_of(x.g, first), g);
    widen(half_of(x.master, first), master);
    widen(half_of(x.m, first), m);
    widen(half_of(x.v, first), v);
#pragma unroll
    for (int j = 0; j < kHalf; ++j) {
      update_quickly(n, decay, scale, g[j], master[j], m[j], v[j], seen);
    }
    round_pairs<kHalf / 2>(master, numbers, RoundingBits::kMaster, first, to.master);
    round_pairs<kHalf / 2>(m, numbers, RoundingBits::kExpAvg, first, to.m);
    round_pairs<kHalf / 2>(v, numbers, RoundingBits::kExpAvgSq, first, to.v);
  }
  if (seen.least == 0 && seen.most == 0 && no_momentum(x)) seen.least = kQuickLeast;
  if (!(seen.least >= kQuickLeast && seen.most <= kQuickMost && seen.number)) {
    return update_group_again(n, decay, scale, noise, a, at);
  }
  store_once(a.master + at, to.master);
  store_once(a.exp_avg + at, to.m);
  store_once(a.exp_avg_sq + at, to.v);
}
#endif

// Whether whole tiles go update_group_quickly()'s way where UpdateNumbers::quick holds.
template <typename A>
#ifdef VITRINE_GPU_APPROXIMATE
constexpr bool kQuick = A::kGroup == RoundingBits::kBlock;
#else
constexpr bool kQuick = false;
#endif

template <typename T>
__device__ __forceinline__ uint32_t noise_of(const Noise& noise,
                                             RoundingBits::Array array,
                                             int64_t at) {
  if constexpr (sizeof(T) == 4) {
    return 0;
  } else {
    const int64_t element = at + noise.to_parameter;
    uint32_t words[4];
    noise.bits.words(element / RoundingBits::kBlock, words);
    return rounding_noise(words, array, static_cast<int>(element % RoundingBits::kBlock));
  }
}

template <typename A>
__device__ __forceinline__ void update_alone(
    const UpdateNumbers& n, float decay, float scale, const Noise& noise, const A& a, int64_t i) {
  using M = typename A::Master;
  using S = typename A::State;
  float master = to_wide(a.master[i]), m = to_wide(a.exp_avg[i]), v = to_wide(a.exp_avg_sq[i]);
  update_one(n, decay, scale, to_wide(a.gradients[i]), master, m, v);
  a.master[i] = rounded<M>(master, noise_of<M>(noise, RoundingBits::kMaster, i));
  a.exp_avg[i] = rounded<S>(m, noise_of<S>(noise, RoundingBits::kExpAvg, i));
  a.exp_avg_sq[i] = rounded<S>(v, noise_of<S>(noise, RoundingBits::kExpAvgSq, i));
  if constexpr (sizeof(M) == 4) {
    if (a.parameters) a.parameters[i] = from_wide<typename A::Parameter>(master);
  }
}

// A tile a block. Tiles are cut at places = phase (mod kGroup), where all arrays are aligned for
// groups; without such a phase, and where groups would straddle blocks of random bits, everything
// is done one by one.
template <typename A>
__global__ void __launch_bounds__(kThreads, A::kBlocks)
    update_kernel(const __grid_constant__ UpdateNumbers n,
                  const StepResult* result,
                  const __grid_constant__ Ranges ranges,
                  int phase,
                  bool aligned,
                  const __grid_constant__ A a) {
  constexpr int kGroup = A::kGroup;
  const int64_t tile = blockIdx.x;
  int low = 0, high = ranges.count - 1;  // the last range that starts at or before this tile
  while (low < high) {
    const int middle = (low + high + 1) / 2;
    if (ranges.first_tile[middle] <= tile) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  const int64_t begin = ranges.begin[low], end = ranges.end[low];
  const float decay = ranges.decay[low] ? n.decay : 1.0f;
  Noise noise{};
  if constexpr (A::kRounds) {
    const uint64_t key = ranges.key[low];
    noise = {{static_cast<uint32_t>(key), static_cast<uint32_t>(key >> 32), ranges.step},
             ranges.to_parameter[low]};
    aligned = aligned && (noise.to_parameter + phase) % kGroup == 0;
  }
  // At or before `begin`, by less than a group.
  const int64_t origin = begin - (begin - phase + kGroup) % kGroup;
  const int64_t start = origin + (tile - ranges.first_tile[low]) * A::kTile;
  const int64_t at = start + static_cast<int64_t>(threadIdx.x) * kGroup;
  constexpr int64_t kApart = int64_t{kThreads} * kGroup;
  if (aligned && start >= begin && start + A::kTile <= end && (!kQuick<A> || n.quick)) {
    Group<A> x[kPieces];
#pragma unroll
    for (int p = 0; p < kPieces; ++p) x[p] = fetch(a, at + p * kApart);
    // Read behind the loads, which then do not wait for it.
    if (result->overflow) return;
    const auto scale = static_cast<float>(result->factor);
#pragma unroll
    for (int p = 0; p < kPieces; ++p) {
      if constexpr (kQuick<A>) {
        update_group_quickly(n, decay, scale, noise, x[p], a, at + p * kApart);
      } else {
        update_group(n, decay, scale, noise, x[p], a, at + p * kApart);
      }
    }
    return;
  }
  if (result->overflow) return;
  const auto scale = static_cast<float>(result->factor);
#pragma unroll 1
  for (int p = 0; p < kPieces; ++p) {
    const int64_t first = at + p * kApart;
    if (aligned && first >= begin && first + kGroup <= end) {
      Group<A> x = fetch(a, first);
      update_group(n, decay, scale, noise, x, a, first);
      continue;
    }
#pragma unroll 1
    for (int64_t i = first < begin ? begin : first; i < first + kGroup && i < end; ++i) {
      update_alone(n, decay, scale, noise, a, i);
    }
  }
}

template <typename A>
int64_t tiles_of(const UpdateRange& range, int phase) {
  const int64_t lead = (range.begin - phase + A::kGroup) % A::kGroup;
  return (range.end - range.begin + lead + A::kTile - 1) / A::kTile;
}

// The first place where accesses by groups are aligned in every array, or -1.
template <typename A>
int aligned_phase(const A& a) {
  const auto misses = [](const auto* array, int place) {
    constexpr size_t kBytes = sizeof(*array), kAccess = std::min<size_t>(16, A::kGroup * kBytes);
    return array &&
           (reinterpret_cast<uintptr_t>(array) + static_cast<size_t>(place) * kBytes) % kAccess !=
               0;
  };
  for (int place = 0; place < A::kGroup; ++place) {
    if (misses(a.master, place) || misses(a.exp_avg, place) || misses(a.exp_avg_sq, place) ||
        misses(a.gradients, place) || misses(a.parameters, place)) {
      continue;
    }
    return place;
  }
  return -1;
}

template <typename A>
void update_typed(const AdamWStep& step,
                  uint64_t seed,
                  const StepResult* result,
                  std::span<const UpdateRange> ranges,
                  const A& arrays) {
  const UpdateNumbers numbers{step.beta1,
                              step.beta2,
                              1 - step.beta1,
                              1 - step.beta2,
                              step.eps,
                              step.decay,
                              step.lr / step.bias_correction1,
                              step.sqrt_bias_correction2,
                              1 / step.sqrt_bias_correction2,
                              step.eps >= kQuickLeastEps && step.eps <= kQuickMostEps &&
                                  step.sqrt_bias_correction2 >= kQuickLeastCorrection &&
                                  step.sqrt_bias_correction2 <= 1};
  const int phase = aligned_phase(arrays), cut = std::max(phase, 0);
  for (size_t next = 0; next < ranges.size();) {
    Ranges some;
    some.step = static_cast<uint32_t>(step.step);
    int64_t tiles = 0;
    for (; next < ranges.size() && some.count < kMostRanges; ++next) {
      const UpdateRange& range = ranges[next];
      if (range.end <= range.begin) continue;
      some.begin[some.count] = range.begin;
      some.end[some.count] = range.end;
      some.decay[some.count] = range.decay;
      some.to_parameter[some.count] = range.first_element - range.begin;
      some.key[some.count] = Philox(seed, range.stream).key();
      some.first_tile[some.count++] = tiles;
      tiles += tiles_of<A>(range, cut);
    }
    if (tiles == 0) continue;
    update_kernel<A><<<static_cast<unsigned>(tiles), kThreads, 0, stream()>>>(
        numbers, result, some, cut, phase >= 0, arrays);
    VITRINE_GPU_LAUNCHED("adamw");
  }
}

template <typename G, typename P, typename M, typename S>
Arrays<G, P, M, S> typed(const UpdateArrays& arrays) {
  const bool apart = arrays.parameters != arrays.master;
  return {static_cast<M*>(arrays.master),
          static_cast<S*>(arrays.exp_avg),
          static_cast<S*>(arrays.exp_avg_sq),
          static_cast<const G*>(arrays.gradients),
          apart ? static_cast<P*>(arrays.parameters) : nullptr};
}

}  // namespace

void launch_update(const AdamWStep& step,
                   const StepResult* result,
                   std::span<const UpdateRange> ranges,
                   const UpdateArrays& arrays) {
  check_update_arrays(arrays);
  const bool narrow_master = arrays.master_dtype == DType::kBF16;
  const bool narrow_moments = arrays.moment_dtype == DType::kBF16;
  const auto issue = [&]<typename G, typename P, typename M, typename S>() {
    update_typed(step, arrays.seed, result, ranges, typed<G, P, M, S>(arrays));
  };
  dispatch_float(arrays.gradient_dtype, "gradients", [&]<typename G>() {
    if constexpr (std::is_same_v<G, double>) {
      throw ConfigError("adamw: f64 gradients are not made on GPUs");
    } else if (narrow_master || narrow_moments) {
      using B = __nv_bfloat16;
      if constexpr (std::is_same_v<G, __half>) {
        throw ConfigError("adamw: f16 gradients of bf16 parameters are not made");
      } else if (!narrow_master) {
        issue.template operator()<G, B, float, B>();
      } else if (narrow_moments) {
        issue.template operator()<G, B, B, B>();
      } else {
        issue.template operator()<G, B, B, float>();
      }
    } else {
      dispatch_float(arrays.parameter_dtype, "parameters", [&]<typename P>() {
        if constexpr (std::is_same_v<P, double>) {
          throw ConfigError("adamw: f64 parameters are not made on GPUs");
        } else {
          issue.template operator()<G, P, float, float>();
        }
      });
    }
  });
}

}  // namespace vitrine::gpu
