// Options that name a job to plan, for `vitrine plan` and what is below it.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

#include "plan/plan_text.h"
#include "plan/search.h"

namespace vitrine {

struct PlanOptions {
  std::string model, gpus, profile, topology, stack, deepspeed, strategy_file;
  std::optional<int> nodes_of, tensor, pipeline, context, expert, zero, interleave;
  std::optional<int64_t> shard_group, micro_batch, sequence, global_batch, loss_chunk_rows;
  std::optional<std::string> recompute, schedule, precision;
  std::optional<double> imbalance;
  std::vector<std::string> offload;
  bool no_sequence_parallel = false, no_flash = false, unfused = false, no_overlap = false,
       overlap_tensor = false, graphs = false;
  double price = 0, tokens = 1e9;

  // Adds the options to `command`; the positional model and --gpus are not among them.
  void add_to(CLI::App* command);
};

// The cluster of --gpus, --profile, --topology, --nodes-of. Throws ConfigError, IoError,
// UsageError.
Cluster plan_cluster(const PlanOptions& options);
// The whole job. Throws likewise; the strategy is checked.
PlanJob plan_job(const PlanOptions& options);
// The job without its layout (mesh, stage, recomputation, micro-batch are not checked), and what
// the options hold fixed of it.
PlanJob search_job(const PlanOptions& options, SearchSpace& space);

}  // namespace vitrine
