// DeepSpeed's keys turned into strategy, optimizer and loss scaling.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace vitrine {

// What a file asks for that a planner counts with and the engine does not run yet, or runs in its
// own way (16-bit states).
struct DeepSpeedBeyond {
  std::string optimizer_device = "none", parameter_device = "none";  // "none", "cpu", "nvme"
  bool checkpoints_on_host = false;  // activation_checkpointing.cpu_checkpointing
  int64_t shard_group = 0;           // mics_shard_size or zero_hpz_partition_size; 0: none
  bool quantized_weights = false, quantized_gradients = false;  // ZeRO++
  bool half_masters = false, half_moments = false;              // 16-bit master copies, moments
  // As written; "" = left out.
  std::string gradient_dtype, communication_dtype;
};

// What the DeepSpeed part of a file asks for. `strategy` comes in with its mesh set.
struct DeepSpeedSettings {
  Strategy strategy;
  OptimizerConfig optimizer;
  LossScaler loss_scaler;
  std::optional<LearningRateSchedule> schedule;  // of the scheduler section
  std::optional<int64_t> log_every;
  bool comms_log = false;
  DeepSpeedBeyond beyond;
};

// Reads the keys of `file` that are not `own` ones. Everything found, wrong or contradictory goes
// into `remarks` in the order of the file, checks of combinations after it; nothing is thrown.
//
// Keys that are absent, null or "auto" mean the defaults here (those of `defaults` and
// OptimizerConfig's), which are smaller than DeepSpeed's for bucket sizes; remarks say both where a
// file has "auto".
DeepSpeedSettings read_deepspeed(const Json& file,
                                 const Mesh& mesh,
                                 const std::vector<std::string>& own,
                                 std::vector<Remark>& remarks,
                                 const Strategy& defaults = {});

// A DeepSpeed configuration alone, key by key, as `vitrine explain ds_config.json` prints it; run
// files are taken too. `world` data ranks.
std::vector<Remark> check_deepspeed(const Json& file, int world);

// The top-level keys of a run file that are ours.
const std::vector<std::string>& own_keys();

}  // namespace vitrine
