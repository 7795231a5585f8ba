// AdamW on the GPU, with the bits of optim/adamw.cpp.
//
// Bytes an element: master, exp_avg and exp_avg_sq read and written (24), the gradient read (2 or
// 4), the parameter written where it is not the master (2): 28 to 30, so 1.5 billion elements take
// 11 ms at 4.17 TB/s. Two divisions and a root an element, about fifty instructions, are a quarter
// of what the cores issue in that time. A thread takes two groups of four elements, so that every
// access of a warp covers whole sectors (wider groups would write half sectors twice) and eight
// 16-byte loads are in flight; the arrays are far larger than the caches and are streamed.
#include <algorithm>
#include <array>

#include "gpu/runtime.h"
#include "gpu/vector.cuh"
#include "optim/gpu/step_kernels.h"

namespace vitrine::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kGroup = 4;   // elements of one access of an fp32 array
constexpr int kPieces = 2;  // groups a thread, kThreads groups apart
constexpr int64_t kTile = kThreads * kGroup * kPieces;
constexpr int kMostRanges = 128;  // of one launch: kernel parameters hold 4 KB

struct Ranges {
  int count = 0;
  int64_t begin[kMostRanges], end[kMostRanges];
  int64_t first_tile[kMostRanges];
  bool decay[kMostRanges];
};

struct Numbers {
  float beta1, beta2, one_minus_beta1, one_minus_beta2, eps, decay, step_size,
      sqrt_bias_correction2;
};

template <typename G, typename P>
struct Arrays {
  float* master;
  float* exp_avg;
  float* exp_avg_sq;
  const G* gradients;
  P* parameters;  // null: the master is the parameter
};

// The operations of update_tile() in its order, none fused.
__device__ __forceinline__ void update_one(
    const Numbers& n, float decay, float scale, float g, float& master, float& m, float& v) {
  const float gradient = __fmul_rn(g, scale);
  m = __fadd_rn(__fmul_rn(n.beta1, m), __fmul_rn(n.one_minus_beta1, gradient));
  v = __fadd_rn(__fmul_rn(n.beta2, v), __fmul_rn(n.one_minus_beta2, __fmul_rn(gradient, gradient)));
  const float denominator = __fadd_rn(__fdiv_rn(__fsqrt_rn(v), n.sqrt_bias_correction2), n.eps);
  master = __fsub_rn(__fmul_rn(master, decay), __fmul_rn(n.step_size, __fdiv_rn(m, denominator)));
}

template <typename G>
struct Group {
  Vec<float, kGroup> master, m, v;
  Vec<G, kGroup> g;
};

template <typename G, typename P>
__device__ __forceinline__ Group<G> fetch(const Arrays<G, P>& a, int64_t at) {
  return {load_once<kGroup>(a.master + at),
          load_once<kGroup>(a.exp_avg + at),
          load_once<kGroup>(a.exp_avg_sq + at),
          load_once<kGroup>(a.gradients + at)};
}

template <typename G, typename P>
__device__ __forceinline__ void update_group(
    const Numbers& n, float decay, float scale, Group<G>& x, const Arrays<G, P>& a, int64_t at) {
  Vec<P, kGroup> parameter;
#pragma unroll
  for (int j = 0; j < kGroup; ++j) {
    update_one(n, decay, scale, to_wide(x.g.v[j]), x.master.v[j], x.m.v[j], x.v.v[j]);
    parameter.v[j] = from_wide<P>(x.master.v[j]);
  }
  store_once(a.master + at, x.master);
  store_once(a.exp_avg + at, x.m);
  store_once(a.exp_avg_sq + at, x.v);
  if (a.parameters) store_once(a.parameters + at, parameter);
}

