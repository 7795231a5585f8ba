// The sums of a step on the GPU: squares of gradients, losses, and what follows from all ranks'.
//
// Squares read each gradient once (4 or 2 bytes an element; 24 million chunks of 64 f32 are 6.1 GB,
// 1.5 ms at 4.17 TB/s) and do one fp64 multiply-add an element, far below the fp64 rate. A warp
// takes 2 KB of f32, bf16 or f16 at a time, with all warps 80 KB on their way to a multiprocessor
// (half of that gave half the rate; where terms are added, each has 1 KB of two-byte ones): 16-byte
// loads in memory order, through shared memory into the order of optim/squares.cpp, so that a
// chunk's sum has the same bits as on the host. Where gradients of ranks are added by the same
// pass, it moves the terms and the sum, and reads nothing for squares.
#include <type_traits>

#include "core/error.h"
#include "gpu/runtime.h"
#include "gpu/vector.cuh"
#include "optim/gpu/step_kernels.h"

namespace vitrine::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / VITRINE_WARP;
constexpr int kChunk = static_cast<int>(kNormChunk);
constexpr int kChunksAtOnce = VITRINE_WARP / 4;  // that a warp adds: four threads a chunk
// Elements from chunk to chunk in shared memory: pairs that a warp reads at once lie in other
// banks.
constexpr int kPitch = kChunk + 8;

// Elements as they are staged: squares are those of values in f32.
template <typename T>
using Staged = std::conditional_t<std::is_same_v<T, double>, float, T>;

// What a warp stages at a time, and how.
template <typename T, int kTurns>
struct Span {
  static constexpr int kChunks = kTurns * kChunksAtOnce;
  static constexpr int kElements = kChunks * kChunk;
  static constexpr int kWidth = 16 / sizeof(T);
  static constexpr int kLoads = kElements / kWidth / VITRINE_WARP;
  // Of a thread's access `k`, from the span's first element.
  static __device__ __forceinline__ int place(int k) {
    return (k * VITRINE_WARP + static_cast<int>(threadIdx.x) % VITRINE_WARP) * kWidth;
  }
};

// Of an element in its tile, from the span's first.
__device__ __forceinline__ int in_tile(int at) { return at / kChunk * kPitch + at % kChunk; }

// In words; not by store(), which names global memory.
template <typename T, int kWidth>
__device__ __forceinline__ void put(const Vec<T, kWidth>& x, int at, Staged<T>* tile) {
  using Words = std::conditional_t<std::is_same_v<T, double>, uint2, uint4>;
  Vec<Staged<T>, kWidth> staged;
  static_assert(sizeof(staged) == sizeof(Words));
#pragma unroll
  for (int j = 0; j < kWidth; ++j) staged.v[j] = static_cast<Staged<T>>(x.v[j]);
  *reinterpret_cast<Words*>(tile + in_tile(at)) = *reinterpret_cast<const Words*>(&staged);
}

// Elements [first, first + span) one by one, value(i) each; zeros from `count` on.
template <typename S, typename Value>
__device__ __forceinline__ void stage_alone(
    int span, int64_t first, int64_t count, S* tile, Value value) {
  for (int at = threadIdx.x % VITRINE_WARP; at < span; at += VITRINE_WARP) {
    const int64_t from = first + at;
    tile[in_tile(at)] = from < count ? value(from) : from_wide<S>(0.0f);
  }
}

template <typename T>
struct Held {
  using Element = Staged<T>;
  using Piece = Span<T, sizeof(T) == 2 ? 2 : 1>;
  static constexpr int kBlocks = 5;  // on a multiprocessor: without spills
  const T* data;
  bool aligned;
  __device__ __forceinline__ void stage(int64_t first, int64_t count, Staged<T>* tile) const {
    if (!aligned || first + Piece::kElements > count) {
      return stage_alone(Piece::kElements, first, count, tile, [from = data](int64_t i) {
        return static_cast<Staged<T>>(from[i]);
      });
    }
    Vec<T, Piece::kWidth> x[Piece::kLoads];
#pragma unroll
    for (int k = 0; k < Piece::kLoads; ++k) {
      x[k] = load<Piece::kWidth>(data + first + Piece::place(k));
    }
#pragma unroll
    for (int k = 0; k < Piece::kLoads; ++k) put<T>(x[k], Piece::place(k), tile);
  }
};

