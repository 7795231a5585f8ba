// Times of the GPU's rows on the shapes of a language model and of a world model.
#pragma once

#include <string>
#include <vector>

#include "ops/op.h"

namespace vitrine {

struct GpuOpTiming {
  std::string op, shapes;  // "swiglu", "[4, 4096, 17920]"
  bool backward = false;
  double ns = 0;      // median
  double gbps = 0;    // 1e9 bytes a second, by the operation's own cost
  double tflops = 0;  // 1e12 operations a second, by the same cost; 0 unless it multiplies matrices
  double copy_gbps = 0;  // of a copy that moves as many bytes
};

struct GpuBenchOptions {
  int samples = 15;
  std::string only;  // one operation, or all when empty
  // Those that are bound by memory, without copies of their size beside them (copy_gbps 0); those
  // for which there is no memory are left out.
  bool passes_only = false;
  int gpu = 0;
};

// In bf16, in lane 0 of the GPU: Qwen2.5-1.5B at 16384 tokens, then a world model. Operands rotate
// so that the L2 cache does not serve them. Operations without a row are left out. Throws
// ConfigError for an unknown name in `only`, DeviceError without a GPU.
std::vector<GpuOpTiming> bench_gpu_ops(const GpuBenchOptions& options = {});

// Bytes a second of copies on GPU 0, read plus written.
double bench_gpu_copy();

}  // namespace vitrine
