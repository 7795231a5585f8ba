// Ball physics and rendering. Only +, -, *, / and sqrt are used, so results agree on every machine.
#include "data/balls.h"

#include <algorithm>
#include <cmath>
#include <exception>

#include "core/clock.h"
#include "core/error.h"
#include "core/format.h"
#include "core/json.h"
#include "core/parallel.h"
#include "core/philox.h"
#include "data/frame_cache.h"

namespace vitrine {
namespace {

struct Ball {
  double x, y, vx, vy;
};

void check(const BallsOptions& o) {
  const auto require = [](bool ok, const std::string& what) {
    if (!ok) throw ConfigError("balls: " + what);
  };
  require(o.balls >= 1, "expected at least one ball, got " + std::to_string(o.balls));
  require(o.radius > 0, format("expected a positive radius, got %g", o.radius));
  const double room = static_cast<double>(std::min(o.height, o.width)) - 2 * o.radius;
  require(room > 0,
          format("a ball of radius %g does not fit in %lldx%lld pixels",
                 o.radius,
                 static_cast<long long>(o.height),
                 static_cast<long long>(o.width)));
  require(o.minimum_speed >= 0 && o.minimum_speed <= o.maximum_speed && o.maximum_speed > 0,
          format("expected 0 <= minimum_speed <= maximum_speed, got %g and %g",
                 o.minimum_speed,
                 o.maximum_speed));
  require(std::isfinite(o.maximum_speed) && std::isfinite(o.acceleration) && o.acceleration >= 0,
          "speeds and acceleration must be finite and not negative");
  require(1 <= o.minimum_hold && o.minimum_hold <= o.maximum_hold,
          format("expected 1 <= minimum_hold <= maximum_hold, got %d and %d",
                 o.minimum_hold,
                 o.maximum_hold));
  require(o.episodes >= 1 && o.episode_frames >= 2,
          "expected at least one episode of at least two frames");
}

// Draws of one episode: counter = (episode, index of the draw).
class Draws {
 public:
  Draws(const BallsOptions& options, int64_t episode)
      : philox_(options.seed, stream_of("balls/" + options.split)),
        next_(static_cast<uint64_t>(episode) << 32) {}
  double between(double low, double high) { return low + (high - low) * philox_.uniform(next_++); }
  int below(int bound) {
    return static_cast<int>(philox_.below(static_cast<uint64_t>(bound), next_++));
  }

