// Sums of squares for the global gradient norm, independent of sharding.
#include <algorithm>
#include <mutex>

#include "core/error.h"
#include "core/parallel.h"
#include "optim/optim.h"

namespace vitrine {
namespace {

// Eight fp64 lanes in a fixed order; a short last chunk is a zero-padded one.
double chunk_sum(const float* x) {
  double lane[8] = {};
  for (int64_t i = 0; i < kNormChunk; i += 8) {
    for (int64_t j = 0; j < 8; ++j) {
      const auto value = static_cast<double>(x[i + j]);
      lane[j] += value * value;
    }
  }
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

}  // namespace

void add_squares(const void* data, DType dtype, int64_t begin, int64_t end, ExactSum& sum) {
  VITRINE_ASSERT(begin % kNormChunk == 0);
  const int64_t count = end - begin;
  const int64_t chunks = (count + kNormChunk - 1) / kNormChunk;
  std::mutex mutex;
  parallel_for(chunks, 512, [&](int64_t first, int64_t last) {
    ExactSum part;
    alignas(64) float x[kNormChunk];
    for (int64_t c = first; c < last; ++c) {
      const int64_t at = c * kNormChunk, n = std::min(kNormChunk, count - at);
      const float* values = static_cast<const float*>(data) + at;
      if (n < kNormChunk || dtype != DType::kF32) {
        std::fill(x, x + kNormChunk, 0.0f);
        convert(DType::kF32,
                x,
                dtype,
                static_cast<const std::byte*>(data) + at * static_cast<int64_t>(dtype_bytes(dtype)),
                n);
        values = x;
      }
      part.add(chunk_sum(values));
    }
    const std::lock_guard lock(mutex);
    sum.add(part);
  });
}

}  // namespace vitrine