// Stages sums of terms, and writes them.
template <typename T>
struct Summed {
  using Element = Staged<T>;
  using Piece = Span<T, 1>;  // terms are as much again
  static constexpr int kBlocks = sizeof(T) == 4 ? 4 : 5;
  T* out;
  Terms terms;
  bool aligned;
  __device__ __forceinline__ const T* term(int t) const {
    return static_cast<const T*>(terms.of[t]);
  }
  __device__ __forceinline__ void stage(int64_t first, int64_t count, Staged<T>* tile) const {
    if (!aligned || first + Piece::kElements > count) {
      return stage_alone(Piece::kElements, first, count, tile, [this](int64_t i) {
        float sum = 0;
        for (int t = 0; t < terms.count; ++t) sum += to_wide(term(t)[i]);
        return out[i] = from_wide<T>(sum);
      });
    }
    constexpr int kWidth = Piece::kWidth, kLoads = Piece::kLoads;
    float sum[kLoads][kWidth] = {};
    int t = 0;
    // Two terms at a time, so that enough is on its way.
    for (; t + 2 <= terms.count; t += 2) {
      Vec<T, kWidth> x[2][kLoads];
#pragma unroll
      for (int which = 0; which < 2; ++which) {
#pragma unroll
        for (int k = 0; k < kLoads; ++k) {
          x[which][k] = load_once<kWidth>(term(t + which) + first + Piece::place(k));
        }
      }
#pragma unroll
      for (int which = 0; which < 2; ++which) {
#pragma unroll
        for (int k = 0; k < kLoads; ++k) add(sum[k], x[which][k]);
      }
    }
    if (t < terms.count) {
#pragma unroll
      for (int k = 0; k < kLoads; ++k) {
        add(sum[k], load_once<kWidth>(term(t) + first + Piece::place(k)));
      }
    }
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      Vec<T, kWidth> rounded;
#pragma unroll
      for (int j = 0; j < kWidth; ++j) rounded.v[j] = from_wide<T>(sum[k][j]);
      store_once(out + first + Piece::place(k), rounded);
      put<T>(rounded, Piece::place(k), tile);
    }
  }
  static __device__ __forceinline__ void add(float (&sum)[Piece::kWidth],
                                             const Vec<T, Piece::kWidth>& x) {
#pragma unroll
    for (int j = 0; j < Piece::kWidth; ++j) sum[j] += to_wide(x.v[j]);
  }
};

// Four threads a chunk, two of its eight fp64 lanes each; all four get the chunk's sum.
template <typename S>
__device__ __forceinline__ double chunk_sum(const S* tile) {
  const int lane = threadIdx.x % VITRINE_WARP, quarter = lane % 4;
  const S* x = tile + lane / 4 * kPitch + 2 * quarter;
  double even = 0, odd = 0;
#pragma unroll
  for (int i = 0; i < kNormChunk; i += 8) {
    const Vec<S, 2> pair = load<2>(x + i);
    const double a = to_wide(pair.v[0]), b = to_wide(pair.v[1]);
    even += a * a;  // exact products: fusing changes nothing
    odd += b * b;
  }
  even += __shfl_xor_sync(VITRINE_FULL_MASK, even, 2);
  odd += __shfl_xor_sync(VITRINE_FULL_MASK, odd, 2);
  even += __shfl_xor_sync(VITRINE_FULL_MASK, even, 1);
  odd += __shfl_xor_sync(VITRINE_FULL_MASK, odd, 1);
  return even + odd;
}

// Integer sums: no order shows.
__device__ void add_block(const FixedSum& sum, StepMessage* own) {
  __shared__ uint64_t part[kWarps][FixedSum::kPieces];
  const int lane = threadIdx.x % VITRINE_WARP, warp = threadIdx.x / VITRINE_WARP;
#pragma unroll
  for (int i = 0; i < FixedSum::kPieces; ++i) {
    const uint64_t piece = warp_sum(sum.piece(i));
    if (lane == 0) part[warp][i] = piece;
  }
  const int overflow = __syncthreads_or(sum.overflow);
  if (threadIdx.x != 0) return;
  uint64_t total[FixedSum::kPieces] = {};
#pragma unroll
  for (int i = 0; i < FixedSum::kPieces; ++i) {
    for (int w = 0; w < kWarps; ++w) total[i] += part[w][i];
  }
  carry_pieces(total);
#pragma unroll
  for (int i = 0; i < FixedSum::kPieces; ++i) {
    if (total[i] != 0) atomicAdd(&own->piece[i], static_cast<unsigned long long>(total[i]));
  }
  if (overflow) atomicAdd(&own->overflow, 1ull);
}

