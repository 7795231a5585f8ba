// Which cuBLASLt algorithm won for each shape, kept between processes.
#pragma once

#include <cublasLt.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>

namespace vitrine::gpu {

// All that decides an algorithm, but the device.
using GemmKey = std::array<int64_t, 20>;

// The choice for this model of GPU, from this process or the file. Thread-safe, as are the others.
std::optional<cublasLtMatmulAlgo_t> find_gemm_choice(const std::string& gpu, const GemmKey& key);
// The first choice noted for a key stays, so that all ranks of a process add in one order; answers
// it.
cublasLtMatmulAlgo_t note_gemm_choice(const std::string& gpu,
                                      const GemmKey& key,
                                      const cublasLtMatmulAlgo_t& algorithm);
// A choice from the file that the library refuses.
void forget_gemm_choice(const std::string& gpu, const GemmKey& key);

}  // namespace vitrine::gpu
