// A small physical world with exact truth: balls in a box, one of them driven by actions.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "data/summary.h"

namespace vitrine {

// Lengths in pixels, times in frames. Pixel (i, j) covers [j, j+1) x [i, i+1), so its centre is at
// (j + 0.5, i + 0.5); x grows to the right, y downwards.
struct BallsOptions {
  int64_t height = 24, width = 24;
  int balls = 1;
  double radius = 3.0;
  double minimum_speed = 0.8, maximum_speed = 1.6;  // first speeds are drawn between them
  double acceleration = 0.45;                       // that an action adds to ball 0 each frame
  int minimum_hold = 3, maximum_hold = 6;           // frames for which one action is held
  int64_t episodes = 256, episode_frames = 64;
  uint64_t seed = 0;
  // Episodes of different splits share nothing, whatever their seed.
  std::string split = "train";
};

// Actions of ball 0, in the order of their numbers.
constexpr int kBallActions = 5;
constexpr std::array<const char*, kBallActions> kBallActionNames = {"none", "+x", "-x", "+y", "-y"};

constexpr std::array<uint8_t, 3> kBallsBackground = {12, 12, 20};
// Fixed for each ball; repeats after six.
std::array<uint8_t, 3> ball_colour(int ball);

// One episode. frames u8 [T, H, W, 3]; actions i32 [T], where action t drives frame t -> t + 1;
// state f32 [T, balls, 4] = (x, y, vx, vy) of each centre.
struct BallsEpisode {
  std::vector<uint8_t> frames;
  std::vector<int32_t> actions;
  std::vector<float> state;
};

// A pure function of (options, episode index). All masses are equal and collisions elastic; a speed
// beyond maximum_speed is cut to it. Throws ConfigError for options that can't be met.
BallsEpisode make_balls_episode(const BallsOptions& options, int64_t episode);

// Draws balls at centres (x, y) onto one frame u8 [H, W, 3], edges antialiased.
void draw_balls(const BallsOptions& options, const float* state, uint8_t* frame);

// The same world made harder for testing what a model does beyond its training: `more_balls` more
// of them, faster by `speed_factor`, in a split of its own.
BallsOptions out_of_distribution(BallsOptions options,
                                 int more_balls = 2,
                                 double speed_factor = 1.5);

// What write_balls notes in the cache (FrameCacheMeta::generator), as JSON text.
std::string balls_settings(const BallsOptions& options);

// Writes a frame cache of options.episodes episodes into `dir`.
DataSummary write_balls(const BallsOptions& options,
                        const std::string& dir,
                        bool overwrite = false);

}  // namespace vitrine
