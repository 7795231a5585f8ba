// Files of a run folder that the trainer writes and other commands read.
#pragma once

#include <string>

#include "train/trainer.h"

namespace vitrine {

// Throws ConfigError when the folder holds another run, unless `resume`.
void check_run_folder(const TrainOptions& options);
// run.json (the resolved configuration), environment.json (machine, versions), empty sub-folders.
// Checks first; throws IoError when a folder cannot be made.
void prepare_run_folder(const RunConfig& config, const TrainOptions& options, int ranks);
// The configuration of a run folder's run.json, for one rank alone whatever the training's layout
// was.
RunConfig read_run_for_one_rank(const std::string& run_folder);
// memory/rank<N>.json: a rank's peak, its split by category, and the largest holders at the end.
void write_memory(const std::string& run_folder, int rank, const MemoryLedger& ledger);
std::string memory_file(const std::string& run_folder, int rank);
// result.json, the last thing a run writes.
void write_result(const std::string& run_folder, const TrainResult& result);
std::string result_json(const TrainResult& result);
std::string world_eval_json(const WorldEval& eval);

}  // namespace vitrine
