// Angles in double, so that long sequences keep their phase.
#include "ops/gpu/rotary_table.h"

#include <cmath>
#include <map>
#include <mutex>
#include <tuple>
#include <vector>

#include "gpu/runtime.h"

namespace vitrine::gpu {
namespace {

struct Kept {
  int64_t length = 0;
  RotaryTable table;
};

RotaryTable make_table(int64_t length, int64_t half, double base) {
  // The sines begin at an aligned place too.
  const auto count = static_cast<size_t>(length * half), padded = (count + 63) / 64 * 64;
  std::vector<float> values(2 * padded);
  for (int64_t c = 0; c < half; ++c) {
    const double frequency = std::pow(base, -static_cast<double>(c) / static_cast<double>(half));
    for (int64_t p = 0; p < length; ++p) {
      const double angle = static_cast<double>(p) * frequency;
      const auto at = static_cast<size_t>(p * half + c);
      values[at] = static_cast<float>(std::cos(angle));
      values[padded + at] = static_cast<float>(std::sin(angle));
    }
  }
  void* data = nullptr;
  const size_t bytes = values.size() * sizeof(float);
  VITRINE_GPU_CHECK(cudaMalloc(&data, bytes));
  VITRINE_GPU_CHECK(cudaMemcpyAsync(data, values.data(), bytes, cudaMemcpyHostToDevice, stream()));
  VITRINE_GPU_CHECK(cudaStreamSynchronize(stream()));
  const auto* cosine = static_cast<const float*>(data);
  return {cosine, cosine + padded};
}

}  // namespace

RotaryTable rotary_table(int64_t length, int64_t half, double base) {
  static std::mutex mutex;
  static auto* all = new std::map<std::tuple<int, int64_t, double>, Kept>;
  int device = 0;
  VITRINE_GPU_CHECK(cudaGetDevice(&device));
  const std::lock_guard lock(mutex);
  Kept& kept = (*all)[{device, half, base}];
  if (kept.length < length) {
    // A shorter table is not freed: work that reads it may still be waiting.
    kept.table = make_table(length, half, base);
    kept.length = length;
  }
  return kept.table;
}

}  // namespace vitrine::gpu
