// The sums of a step on the GPU: squares of gradients, losses, and what follows from all ranks'.
//
// Squares read each gradient once (4 or 2 bytes an element; 24 million chunks of 64 f32 are 6.1 GB,
// 1.5 ms at 4.17 TB/s) and do one fp64 multiply-add an element, far below the fp64 rate. A warp
// takes eight chunks at a time: 16-byte loads in memory order, through shared memory into the order
// of optim/squares.cpp, so that a chunk's sum has the same bits as on the host.
#include "gpu/runtime.h"
#include "gpu/vector.cuh"
#include "optim/gpu/step_kernels.h"

namespace vitrine::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kWarps = kThreads / VITRINE_WARP;
constexpr int kChunksAtOnce = 8;  // of one warp
constexpr int kSpan = kChunksAtOnce * static_cast<int>(kNormChunk);
// Floats from chunk to chunk in shared memory: four chunks start eight banks apart.
constexpr int kPitch = static_cast<int>(kNormChunk) + 8;

// Elements [first, first + kSpan) as floats; zeros from `count` on.
template <typename T>
__device__ void stage(const T* data, int64_t first, int64_t count, bool aligned, float* tile) {
  constexpr int kWidth = 16 / sizeof(T);
  constexpr int kLoads = kSpan / kWidth / VITRINE_WARP, kQuad = kWidth < 4 ? kWidth : 4;
  const int lane = threadIdx.x % VITRINE_WARP;
  if (aligned && first + kSpan <= count) {
    Vec<T, kWidth> x[kLoads];
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      x[k] = load<kWidth>(data + first + (k * VITRINE_WARP + lane) * kWidth);
    }
#pragma unroll
    for (int k = 0; k < kLoads; ++k) {
      const int at = (k * VITRINE_WARP + lane) * kWidth;
      float* to = tile + at / kNormChunk * kPitch + at % kNormChunk;
#pragma unroll
      for (int j = 0; j < kWidth; j += kQuad) {
        Vec<float, kQuad> quad;
#pragma unroll
        for (int q = 0; q < kQuad; ++q) quad.v[q] = static_cast<float>(to_wide(x[k].v[j + q]));
        *reinterpret_cast<Vec<float, kQuad>*>(to + j) = quad;
      }
    }
    return;
  }
  for (int at = lane; at < kSpan; at += VITRINE_WARP) {
    const int64_t from = first + at;
    tile[at / kNormChunk * kPitch + at % kNormChunk] =
        from < count ? static_cast<float>(to_wide(data[from])) : 0.0f;
  }
}

// Four threads a chunk, two of its eight fp64 lanes each; all four get the chunk's sum.
__device__ double chunk_sum(const float* tile) {
  const int lane = threadIdx.x % VITRINE_WARP, quarter = lane % 4;
  const float* x = tile + lane / 4 * kPitch + 2 * quarter;
  double even = 0, odd = 0;
#pragma unroll
  for (int i = 0; i < kNormChunk; i += 8) {
    const Vec<float, 2> pair = load<2>(x + i);
    const double a = pair.v[0], b = pair.v[1];
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

template <typename T>
__global__ void __launch_bounds__(kThreads)
    squares_kernel(const T* data, int64_t count, bool aligned, StepMessage* own) {
  alignas(16) __shared__ float tiles[kWarps][kChunksAtOnce * kPitch];
  const int lane = threadIdx.x % VITRINE_WARP, warp = threadIdx.x / VITRINE_WARP;
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kWarps * kSpan;
  FixedSum sum;
  for (int64_t first = (static_cast<int64_t>(blockIdx.x) * kWarps + warp) * kSpan; first < count;
       first += stride) {
    stage(data, first, count, aligned, tiles[warp]);
    __syncwarp();
    const double chunk = chunk_sum(tiles[warp]);
    if (lane % 4 == 0) sum.add(chunk);
    __syncwarp();
  }
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

}  // namespace

void launch_squares(StepMessage* own, const void* data, DType dtype, int64_t count) {
  if (count <= 0) return;
  const int64_t spans = (count + kSpan - 1) / kSpan, wanted = (spans + kWarps - 1) / kWarps;
  const int64_t most = static_cast<int64_t>(limits().multiprocessors) * 8;
  const auto blocks = static_cast<unsigned>(wanted < most ? wanted : most);
  const bool aligned = reinterpret_cast<uintptr_t>(data) % 16 == 0;
  dispatch_float(dtype, "gradient norm", [&]<typename T>() {
    squares_kernel<T>
        <<<blocks, kThreads, 0, stream()>>>(static_cast<const T*>(data), count, aligned, own);
    VITRINE_GPU_LAUNCHED("squares");
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
