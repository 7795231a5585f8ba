// A trained world model under actions of one's own choice.
#pragma once

#include <string>
#include <vector>

#include "data/frame_cache.h"
#include "models/world_model.h"
#include "run/engine.h"

namespace vitrine {

struct Imagined {
  int64_t frames = 0, height = 0, width = 0;
  int64_t context = 0;           // the first frames are true, the others imagined
  std::vector<float> pixels;     // [frames, H, W, 3] in [0, 1]
  std::vector<int32_t> actions;  // [frames - 1]; action t leads from frame t to t + 1
};

// Open loop from the first frames of held-out clip `clip` (counted over all places where one can
// begin): one imagined frame for each of `actions`. Throws ConfigError for a clip that is not
// there, and for actions that the model does not know.
Imagined imagine(Engine& engine,
                 const WorldModelConfig& config,
                 const FrameCache& cache,
                 int64_t clip,
                 const std::vector<int32_t>& actions);

// `folder`/imagined.png (all frames in rows, with numbers and actions) and imagined.gif. Throws
// IoError.
void write_imagined(const Imagined& imagined, const std::string& folder);

}  // namespace vitrine
