// Honest evaluation of a world model on held-out clips: against repeating the last frame, with the
// true actions and with wrong ones, one step ahead and in open loop.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/frame_cache.h"
#include "models/world_model.h"
#include "run/engine.h"

namespace vitrine {

struct HorizonError {
  int64_t horizon = 0;             // frames ahead
  double model_pixels = 0;         // mean distance of the predicted ball's centre from the true one
  double copy_pixels = 0;          // the same for the last context frame repeated
  double psnr = 0, psnr_copy = 0;  // dB, from the mean squared error over all clips
  int64_t lost = 0;  // clips whose prediction shows no ball; their error counts as half the width
};

struct WorldEval {
  int64_t clips = 0;
  double psnr = 0;  // one step ahead, the whole context given
  double psnr_copy = 0;
  double psnr_shuffled = 0;  // with another clip's actions
  double prediction_std =
      0;  // over clips, of what is predicted; 0 = every clip looks alike: collapsed
  bool has_state = false;  // centre errors are known
  std::vector<HorizonError> horizons;
};

struct WorldEvalOptions {
  int64_t clips = 64;
  int64_t horizon = 8;
  std::string picture_folder;  // "" = none; gets rollout.gif and rollout.png
  int64_t picture_clips = 3;
};

// Collective over the engine's ranks: all of them look at the same clips; rank 0 writes pictures.
// The engine's variant 0 must be the model of `config`, its micro-batch any.
WorldEval evaluate_world(Engine& engine,
                         const WorldModelConfig& config,
                         const FrameCache& cache,
                         const WorldEvalOptions& options);

}  // namespace vitrine
