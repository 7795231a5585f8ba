// Times of the optimizer's passes on the GPU.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace vitrine {

struct GpuUpdateTiming {
  // "adamw", "adamw_bf16_states", "gradient_squares", "bf16_gradient_squares",
  // "bf16_terms_and_squares" (the sum of two ranks' gradients with its squares)
  std::string pass;
  int64_t elements = 0;
  double ns = 0;    // median
  double gbps = 0;  // 1e9 bytes a second, each array once
};

// One layer of Qwen2.5-1.5B: f32 master weights, moments and gradients, bf16 parameters
// (adamw_bf16_states: bf16 throughout), in lane 0 of GPU `gpu`. Throws DeviceError without a GPU.
std::vector<GpuUpdateTiming> bench_gpu_update(int samples = 15, int gpu = 0);

}  // namespace vitrine
