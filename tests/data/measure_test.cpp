// PSNR against its definition, and ball centres against the simulator's truth.
#include "data/measure.h"

#include <gtest/gtest.h>

#include <cmath>

#include "data/balls.h"

namespace vitrine {
namespace {

std::vector<float> frame_of(const BallsEpisode& episode, size_t t, size_t bytes) {
  std::vector<float> frame(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    frame[i] = static_cast<float>(episode.frames[t * bytes + i]) / 255.0f;
  }
  return frame;
}

TEST(Measure, PsnrIsThatOfTheMeanSquaredError) {
  const float a[] = {0, 0.5f, 1, 0.25f}, b[] = {0.1f, 0.5f, 1, 0.25f};
  EXPECT_NEAR(psnr(a, b, 4), 10 * std::log10(4 / 0.01), 1e-5);
  EXPECT_TRUE(std::isinf(psnr(a, a, 4)));
}

TEST(Measure, FindsTheBallWhereTheSimulatorHasIt) {
  const BallsOptions options;
  for (int64_t e = 0; e < 10; ++e) {
    const BallsEpisode episode = make_balls_episode(options, e);
    for (size_t t = 0; t < 64; ++t) {
      const std::vector<float> frame = frame_of(episode, t, 24 * 24 * 3);
      const BallCentre centre = ball_centre(frame.data(), 24, 24, ball_colour(0), kBallsBackground);
      ASSERT_TRUE(centre.found);
      // Within what the dropped faint rim of the ball can shift.
      EXPECT_NEAR(centre.x, episode.state[4 * t], 0.1);
      EXPECT_NEAR(centre.y, episode.state[4 * t + 1], 0.1);
    }
  }
}

TEST(Measure, TellsBallsOfDifferentColourApart) {
  BallsOptions options;
  options.balls = 6;
  options.height = options.width = 40;
  double worst = 0;
  for (int64_t e = 0; e < 10; ++e) {
    const BallsEpisode episode = make_balls_episode(options, e);
    for (size_t t = 0; t < 64; ++t) {
      const std::vector<float> frame = frame_of(episode, t, 40 * 40 * 3);
      for (int ball = 0; ball < 6; ++ball) {
        const BallCentre centre =
            ball_centre(frame.data(), 40, 40, ball_colour(ball), kBallsBackground);
        ASSERT_TRUE(centre.found);
        const float* truth = episode.state.data() + (t * 6 + static_cast<size_t>(ball)) * 4;
        worst = std::max(worst, std::hypot(centre.x - truth[0], centre.y - truth[1]));
      }
    }
  }
  EXPECT_LT(worst, 0.75);  // balls that touch share blended pixels
}

TEST(Measure, FindsNoBallInAnEmptyOrNoisyFrame) {
  std::vector<float> frame(24 * 24 * 3);
  for (size_t i = 0; i < frame.size(); ++i) {
    const float noise = 0.05f * static_cast<float>(i * 7919 % 13) / 13;
    frame[i] = static_cast<float>(kBallsBackground[i % 3]) / 255.0f + noise;
  }
  EXPECT_FALSE(ball_centre(frame.data(), 24, 24, ball_colour(0), kBallsBackground).found);
}

}  // namespace
}  // namespace vitrine
