// The data of a run: opened (or made) from its configuration and checked against the model.
#pragma once

#include <memory>

#include "config/run_config.h"
#include "data/dataset.h"
#include "models/registry.h"
#include "run/engine.h"

namespace vitrine {

struct RunData {
  std::shared_ptr<const FrameCache> train_cache, eval_cache;  // of frame data; eval may be null
  std::unique_ptr<Dataset> train;
};

// Makes the balls world where it is missing (rank 0; the others wait at a barrier over `world`).
// Throws ConfigError when data and model do not fit together, IoError.
RunData open_data(const RunConfig& config,
                  const BuiltModel& model,
                  int64_t clip_frames,
                  World* world);

}  // namespace vitrine
