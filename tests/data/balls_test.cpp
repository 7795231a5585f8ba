// The balls' physics obeys its laws, its episodes are pure functions, and its splits share nothing.
#include "data/balls.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "data/frame_cache.h"
#include "data/scratch.h"

namespace vitrine {
namespace {

double energy(const float* state, int balls) {
  double sum = 0;
  for (int i = 0; i < balls; ++i) {
    sum +=
        double{state[4 * i + 2]} * state[4 * i + 2] + double{state[4 * i + 3]} * state[4 * i + 3];
  }
  return sum / 2;
}

TEST(Balls, AnEpisodeIsAFunctionOfSeedAndIndexAlone) {
  BallsOptions options;
  options.balls = 2;
  options.seed = 5;
  const BallsEpisode a = make_balls_episode(options, 3);
  options.episodes = 1000;  // how many others there are does not matter
  const BallsEpisode b = make_balls_episode(options, 3);
  EXPECT_EQ(a.frames, b.frames);
  EXPECT_EQ(a.actions, b.actions);
  EXPECT_EQ(a.state, b.state);
  EXPECT_NE(a.state, make_balls_episode(options, 4).state);
  options.seed = 6;
  EXPECT_NE(a.state, make_balls_episode(options, 3).state);
  options.seed = 5;
  options.split = "held-out";
  EXPECT_NE(a.state, make_balls_episode(options, 3).state);
}

TEST(Balls, CollisionsKeepEnergyWhenNothingDrives) {
  BallsOptions options;
  options.height = options.width = 32;
  options.balls = 4;
  options.acceleration = 0;
  options.maximum_speed = 8;  // out of reach, so that no speed is cut
  options.minimum_speed = 1;
  options.episode_frames = 400;
  int used = 0;
  for (int64_t episode = 0; episode < 40; ++episode) {
    const BallsEpisode e = make_balls_episode(options, episode);
    const double first = energy(e.state.data(), 4);
    // No ball can beat the limit when the energy of all four in one stays below it.
    if (std::sqrt(2 * first) > options.maximum_speed) continue;
    ++used;
    for (int64_t t = 0; t < options.episode_frames; ++t) {
      ASSERT_NEAR(energy(e.state.data() + t * 16, 4), first, 1e-5 * first) << t;
    }
  }
  EXPECT_GT(used, 3);
}

TEST(Balls, StayInTheBoxApartAndBelowTheSpeedLimit) {
  BallsOptions options;
  options.balls = 3;
  options.height = 32;
  options.width = 40;
  options.episode_frames = 300;
  for (int64_t episode = 0; episode < 10; ++episode) {
    const BallsEpisode e = make_balls_episode(options, episode);
    for (int64_t t = 0; t < options.episode_frames; ++t) {
      const float* s = e.state.data() + t * 12;
      for (int i = 0; i < 3; ++i) {
        ASSERT_GE(s[4 * i], 3 - 1e-4);
        ASSERT_LE(s[4 * i], 37 + 1e-4);
        ASSERT_GE(s[4 * i + 1], 3 - 1e-4);
        ASSERT_LE(s[4 * i + 1], 29 + 1e-4);
        ASSERT_LT(std::hypot(s[4 * i + 2], s[4 * i + 3]), 1.6 * std::sqrt(2.0) * 1.5);
        for (int j = 0; j < i; ++j) {
          ASSERT_GT(std::hypot(s[4 * i] - s[4 * j], s[4 * i + 1] - s[4 * j + 1]), 4.5) << t;
        }
      }
    }
  }
}

TEST(Balls, TheActionOfAFrameDrivesTheNextOne) {
  BallsOptions options;
  options.maximum_speed = 6;
  options.acceleration = 0.05;  // too little in twelve frames to reach the limit from below 5
  options.minimum_speed = 0.5;
  options.height = options.width = 300;
  options.radius = 2;
  options.episode_frames = 12;
  const float push_x[] = {0, 1, -1, 0, 0}, push_y[] = {0, 0, 0, 1, -1};
  int moved = 0;
  for (int64_t episode = 0; episode < 20; ++episode) {
    const BallsEpisode e = make_balls_episode(options, episode);
    const bool fast = std::hypot(e.state[2], e.state[3]) > 5;
    const bool near_wall = std::any_of(
        e.state.begin(), e.state.begin() + 2, [](float at) { return at < 80 || at > 220; });
    if (fast || near_wall) continue;
    for (size_t t = 0; t + 1 < 12; ++t) {
      const float *now = e.state.data() + 4 * t, *next = now + 4;
      const auto action = static_cast<size_t>(e.actions[t]);
      EXPECT_NEAR(next[2] - now[2], 0.05 * push_x[action], 1e-5);
      EXPECT_NEAR(next[3] - now[3], 0.05 * push_y[action], 1e-5);
      EXPECT_NEAR(next[0] - now[0], next[2], 1e-2);
      moved += action != 0;
    }
  }
  EXPECT_GT(moved, 5);
}

TEST(Balls, ActionsAreHeldAsLongAsAsked) {
  BallsOptions options;
  options.minimum_hold = options.maximum_hold = 5;
  const BallsEpisode e = make_balls_episode(options, 0);
  for (size_t t = 0; t < e.actions.size(); ++t) EXPECT_EQ(e.actions[t], e.actions[t / 5 * 5]);
  std::vector<int32_t> seen = e.actions;
  std::sort(seen.begin(), seen.end());
  EXPECT_GE(std::unique(seen.begin(), seen.end()) - seen.begin(), 3);
}

TEST(Balls, MotionIsVisibleByDefault) {
  // What "the last frame again" misses by, in pixels, at horizons 1, 4 and 8.
  const BallsOptions options;
  double error[9] = {};
  int64_t count[9] = {};
  for (int64_t episode = 0; episode < 100; ++episode) {
    const BallsEpisode e = make_balls_episode(options, episode);
    for (const int h : {1, 4, 8}) {
      for (size_t t = 0; t + static_cast<size_t>(h) < 64; ++t) {
        const float *a = e.state.data() + 4 * t, *b = a + 4 * h;
        error[h] += std::hypot(b[0] - a[0], b[1] - a[1]);
        ++count[h];
      }
    }
  }
  const double one = error[1] / double(count[1]), four = error[4] / double(count[4]),
               eight = error[8] / double(count[8]);
  EXPECT_NEAR(one, 1.3, 0.2) << one;
  EXPECT_NEAR(four, 4.4, 0.5) << four;
  EXPECT_NEAR(eight, 7.2, 0.7) << eight;
}

TEST(Balls, DrawsADiscOfTheRightAreaAroundItsCentre) {
  BallsOptions options;
  std::vector<uint8_t> frame(24 * 24 * 3);
  for (const float offset : {0.0f, 0.25f, 0.5f, 0.8f}) {
    const float state[4] = {10 + offset, 12.5f - offset, 0, 0};
    draw_balls(options, state, frame.data());
    double mass = 0, x = 0, y = 0;
    for (int i = 0; i < 24 * 24; ++i) {
      const double cover = (frame[size_t(3 * i)] - 12) / (255.0 - 12);
      mass += cover;
      x += cover * (i % 24 + 0.5);
      y += cover * (i / 24 + 0.5);
    }
    EXPECT_NEAR(mass, 3.14159265 * 9, 0.7);
    EXPECT_NEAR(x / mass, state[0], 0.03);
    EXPECT_NEAR(y / mass, state[1], 0.03);
  }
}

TEST(Balls, TheCacheHoldsTheEpisodes) {
  ScratchFolder folder;
  BallsOptions options;
  options.episodes = 70;  // more than are made at once
  options.episode_frames = 10;
  const DataSummary summary = write_balls(options, folder / "c");
  EXPECT_EQ(summary.frames, 700);
  EXPECT_EQ(summary.bytes, 700 * 24 * 24 * 3);
  const FrameCache cache = FrameCache::open(folder / "c");
  cache.verify();
  ASSERT_EQ(cache.episodes().size(), 70u);
  const BallsEpisode e = make_balls_episode(options, 68);
  const int64_t begin = cache.episodes()[68].begin;
  EXPECT_TRUE(std::equal(e.frames.begin(), e.frames.end(), cache.frame(begin)));
  EXPECT_TRUE(std::equal(e.actions.begin(), e.actions.end(), cache.discrete_action(begin)));
  EXPECT_TRUE(std::equal(e.state.begin(), e.state.end(), cache.state(begin)));
}

TEST(Balls, AHarderWorldHasMoreAndFasterBalls) {
  const BallsOptions base;
  const BallsOptions harder = out_of_distribution(base);
  EXPECT_EQ(harder.balls, 3);
  EXPECT_GT(harder.maximum_speed, base.maximum_speed);
  EXPECT_NE(harder.split, base.split);
  EXPECT_EQ(make_balls_episode(harder, 0).state.size(), 64u * 3 * 4);
}

TEST(Balls, RefusesWorldsThatCannotBe) {
  const auto refused = [](auto change) {
    BallsOptions options;
    change(options);
    ScratchFolder folder;
    return message_of<ConfigError>([&] { write_balls(options, folder / "c"); });
  };
  EXPECT_CONTAINS(refused([](auto& o) { o.balls = 0; }), "at least one ball");
  EXPECT_CONTAINS(refused([](auto& o) { o.balls = 40; }), "found no room for 40 balls");
  EXPECT_CONTAINS(refused([](auto& o) { o.radius = 12; }), "does not fit");
  EXPECT_CONTAINS(refused([](auto& o) { o.minimum_speed = 3; }), "minimum_speed <= maximum_speed");
  EXPECT_CONTAINS(refused([](auto& o) { o.minimum_hold = 0; }), "minimum_hold");
  EXPECT_CONTAINS(refused([](auto& o) { o.episode_frames = 1; }), "two frames");
}

}  // namespace
}  // namespace vitrine
