// Own bf16 matrix products for Hopper: candidates beside cuBLASLt's for the shapes they can take.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ops/gpu/cublaslt.h"

namespace vitrine::gpu {

// One way to run a product. Results differ between variants in the order of sums only, and are the
// same bits in every run of one variant with the same number of multiprocessors.
struct WgmmaVariant {
  int tile_columns = 0;  // 256, 192 or 128; rows are always 128 a block, 256 a cluster
  bool split = false;    // the last wave of tiles is cut along the contraction (wgmma_schedule.h)
  bool operator==(const WgmmaVariant&) const = default;
};

// Every variant that can run this product here: bf16 operands, d bf16 or f32, no scales, addresses
// and rows of 16 bytes, d's columns a multiple of 8, compute capability 9.0 and machine code for
// it. Empty otherwise.
std::vector<WgmmaVariant> wgmma_variants(const Gemm& gemm);

// d = a b as matmul() in the calling thread's stream, written to `d` instead of gemm.d (gemm.d is
// what is added when it accumulates). `scratch`: kGemmScratch bytes. Waits for nothing.
// `multiprocessors` 0: all of them.
void wgmma_matmul(
    const Gemm& gemm, WgmmaVariant variant, void* d, void* scratch, int multiprocessors = 0);

}  // namespace vitrine::gpu
