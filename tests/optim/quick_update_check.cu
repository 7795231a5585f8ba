#include "core/philox.h"
#include "gpu/runtime.h"
#include "optim/gpu/update_math.cuh"
#include "quick_update_check.h"

namespace vitrine::test {
namespace {

constexpr uint32_t kSignificands = 1u << 23;

struct Misses {
  unsigned long long roots, quotients, corrected;
};

__device__ bool differ(float a, float b) { return __float_as_uint(a) != __float_as_uint(b); }

// 2^power times 1.significand.
__device__ float number_of(uint32_t significand, int power) {
  return __uint_as_float(static_cast<uint32_t>(power + 127) << 23 | significand);
}

__global__ void check_kernel(Misses* misses) {
  const uint32_t significand = blockIdx.x * blockDim.x + threadIdx.x;
  for (const int power : {-96, -95, -40, -1, 0, 1, 15}) {
    const float v = number_of(significand, power);
    if (differ(gpu::quick_root(v), __fsqrt_rn(v))) atomicAdd(&misses->roots, 1ull);
  }
  for (uint32_t round = 0; round < 9; ++round) {
    uint32_t words[4] = {significand, round, 0, 0};
    philox_rounds(words, 3, 4);
    // Of a quotient and a denominator at the ends of their powers, and between.
    const int powers[3] = {-48, 20, static_cast<int>(words[2] % 68) - 48};
    const float b = number_of(significand, powers[round % 3]);
    const float least = number_of(words[0] % kSignificands, -96);
    const float any = number_of(words[1] % kSignificands, static_cast<int>(words[3] % 126) - 96);
    for (const float a : {least, -any}) {
      if (differ(gpu::quick_quotient(a, b, gpu::quick_inverse(b)), __fdiv_rn(a, b))) {
        atomicAdd(&misses->quotients, 1ull);
      }
    }
  }
  const float root = number_of(significand, -static_cast<int>(significand % 48));
  for (uint32_t i = 0; i < 64; ++i) {
    uint32_t words[4] = {i, 1, 0, 0};
    philox_rounds(words, 3, 4);
    const float c =
        i == 0 ? 1.0f : number_of(words[0] % kSignificands, -1 - static_cast<int>(i % 12));
    if (differ(gpu::quick_quotient(root, c, __fdiv_rn(1.0f, c)), __fdiv_rn(root, c))) {
      atomicAdd(&misses->corrected, 1ull);
    }
  }
}

}  // namespace

QuickMisses count_quick_misses() {
  Misses *misses = nullptr, found{};
  VITRINE_GPU_CHECK(cudaMalloc(&misses, sizeof(Misses)));
  VITRINE_GPU_CHECK(cudaMemset(misses, 0, sizeof(Misses)));
  check_kernel<<<kSignificands / 256, 256>>>(misses);
  VITRINE_GPU_LAUNCHED("check of quick updates");
  VITRINE_GPU_CHECK(cudaMemcpy(&found, misses, sizeof(Misses), cudaMemcpyDeviceToHost));
  VITRINE_GPU_CHECK(cudaFree(misses));
  return {static_cast<int64_t>(found.roots),
          static_cast<int64_t>(found.quotients),
          static_cast<int64_t>(found.corrected)};
}

}  // namespace vitrine::test
