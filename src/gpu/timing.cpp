// Timing by events.
#include "gpu/timing.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "gpu/runtime.h"

namespace vitrine::gpu {

double median_ns(int sets,
                 int samples,
                 const std::function<void(int)>& prepare,
                 const std::function<void(int)>& issue) {
  constexpr int kWarmUp = 2;
  std::vector<double> times;
  const Event start = Event::make(true), stop = Event::make(true);
  for (int sample = -kWarmUp; sample < samples; ++sample) {
    for (int set = 0; set < sets; ++set) prepare(set);
    VITRINE_GPU_CHECK(cudaEventRecord(start.get(), stream()));
    for (int set = 0; set < sets; ++set) issue(set);
    VITRINE_GPU_CHECK(cudaEventRecord(stop.get(), stream()));
    VITRINE_GPU_CHECK(cudaEventSynchronize(stop.get()));
    float milliseconds = 0;
    VITRINE_GPU_CHECK(cudaEventElapsedTime(&milliseconds, start.get(), stop.get()));
    if (sample >= 0) times.push_back(1e6 * static_cast<double>(milliseconds) / sets);
  }
  const auto middle = times.begin() + static_cast<std::ptrdiff_t>(times.size() / 2);
  std::nth_element(times.begin(), middle, times.end());
  return *middle;
}

int sets_beyond_cache(double bytes) {
  constexpr double kTimesCache = 4;
  const double wanted = kTimesCache * static_cast<double>(limits().l2_bytes);
  return static_cast<int>(std::clamp(std::ceil(wanted / std::max(bytes, 1.0)), 2.0, 64.0));
}

double copy_bandwidth(size_t bytes) {
  void* arrays[2] = {};
  for (void*& array : arrays) VITRINE_GPU_CHECK(cudaMalloc(&array, bytes));
  VITRINE_GPU_CHECK(cudaMemsetAsync(arrays[0], 0x5a, bytes, stream()));
  const auto copy = [&](int set) {
    VITRINE_GPU_CHECK(
        cudaMemcpyAsync(arrays[1 - set], arrays[set], bytes, cudaMemcpyDeviceToDevice, stream()));
  };
  const double ns = median_ns(
      2, 11, [](int) {}, copy);
  for (void* array : arrays) VITRINE_GPU_CHECK(cudaFree(array));
  return 2e9 * static_cast<double>(bytes) / ns;
}

}  // namespace vitrine::gpu
