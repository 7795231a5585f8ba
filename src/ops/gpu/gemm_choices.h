// Which algorithm won for each shape, the library's or an own one, kept between processes.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

#include "ops/gpu/wgmma_matmul.h"

namespace vitrine::gpu {

// All that decides an algorithm, but the device.
using GemmKey = std::array<int64_t, 20>;

struct GemmChoice {
  WgmmaVariant own;  // tile_columns 0: the library's algorithm
  cublasLtMatmulAlgo_t library{};
};

// The choice for this model of GPU, from this process or the file. Thread-safe, as are the others.
std::optional<GemmChoice> find_gemm_choice(const std::string& gpu, const GemmKey& key);
// The first choice noted for a key stays, so that all ranks of a process add in one order; answers
// it.
GemmChoice note_gemm_choice(const std::string& gpu, const GemmKey& key, const GemmChoice& choice);
// A choice from the file that cannot run here.
void forget_gemm_choice(const std::string& gpu, const GemmKey& key);

}  // namespace vitrine::gpu
