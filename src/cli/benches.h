// The benchmarks behind `vitrine bench`.
#pragma once

#include <string>

#include "cli/commands.h"

namespace vitrine {

struct BenchOptions {
  std::string model = "decoder";  // decoder | world
  std::string size = "tiny";
  int steps = 20, pairs = 200;
  int64_t micro_batch = 0;  // 0 = the peer script's: 8 sequences, 8 clips
  // Of step:
  std::string device = "cpu", dtype = "f32", gradient_dtype = "f32", states = "f32";
  int64_t sequence = 0;                                       // 0 = the model's
  int64_t accumulation = 1, stage = 0, loss_chunk_rows = -1;  // -1 = the model's
  int64_t prefetch = 500'000'000;                             // stage3_prefetch_bucket_size
  std::vector<std::string> persistent;                        // parameters kept whole at stage 3
  int ranks = 1, warmup = 3;
  bool recompute = false, fp8 = false;
  std::string graphs = "auto";
  std::string trace;  // "" or a file: three more steps, recorded
  bool json = false;
};

// Model-state bytes in the ledger against ZeRO's arithmetic, for stages 0-3 and 1-4 ranks.
int bench_zero(const BenchOptions& options);
// Median time of a training step of one process, or of one rank a GPU.
int bench_step(const BenchOptions& options, const CommandLine& line);
// Recording on against off, alternated step by step.
int bench_recorder(const BenchOptions& options);
// Times of every operation on GPU 0, and of the optimizer, against the copy bandwidth measured in
// the same run; `only` names one operation.
int bench_gpu(const std::string& only, bool json);
// Memory checks and simulations a second, time of a large search.
int bench_plan(const BenchOptions& options);

}  // namespace vitrine
