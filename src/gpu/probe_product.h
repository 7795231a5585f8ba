// Matrix products for the probe, straight through cuBLASLt.
#pragma once

#include <cstdint>

#include "gpu/probe.h"
#include "gpu/vendor.h"

namespace vitrine::gpu {

// Fills `product`: checked at 96 x 160 x 288, timed at edge^3. On the calling thread's device and
// the default stream.
void probe_product(ProductProbe& product, int edge);

// Kernels of the probe. `type` is the storage; numbers are uniform in [-1, 1), by seed and place.
void fill_random(cudaDataType_t type, void* data, int64_t count, uint64_t seed);
// Exact: every dtype of the probe fits in double.
void widen(cudaDataType_t type, const void* data, int64_t count, double* wide);

}  // namespace vitrine::gpu
