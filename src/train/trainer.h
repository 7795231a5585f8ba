// Training from a run file: model, data, engine, recorder, metrics, checkpoints, evaluation.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "config/run_config.h"
#include "run/engine.h"
#include "train/world_eval.h"

namespace vitrine {

// What a progress display shows; on rank 0.
struct ProgressLine {
  int64_t step = 0, total_steps = 0;  // 0 = bounded by time
  double progress = 0;                // in [0, 1]
  double loss = 0, lr = 0, gradient_norm = 0;
  double units_per_second = 0;            // of all ranks
  double comm_share = 0, data_share = 0;  // of the time since the last line
  double seconds = 0;
  int64_t skipped_steps = 0;
  std::string unit;  // "tokens", "frames"
};

struct TrainOptions {
  std::string run_folder;
  bool resume = false;     // go on from the newest checkpoint in the run folder
  World* world = nullptr;  // null: one rank alone
  std::function<void(const ProgressLine&)> on_progress;
  std::function<void(const std::string&)> on_message;
};

struct TrainResult {
  int64_t steps = 0, skipped_steps = 0;
  double first_loss = 0, loss = 0;  // the mean of the last logging interval
  double seconds = 0;
  double units_per_second = 0;  // over the whole run, of all ranks
  double comm_share = 0, data_share = 0;
  int64_t peak_bytes = 0;
  std::optional<WorldEval> world;
  std::string checkpoint;
  std::vector<std::string> traces;  // files
};

// Every rank calls it. Run folder: docs/formats/run_folder.md.
TrainResult train(const RunConfig& config, const TrainOptions& options);

// Loads the newest checkpoint of a run folder into a fresh engine and evaluates its world model.
WorldEval evaluate_run(const std::string& run_folder, const WorldEvalOptions& options);

// "communication takes 34 % of the step: bad ..." by the rule of thumb; "" when there is nothing to
// say.
std::string communication_hint(double share, int ranks);

}  // namespace vitrine
