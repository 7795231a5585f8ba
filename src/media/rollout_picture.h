// Pictures of a world model's rollout: truth, prediction and how they differ.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "media/picture.h"

namespace vitrine {

// truth and prediction: f32 [frames, H, W, 3] in [0, 1]. The first `context` frames were given to
// the model, the others it imagined.
struct Rollout {
  const float* truth = nullptr;
  const float* prediction = nullptr;
  int64_t frames = 0, height = 0, width = 0;
  int64_t context = 0;
};

struct RolloutStyle {
  int64_t scale = 0;  // of one pixel; 0 chooses cells of about 72 pixels
  Colour context = {60, 190, 90}, imagined = {230, 90, 60};  // borders
  Colour background = {24, 24, 28}, ink = {225, 225, 225};
};

// One still: three labelled rows (TRUTH, MODEL, |DIFF|) of all frames with their numbers above; the
// border of a cell says whether the model was given the frame or imagined it.
Picture rollout_strip(const Rollout& rollout, const RolloutStyle& style = {});

// The same as an animation: one picture a frame, with truth, model and difference side by side.
std::vector<Picture> rollout_frames(const Rollout& rollout, const RolloutStyle& style = {});

}  // namespace vitrine
