// How far a predicted frame is from the truth: PSNR, and where it has the ball.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace vitrine {

// Peak signal-to-noise ratio in dB of `count` values in [0, 1]; infinity when they are equal.
double psnr(const float* a, const float* b, int64_t count);

struct BallCentre {
  double x = 0, y = 0;  // pixels; the centre of pixel (i, j) is at (j + 0.5, i + 0.5)
  double mass = 0;      // covered pixels, about pi r^2 for a sharp ball
  bool found = false;
};

// Centroid of what has the ball's colour over the background in one frame f32 [H, W, 3] in [0, 1].
// A pixel weighs as much as it covers (0 background, 1 ball), less twice what of it is neither;
// weights under `floor` count as background, so that faint noise far away does not pull. `found` is
// false when less than half a pixel in all remains.
BallCentre ball_centre(const float* frame,
                       int64_t height,
                       int64_t width,
                       const std::array<uint8_t, 3>& colour,
                       const std::array<uint8_t, 3>& background,
                       double floor = 0.15);

}  // namespace vitrine
