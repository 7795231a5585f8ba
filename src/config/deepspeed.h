// DeepSpeed's keys turned into strategy, optimizer and loss scaling.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace vitrine {

// What the DeepSpeed part of a file asks for. `strategy` comes in with its mesh set.
struct DeepSpeedSettings {
  Strategy strategy;
  OptimizerConfig optimizer;
  LossScaler loss_scaler;
  std::optional<LearningRateSchedule> schedule;  // of the scheduler section
  std::optional<int64_t> log_every;
  bool comms_log = false;
};

// Reads the keys of `file` that are not `own` ones. Everything found, wrong or contradictory goes
// into `remarks` in the order of the file, checks of combinations after it; nothing is thrown.
//
// Keys that are absent, null or "auto" mean the defaults here (Strategy's and OptimizerConfig's),
// which are smaller than DeepSpeed's for bucket sizes; remarks say both where a file has "auto".
DeepSpeedSettings read_deepspeed(const Json& file,
                                 const Mesh& mesh,
                                 const std::vector<std::string>& own,
                                 std::vector<Remark>& remarks);

// A DeepSpeed configuration alone, key by key, as `vitrine explain ds_config.json` prints it; run
// files are taken too. `world` data ranks.
std::vector<Remark> check_deepspeed(const Json& file, int world);

// The top-level keys of a run file that are ours.
const std::vector<std::string>& own_keys();

}  // namespace vitrine
