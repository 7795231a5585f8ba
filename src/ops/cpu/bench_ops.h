// Times of the operations on the CPU rows, on the shapes of a small decoder and a small world
// model.
#pragma once

#include <string>
#include <vector>

#include "ops/op.h"

namespace vitrine {

struct OpTiming {
  std::string op, shapes;  // "linear", "[8, 256, 256] [768, 256]"
  DType dtype = DType::kF32;
  bool backward = false;
  double fast_ns = 0;       // median
  double reference_ns = 0;  // median, 0 where the reference was not timed
  double gflops = 0;        // of the fast row, by the operation's own cost: 1e9 operations a second
  double gbps = 0;          // 1e9 bytes a second, by the same cost
};

struct OpBenchOptions {
  DType dtype = DType::kF32;
  int repeats = 15;
  std::string only;              // one operation, or all when empty
  double reference_flops = 2e7;  // above this the reference is not timed
};

// Runs on compute_threads() threads. Throws ConfigError for an unknown name in `only`.
std::vector<OpTiming> bench_ops(const OpBenchOptions& options = {});

}  // namespace vitrine