template <typename Source>
__global__ void __launch_bounds__(kThreads, Source::kBlocks)
    squares_kernel(const __grid_constant__ Source source, int64_t count, StepMessage* own) {
  using Piece = typename Source::Piece;
  alignas(16) __shared__ typename Source::Element tiles[kWarps][Piece::kChunks * kPitch];
  const int lane = threadIdx.x % VITRINE_WARP, warp = threadIdx.x / VITRINE_WARP;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarps * Piece::kElements;
  FixedSum sum;
  double kept = 0;  // of four turns, so that every thread has a chunk to add
  int turn = 0;
  for (int64_t first = (static_cast<int64_t>(blockIdx.x) * kWarps + warp) * Piece::kElements;
       first < count;
       first += stride) {
    source.stage(first, count, tiles[warp]);
    __syncwarp();
#pragma unroll
    for (int from = 0; from < Piece::kChunks; from += kChunksAtOnce) {
      const double chunk = chunk_sum(tiles[warp] + from * kPitch);
      if (lane % 4 == turn) kept = chunk;
      ++turn;
    }
    if (turn == 4) {
      sum.add(kept);
      kept = 0;
      turn = 0;
    }
    __syncwarp();
  }
  sum.add(kept);
  add_block(sum, own);
}

template <typename T>
__global__ void loss_kernel(StepMessage* own, const T* loss, double weight) {
  own->loss = __dadd_rn(own->loss, __dmul_rn(weight, static_cast<double>(to_wide(*loss))));
}

__global__ void progress_kernel(StepMessage* own, double progress) { own->progress = progress; }

__global__ void combine_kernel(StepResult* result,
                               const StepMessage* messages,
                               int ranks,
                               NormInput input) {
  uint64_t piece[FixedSum::kPieces] = {};
  unsigned long long overflow = 0;
  double loss = 0;
  for (int r = 0; r < ranks; ++r) {
    for (int i = 0; i < FixedSum::kPieces; ++i) piece[i] += messages[r].piece[i];
    overflow += messages[r].overflow;
    loss = __dadd_rn(loss, messages[r].loss);
  }
  carry_pieces(piece);
  const double squares = overflow != 0 ? nan("") : pieces_value(piece);
  const double norm = sqrt(squares) / input.loss_scale;
  const bool clipped = input.clip > 0 && norm > input.clip;
  result->loss = loss / input.parts;
  result->gradient_norm = norm;
  result->progress = messages[0].progress;
  result->factor = (clipped ? input.clip / (norm + 1e-6) : 1.0) / input.loss_scale;
  result->overflow = isfinite(norm) ? 0 : 1;
}

bool aligned_to_16(const void* data) { return reinterpret_cast<uintptr_t>(data) % 16 == 0; }

template <typename Source>
void launch(StepMessage* own, const Source& source, int64_t count) {
  constexpr int64_t kSpan = Source::Piece::kElements;
  const int64_t spans = (count + kSpan - 1) / kSpan, wanted = (spans + kWarps - 1) / kWarps;
  const int64_t most = static_cast<int64_t>(limits().multiprocessors) * Source::kBlocks;
  const auto blocks = static_cast<unsigned>(wanted < most ? wanted : most);
  squares_kernel<<<blocks, kThreads, 0, stream()>>>(source, count, own);
  VITRINE_GPU_LAUNCHED("squares");
}

}  // namespace

void launch_squares(StepMessage* own, const void* data, DType dtype, int64_t count) {
  if (count <= 0) return;
  dispatch_float(dtype, "gradient norm", [&]<typename T>() {
    launch(own, Held<T>{static_cast<const T*>(data), aligned_to_16(data)}, count);
  });
}

void launch_sum_adding_squares(
    StepMessage* own, void* out, const Terms& terms, DType dtype, int64_t count) {
  if (count <= 0) return;
  bool aligned = aligned_to_16(out);
  for (int t = 0; t < terms.count; ++t) aligned = aligned && aligned_to_16(terms.of[t]);
  dispatch_float(dtype, "sum of gradients", [&]<typename T>() {
    if constexpr (std::is_same_v<T, double>) {
      throw ConfigError("sum of gradients: f64 is not summed with its squares");
    } else {
      launch(own, Summed<T>{static_cast<T*>(out), terms, aligned}, count);
    }
  });
}

void launch_add_loss(StepMessage* own, const TensorView& loss, double weight) {
  dispatch_float(loss.dtype, "loss", [&]<typename T>() {
    loss_kernel<T><<<1, 1, 0, stream()>>>(own, loss.as<const T>(), weight);
    VITRINE_GPU_LAUNCHED("add_loss");
  });
}

void launch_progress(StepMessage* own, double progress) {
  progress_kernel<<<1, 1, 0, stream()>>>(own, progress);
  VITRINE_GPU_LAUNCHED("progress");
}

void launch_combine(StepResult* result,
                    const StepMessage* messages,
                    int ranks,
                    const NormInput& input) {
  combine_kernel<<<1, 1, 0, stream()>>>(result, messages, ranks, input);
  VITRINE_GPU_LAUNCHED("combine");
}

}  // namespace vitrine::gpu
