// A run as one value: what a run file says, resolved, with an answer for every DeepSpeed key in it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/remark.h"
#include "core/json_fwd.h"
#include "optim/optim.h"
#include "schedule/strategy.h"

namespace vitrine {

// Where samples come from.
struct DataConfig {
  // "frames": a frame cache; "tokens": token shards; "balls": a frame cache that is made first when
  // `path` is not there; "random": random values of the model's shapes, for measuring speed.
  std::string kind;
  std::string path, eval_path;  // eval_path "" = no evaluation
  int64_t stride = 1;           // frames between the beginnings of clips
  int workers = 1;              // threads that make batches; 0 = none
  int prefetch = 4;             // micro-batches made ahead
  // Of "balls": the world and how much of it.
  int64_t balls = 1, episodes = 256, eval_episodes = 16, episode_frames = 64;
};

struct CheckpointConfig {
  int64_t every = 0;  // steps; 0 = only at the end
  int64_t keep = 2;   // newest ones kept; 0 = all
};

// torch.profiler's schedule; active 0 = no trace.
struct TraceConfig {
  int64_t skip_first = 0, wait = 1, warmup = 1, active = 0, repeat = 1;
  bool operations = false;
};

// While progress (steps or seconds done, of all) is below `until`, a world model is unrolled
// `steps` times.
struct RolloutPhase {
  double until = 1;
  int64_t steps = 1;
};

struct TrainConfig {
  int64_t steps = 0;           // one of the two is given
  double seconds = 0;          // time budget
  std::string device = "cpu";  // or "gpu": one a rank
  bool tf32 = false;  // on GPUs: f32 products with 10 bits of mantissa, eight times as fast
  bool deterministic = false;   // on GPUs: the same bits in every run, at some cost
  std::string graphs = "auto";  // on GPUs: replay blocks as graphs where it pays; or "off", "on"
  uint64_t seed = 0;
  int64_t log_every = 10, eval_every = 0, eval_batches = 8;
  double timeout_seconds = 300;  // a collective that takes longer ends the run
  bool comms_log = false;
  LearningRateSchedule schedule;
  CheckpointConfig checkpoint;
  TraceConfig trace;
  std::vector<RolloutPhase> rollout;  // empty = as the model section says
};

struct RunConfig {
  std::string name;    // of the run; "" = the file's name
  std::string model;   // the model section with every field given, as JSON text
  std::string family;  // "decoder", "vit", "world_model"
  DataConfig data;
  TrainConfig train;
  Strategy strategy;          // micro_batch and accumulation included
  OptimizerConfig optimizer;  // clip included
  LossScaler loss_scaler;     // of fp16; scale 1 and not dynamic otherwise
  bool fp8 = false;           // linears of the body read 8-bit operands; needs bf16
  std::vector<Remark> remarks;
};

struct ConfigOptions {
  int world = 1;                       // ranks of the launch
  std::vector<std::string> overrides;  // "train.steps=50", in order
};

// Throws ConfigError with every wrong key and every contradiction found, one a line; for keys that
// are "not yet" too, unless the file has "allow_not_yet": true. Relative paths in the file are the
// caller's.
RunConfig read_run_config(const std::string& path, const ConfigOptions& options = {});
RunConfig make_run_config(const Json& file, const ConfigOptions& options = {});

// Sets dotted keys in `file`. A value that is not JSON is taken as text. Throws ConfigError for a
// path through something that is not an object.
void apply_overrides(Json& file, const std::vector<std::string>& overrides);

// A run file that gives the same RunConfig for the same world, with nothing left to defaults.
std::string resolved_json(const RunConfig& config);

// The rollout steps at `progress` in [0, 1]; 0 = as the model section says.
int64_t rollout_steps_at(const TrainConfig& train, double progress);

}  // namespace vitrine
