// Files of a run folder that the trainer writes and other commands read.
#pragma once

#include <string>

#include "train/trainer.h"

namespace vitrine {

// Throws ConfigError when the folder holds another run, unless `resume`.
void check_run_folder(const TrainOptions& options);
// run.json (the resolved configuration), environment.json (machine, versions, git), empty sub-folders.
// Checks first; throws IoError when a folder cannot be made.
void prepare_run_folder(const RunConfig& config, const TrainOptions& options, int ranks);
// result.json, the last thing a run writes.
void write_result(const std::string& run_folder, const TrainResult& result);
std::string result_json(const TrainResult& result);
std::string world_eval_json(const WorldEval& eval);

}  // namespace vitrine
