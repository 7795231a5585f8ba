// Evaluation of world models.
#include "train/world_eval.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "core/error.h"
#include "data/balls.h"
#include "data/measure.h"
#include "media/gif.h"
#include "media/png.h"
#include "media/rollout_picture.h"
#include "train/predictor.h"

namespace vitrine {
namespace {

// Clips of the held-out cache, spread over all its episodes, as floats.
struct Clips {
  int64_t count = 0, frames = 0, frame = 0;  // frame = values of one frame
  std::vector<float> pixels;                 // [count, frames, frame]
  std::vector<int32_t> actions;              // [count, frames]
  std::vector<float> centres;                // [count, frames, 2] of ball 0; empty without state
  const float* at(int64_t clip, int64_t t) const {
    return pixels.data() + (clip * frames + t) * frame;
  }
};

Clips take_clips(const FrameCache& cache, int64_t wanted, int64_t frames) {
  const ClipIndex index(cache, frames, 1);
  Clips clips;
  clips.count = std::min(wanted, index.size());
  clips.frames = frames;
  clips.frame = cache.frame_bytes();
  const bool state = cache.has_state();
  for (int64_t c = 0; c < clips.count; ++c) {
    const int64_t first = index.first_frame(index.size() * c / clips.count);
    for (int64_t t = 0; t < frames; ++t) {
      const uint8_t* bytes = cache.frame(first + t);
      for (int64_t i = 0; i < clips.frame; ++i)
        clips.pixels.push_back(static_cast<float>(bytes[i]) / 255.0f);
      const bool discrete = cache.meta().action_kind == FrameActions::kDiscrete;
      clips.actions.push_back(discrete ? *cache.discrete_action(first + t) : 0);
      if (state)
        clips.centres.insert(
            clips.centres.end(), cache.state(first + t), cache.state(first + t) + 2);
    }
  }
  return clips;
}

double mean_square(const float* a, const float* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double difference = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sum += difference * difference;
  }
  return sum / static_cast<double>(count);
}

double decibel(double mean_squared_error) {
  return -10 * std::log10(std::max(mean_squared_error, 1e-12));
}

double centre_error(const FrameCache& cache, const float* frame, const float* truth, bool* found) {
  const BallCentre centre =
      ball_centre(frame, cache.height(), cache.width(), ball_colour(0), kBallsBackground);
  *found = centre.found;
  if (!centre.found) return static_cast<double>(cache.width()) / 2;
  return std::hypot(centre.x - static_cast<double>(truth[0]),
                    centre.y - static_cast<double>(truth[1]));
}

void write_pictures(const Clips& clips,
                    const std::vector<std::vector<float>>& imagined,
                    const FrameCache& cache,
                    int64_t context,
                    const WorldEvalOptions& options) {
  std::filesystem::create_directories(options.picture_folder);
  std::vector<Picture> animation;
  for (int64_t c = 0; c < std::min(options.picture_clips, clips.count); ++c) {
    Rollout rollout;
    rollout.truth = clips.at(c, 0);
    rollout.prediction = imagined[static_cast<size_t>(c)].data();
    rollout.frames = clips.frames;
    rollout.height = cache.height();
    rollout.width = cache.width();
    rollout.context = context;
    if (c == 0) write_png(options.picture_folder + "/rollout.png", rollout_strip(rollout));
    for (Picture& picture : rollout_frames(rollout)) animation.push_back(std::move(picture));
  }
  write_gif(options.picture_folder + "/rollout.gif", animation, 20);
}

}  // namespace

WorldEval evaluate_world(Engine& engine,
                         const WorldModelConfig& config,
                         const FrameCache& cache,
                         const WorldEvalOptions& options) {
  const int64_t window = config.window;
  const Clips clips = take_clips(cache, options.clips, window + options.horizon);
  FramePredictor predictor(engine, config.window);
  WorldEval eval;
  eval.clips = clips.count;
  eval.has_state = !clips.centres.empty();

  std::vector<const float*> windows;
  std::vector<const int32_t*> actions, wrong;
  std::vector<std::vector<float>> next, next_wrong;
  for (int64_t c = 0; c < clips.count; ++c) {
    windows.push_back(clips.at(c, 0));
    actions.push_back(clips.actions.data() + c * clips.frames);
    wrong.push_back(clips.actions.data() + (c + clips.count / 2) % clips.count * clips.frames);
  }
  predictor.predict(windows, wrong, next_wrong);

  // Open loop: what was predicted becomes the newest frame of the next window.
  std::vector<std::vector<float>> imagined;  // [clip][frames * frame], context first
  for (int64_t c = 0; c < clips.count; ++c) {
    imagined.emplace_back(clips.at(c, 0), clips.at(c, window));
    imagined.back().reserve(static_cast<size_t>(clips.frames * clips.frame));
  }
  for (int64_t h = 1; h <= options.horizon; ++h) {
    for (int64_t c = 0; c < clips.count; ++c) {
      windows[static_cast<size_t>(c)] =
          imagined[static_cast<size_t>(c)].data() + (h - 1) * clips.frame;
      actions[static_cast<size_t>(c)] = clips.actions.data() + c * clips.frames + h - 1;
    }
    predictor.predict(windows, actions, next);
    HorizonError error;
    error.horizon = h;
    double square = 0, square_copy = 0, square_wrong = 0;
    for (int64_t c = 0; c < clips.count; ++c) {
      const auto i = static_cast<size_t>(c);
      const float* truth = clips.at(c, window + h - 1);
      const float* copy = clips.at(c, window - 1);
      square += mean_square(next[i].data(), truth, clips.frame);
      square_copy += mean_square(copy, truth, clips.frame);
      square_wrong += mean_square(next_wrong[i].data(), truth, clips.frame);
      if (eval.has_state) {
        const float* centre = clips.centres.data() + (c * clips.frames + window + h - 1) * 2;
        const float* last = clips.centres.data() + (c * clips.frames + window - 1) * 2;
        bool found = false;
        error.model_pixels += centre_error(cache, next[i].data(), centre, &found);
        error.lost += found ? 0 : 1;
        error.copy_pixels +=
            std::hypot(static_cast<double>(centre[0]) - static_cast<double>(last[0]),
                       static_cast<double>(centre[1]) - static_cast<double>(last[1]));
      }
      imagined[i].insert(imagined[i].end(), next[i].begin(), next[i].end());
    }
    const auto count = static_cast<double>(clips.count);
    error.model_pixels /= count;
    error.copy_pixels /= count;
    error.psnr = decibel(square / count);
    error.psnr_copy = decibel(square_copy / count);
    if (h == 1) {
      eval.psnr = error.psnr;
      eval.psnr_copy = error.psnr_copy;
      eval.psnr_shuffled = decibel(square_wrong / count);
      double variance = 0;  // over clips, averaged over pixels
      for (int64_t p = 0; p < clips.frame; ++p) {
        double sum = 0, squares = 0;
        for (const auto& frame : next) {
          const auto value = static_cast<double>(frame[static_cast<size_t>(p)]);
          sum += value;
          squares += value * value;
        }
        variance += squares / count - (sum / count) * (sum / count);
      }
      eval.prediction_std = std::sqrt(std::max(0.0, variance / static_cast<double>(clips.frame)));
    }
    eval.horizons.push_back(error);
  }
  if (!options.picture_folder.empty() && engine.rank() == 0) {
    write_pictures(clips, imagined, cache, window, options);
  }
  return eval;
}

}  // namespace vitrine