 private:
  Philox philox_;
  uint64_t next_;
};

std::vector<Ball> place_balls(const BallsOptions& o, Draws& draws) {
  constexpr int kTries = 2000;
  std::vector<Ball> balls;
  for (int tries = 0; static_cast<int>(balls.size()) < o.balls; ++tries) {
    if (tries == kTries) {
      throw ConfigError(
          format("balls: found no room for %d balls of radius %g in %lldx%lld pixels; "
                 "take fewer, smaller balls or larger frames",
                 o.balls,
                 o.radius,
                 static_cast<long long>(o.height),
                 static_cast<long long>(o.width)));
    }
    Ball ball{draws.between(o.radius, static_cast<double>(o.width) - o.radius),
              draws.between(o.radius, static_cast<double>(o.height) - o.radius),
              0,
              0};
    const bool free = std::all_of(balls.begin(), balls.end(), [&](const Ball& other) {
      const double dx = other.x - ball.x, dy = other.y - ball.y;
      return dx * dx + dy * dy > 4 * o.radius * o.radius;
    });
    if (!free) continue;
    // A direction by rejection from the square: no sine, so no dependence on the mathematics
    // library.
    double x = 0, y = 0, square = 0;
    do {
      x = draws.between(-1, 1);
      y = draws.between(-1, 1);
      square = x * x + y * y;
    } while (square > 1 || square < 0.01);
    const double speed = draws.between(o.minimum_speed, o.maximum_speed) / std::sqrt(square);
    ball.vx = x * speed;
    ball.vy = y * speed;
    balls.push_back(ball);
  }
  return balls;
}

void bounce(double& position, double& velocity, double low, double high) {
  if (position < low) {
    position = 2 * low - position;
    velocity = std::fabs(velocity);
  } else if (position > high) {
    position = 2 * high - position;
    velocity = -std::fabs(velocity);
  }
  position = std::clamp(position, low, high);
}

// Equal masses: the velocities along the line of centres change places.
void collide(Ball& a, Ball& b, double radius) {
  const double dx = b.x - a.x, dy = b.y - a.y;
  const double square = dx * dx + dy * dy;
  if (square >= 4 * radius * radius || square == 0) return;
  const double distance = std::sqrt(square), nx = dx / distance, ny = dy / distance;
  const double closing = (a.vx - b.vx) * nx + (a.vy - b.vy) * ny;
  if (closing > 0) {
    a.vx -= closing * nx;
    a.vy -= closing * ny;
    b.vx += closing * nx;
    b.vy += closing * ny;
  }
  const double push = (2 * radius - distance) / 2;
  a.x -= push * nx;
  a.y -= push * ny;
  b.x += push * nx;
  b.y += push * ny;
}

void limit_speed(Ball& ball, double maximum) {
  const double square = ball.vx * ball.vx + ball.vy * ball.vy;
  if (square <= maximum * maximum) return;
  const double scale = maximum / std::sqrt(square);
  ball.vx *= scale;
  ball.vy *= scale;
}

void advance(const BallsOptions& o, std::vector<Ball>& balls, int action) {
  static constexpr double kX[kBallActions] = {0, 1, -1, 0, 0}, kY[kBallActions] = {0, 0, 0, 1, -1};
  balls[0].vx += o.acceleration * kX[action];
  balls[0].vy += o.acceleration * kY[action];
  for (Ball& ball : balls) limit_speed(ball, o.maximum_speed);
  // Small enough that two balls which close at full speed never pass through each other.
  const int substeps = balls.size() == 1 ? 1 : 1 + static_cast<int>(4 * o.maximum_speed / o.radius);
  const double dt = 1.0 / substeps;
  for (int step = 0; step < substeps; ++step) {
    for (Ball& ball : balls) {
      ball.x += ball.vx * dt;
      ball.y += ball.vy * dt;
    }
    for (size_t i = 0; i < balls.size(); ++i) {
      for (size_t j = i + 1; j < balls.size(); ++j) collide(balls[i], balls[j], o.radius);
    }
    for (Ball& ball : balls) {
      bounce(ball.x, ball.vx, o.radius, static_cast<double>(o.width) - o.radius);
      bounce(ball.y, ball.vy, o.radius, static_cast<double>(o.height) - o.radius);
    }
  }
}

}  // namespace

std::array<uint8_t, 3> ball_colour(int ball) {
  // Far apart in hue, so that ball_centre() tells them from each other.
  static constexpr std::array<std::array<uint8_t, 3>, 6> kColours = {{{255, 210, 50},
                                                                      {60, 140, 255},
                                                                      {250, 50, 60},
                                                                      {60, 220, 80},
                                                                      {180, 70, 255},
                                                                      {240, 240, 240}}};
  return kColours[static_cast<size_t>(ball) % kColours.size()];
}

void draw_balls(const BallsOptions& o, const float* state, uint8_t* frame) {
  for (int64_t i = 0; i < o.height * o.width; ++i) {
    std::copy(kBallsBackground.begin(), kBallsBackground.end(), frame + 3 * i);
  }
  const auto radius = static_cast<float>(o.radius);
  const float inner = std::max(radius - 0.5f, 0.0f), outer = radius + 0.5f;
  for (int ball = 0; ball < o.balls; ++ball) {
    const float cx = state[4 * ball], cy = state[4 * ball + 1];
    const std::array<uint8_t, 3> colour = ball_colour(ball);
    const auto first = [&](float centre) {
      return std::max<int64_t>(0, static_cast<int64_t>(std::floor(centre - outer)));
    };
    const auto last = [&](float centre, int64_t size) {
      return std::min<int64_t>(size - 1, static_cast<int64_t>(std::floor(centre + outer)));
    };
    for (int64_t y = first(cy); y <= last(cy, o.height); ++y) {
      for (int64_t x = first(cx); x <= last(cx, o.width); ++x) {
        const float dx = static_cast<float>(x) + 0.5f - cx, dy = static_cast<float>(y) + 0.5f - cy;
        const float square = dx * dx + dy * dy;
        if (square >= outer * outer) continue;
        const float cover =
            square <= inner * inner ? 1.0f : std::min(1.0f, outer - std::sqrt(square));
        uint8_t* const pixel = frame + 3 * (y * o.width + x);
        for (size_t c = 0; c < 3; ++c) {
          const auto below = static_cast<float>(pixel[c]);
          pixel[c] =
              static_cast<uint8_t>(below + cover * (static_cast<float>(colour[c]) - below) + 0.5f);
        }
      }
    }
  }
}

BallsEpisode make_balls_episode(const BallsOptions& o, int64_t episode) {
  check(o);
  Draws draws(o, episode);
  std::vector<Ball> balls = place_balls(o, draws);
  const auto frames = static_cast<size_t>(o.episode_frames);
  const auto frame_bytes = static_cast<size_t>(o.height * o.width * 3);
  BallsEpisode result;
  result.frames.resize(frames * frame_bytes);
  result.actions.resize(frames);
  result.state.resize(frames * balls.size() * 4);
  int action = 0, held = 0;
  for (size_t t = 0; t < frames; ++t) {
    float* const state = result.state.data() + t * balls.size() * 4;
    for (size_t i = 0; i < balls.size(); ++i) {
      state[4 * i] = static_cast<float>(balls[i].x);
      state[4 * i + 1] = static_cast<float>(balls[i].y);
      state[4 * i + 2] = static_cast<float>(balls[i].vx);
      state[4 * i + 3] = static_cast<float>(balls[i].vy);
    }
    draw_balls(o, state, result.frames.data() + t * frame_bytes);
    if (held == 0) {
      action = draws.below(kBallActions);
      held = o.minimum_hold + draws.below(o.maximum_hold - o.minimum_hold + 1);
    }
    --held;
    result.actions[t] = action;
    advance(o, balls, action);
  }
  return result;
}

BallsOptions out_of_distribution(BallsOptions options, int more_balls, double speed_factor) {
  options.balls += more_balls;
  options.minimum_speed *= speed_factor;
  options.maximum_speed *= speed_factor;
  options.split += "/out-of-distribution";
  return options;
}

std::string balls_settings(const BallsOptions& o) {
  Json settings;
  settings["world"] = "balls";
  settings["balls"] = o.balls;
  settings["radius"] = o.radius;
  settings["minimum_speed"] = o.minimum_speed;
  settings["maximum_speed"] = o.maximum_speed;
  settings["acceleration"] = o.acceleration;
  settings["minimum_hold"] = o.minimum_hold;
  settings["maximum_hold"] = o.maximum_hold;
  settings["episodes"] = o.episodes;
  settings["episode_frames"] = o.episode_frames;
  settings["seed"] = o.seed;
  settings["split"] = o.split;
  settings["actions"] = kBallActionNames;
  settings["background"] = kBallsBackground;
  for (int i = 0; i < o.balls; ++i) settings["colours"].push_back(ball_colour(i));
  settings["state"] = "f32 [balls, 4] = x, y, vx, vy in pixels";
  return settings.dump();
}

DataSummary write_balls(const BallsOptions& o, const std::string& dir, bool overwrite) {
  check(o);
  const int64_t begin = now_ns();
  FrameCacheMeta meta;
  meta.source = "balls in a box, generated";
  meta.licence = "CC0-1.0";
  meta.action_count = kBallActions;
  meta.generator = balls_settings(o);
  FrameCacheWriter writer(dir, meta, o.height, o.width, Shape{o.balls, 4}, overwrite);
  constexpr int64_t kGroup = 64;  // episodes in memory at once
  std::vector<BallsEpisode> group;
  for (int64_t first = 0; first < o.episodes; first += kGroup) {
    const int64_t count = std::min(kGroup, o.episodes - first);
    group.resize(static_cast<size_t>(count));
    // A parallel region may not be left by an exception, so that is carried out by hand.
    std::vector<std::exception_ptr> problems(static_cast<size_t>(count));
    parallel_for(count, 4, [&](int64_t from, int64_t to) {
      for (int64_t i = from; i < to; ++i) {
        try {
          group[static_cast<size_t>(i)] = make_balls_episode(o, first + i);
        } catch (...) {
          problems[static_cast<size_t>(i)] = std::current_exception();
        }
      }
    });
    for (const std::exception_ptr& problem : problems) {
      if (problem) std::rethrow_exception(problem);
    }
    for (int64_t i = 0; i < count; ++i) {
      const BallsEpisode& episode = group[static_cast<size_t>(i)];
      writer.append(static_cast<int32_t>(first + i),
                    o.episode_frames,
                    episode.frames.data(),
                    episode.actions.data(),
                    episode.state.data());
    }
  }
  writer.finish();
  DataSummary summary;
  summary.frames = writer.frames();
  summary.episodes = o.episodes;
  summary.bytes = summary.frames * o.height * o.width * 3;
  summary.seconds = static_cast<double>(now_ns() - begin) * 1e-9;
  return summary;
}

}  // namespace vitrine
