// A trained world model as a function: from a window of frames and actions to the next frame.
#pragma once

#include <vector>

#include "run/engine.h"

namespace vitrine {

class FramePredictor {
 public:
  // The engine's variant 0 must be a world model of `window` context frames; its micro-batch any.
  FramePredictor(Engine& engine, int64_t window);

  int64_t frame_values() const { return frame_; }  // H * W * 3
  // The frame after each of `windows` ([window, frame] values in [0, 1]) under `actions` ([window];
  // the last one leads from the window's last frame to the predicted one), cut to [0, 1]. In
  // micro-batches.
  void predict(const std::vector<const float*>& windows,
               const std::vector<const int32_t*>& actions,
               std::vector<std::vector<float>>& next);

 private:
  Engine& engine_;
  int64_t window_, clip_frames_ = 0, batch_ = 0, frame_ = 0;
  TensorType type_;
};

}  // namespace vitrine
