// What kernels over rows share: places from flat indices, and grids of blocks that stay.
#pragma once

#include "ops/gpu/elementwise.cuh"

namespace vitrine::gpu {

__device__ __forceinline__ void divide(int64_t i, int64_t by, int64_t& whole, int64_t& rest) {
  whole = quotient(i, by);
  rest = i - whole * by;
}

__device__ __forceinline__ void divide(int64_t i,
                                       const Divisor& by,
                                       int64_t& whole,
                                       int64_t& rest) {
  whole = quotient(i, by);
  rest = i - whole * by.value;
}

// Blocks for a loop over `items` threads by the size of the grid.
inline unsigned blocks_for(int64_t items, int threads, int blocks_a_multiprocessor) {
  const int64_t wanted = (items + threads - 1) / threads;
  const int64_t most = static_cast<int64_t>(limits().multiprocessors) * blocks_a_multiprocessor;
  return static_cast<unsigned>(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

}  // namespace vitrine::gpu