// A tile a block. Tiles are cut at places = phase (mod kGroup), where all arrays are aligned for
// groups; without such a phase everything is done one by one.
template <typename G, typename P>
__global__ void __launch_bounds__(kThreads, 4) update_kernel(const Numbers n,
                                                             const StepResult* result,
                                                             const __grid_constant__ Ranges ranges,
                                                             int phase,
                                                             bool aligned,
                                                             const Arrays<G, P> a) {
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
  // At or before `begin`, by less than a group.
  const int64_t origin = begin - (begin - phase + kGroup) % kGroup;
  const int64_t start = origin + (tile - ranges.first_tile[low]) * kTile;
  const int64_t at = start + static_cast<int64_t>(threadIdx.x) * kGroup;
  constexpr int64_t kApart = kThreads * kGroup;
  if (aligned && start >= begin && start + kTile <= end) {
    Group<G> x[kPieces];
#pragma unroll
    for (int p = 0; p < kPieces; ++p) x[p] = fetch(a, at + p * kApart);
    // Read behind the loads, which then do not wait for it.
    if (result->overflow) return;
    const auto scale = static_cast<float>(result->factor);
#pragma unroll
    for (int p = 0; p < kPieces; ++p) update_group(n, decay, scale, x[p], a, at + p * kApart);
    return;
  }
  if (result->overflow) return;
  const auto scale = static_cast<float>(result->factor);
  for (int p = 0; p < kPieces; ++p) {
    const int64_t first = at + p * kApart;
    if (aligned && first >= begin && first + kGroup <= end) {
      Group<G> x = fetch(a, first);
      update_group(n, decay, scale, x, a, first);
      continue;
    }
    for (int64_t i = first < begin ? begin : first; i < first + kGroup && i < end; ++i) {
      float master = a.master[i], m = a.exp_avg[i], v = a.exp_avg_sq[i];
      update_one(n, decay, scale, to_wide(a.gradients[i]), master, m, v);
      a.master[i] = master;
      a.exp_avg[i] = m;
      a.exp_avg_sq[i] = v;
      if (a.parameters) a.parameters[i] = from_wide<P>(master);
    }
  }
}

int64_t tiles_of(const UpdateRange& range, int phase) {
  const int64_t lead = (range.begin - phase + kGroup) % kGroup;
  return (range.end - range.begin + lead + kTile - 1) / kTile;
}

// The first place where accesses by groups are aligned in every array, or -1.
template <typename G, typename P>
int aligned_phase(const Arrays<G, P>& a) {
  const auto misses = [](const void* array, int place, size_t bytes) {
    return (reinterpret_cast<uintptr_t>(array) + static_cast<size_t>(place) * bytes) %
               (kGroup * bytes) !=
           0;
  };
  for (int place = 0; place < kGroup; ++place) {
    if (misses(a.master, place, 4) || misses(a.exp_avg, place, 4) ||
        misses(a.exp_avg_sq, place, 4) || misses(a.gradients, place, sizeof(G)) ||
        (a.parameters && misses(a.parameters, place, sizeof(P)))) {
      continue;
    }
    return place;
  }
  return -1;
}

template <typename G, typename P>
void update_typed(const Numbers& numbers,
                  const StepResult* result,
                  std::span<const UpdateRange> ranges,
                  const Arrays<G, P>& arrays) {
  const int phase = aligned_phase(arrays);
  for (size_t next = 0; next < ranges.size();) {
    Ranges some;
    int64_t tiles = 0;
    for (; next < ranges.size() && some.count < kMostRanges; ++next) {
      const UpdateRange& range = ranges[next];
      if (range.end <= range.begin) continue;
      some.begin[some.count] = range.begin;
      some.end[some.count] = range.end;
      some.decay[some.count] = range.decay;
      some.first_tile[some.count++] = tiles;
      tiles += tiles_of(range, std::max(phase, 0));
    }
    if (tiles == 0) continue;
    update_kernel<G, P><<<static_cast<unsigned>(tiles), kThreads, 0, stream()>>>(
        numbers, result, some, std::max(phase, 0), phase >= 0, arrays);
    VITRINE_GPU_LAUNCHED("adamw");
  }
}

template <typename G, typename P>
Arrays<G, P> typed(const UpdateArrays& arrays) {
  const bool apart = arrays.parameters != arrays.master;
  return {arrays.master,
          arrays.exp_avg,
          arrays.exp_avg_sq,
          static_cast<const G*>(arrays.gradients),
          apart ? static_cast<P*>(arrays.parameters) : nullptr};
}

}  // namespace

void launch_update(const AdamWStep& step,
                   const StepResult* result,
                   std::span<const UpdateRange> ranges,
                   const UpdateArrays& arrays) {
  const Numbers numbers{step.beta1,
                        step.beta2,
                        1 - step.beta1,
                        1 - step.beta2,
                        step.eps,
                        step.decay,
                        step.lr / step.bias_correction1,
                        step.sqrt_bias_correction2};
  dispatch_float(arrays.gradient_dtype, "gradients", [&]<typename G>() {
    dispatch_float(arrays.parameter_dtype, "parameters", [&]<typename P>() {
      if constexpr (std::is_same_v<G, double> || std::is_same_v<P, double>) {
        throw ConfigError("adamw: f64 gradients and parameters are not made on GPUs");
      } else {
        update_typed(numbers, result, ranges, typed<G, P>(arrays));
      }
    });
  });
}

}  // namespace vitrine::gpu
