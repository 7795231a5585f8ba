// PSNR and the intensity-weighted centroid of a ball.
#include "data/measure.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace vitrine {

double psnr(const float* a, const float* b, int64_t count) {
  double sum = 0;
  for (int64_t i = 0; i < count; ++i) {
    const double difference = double{a[i]} - double{b[i]};
    sum += difference * difference;
  }
  if (sum == 0) return std::numeric_limits<double>::infinity();
  return -10 * std::log10(sum / static_cast<double>(count));
}

BallCentre ball_centre(const float* frame,
                       int64_t height,
                       int64_t width,
                       const std::array<uint8_t, 3>& colour,
                       const std::array<uint8_t, 3>& background,
                       double floor) {
  double axis[3], length2 = 0;
  for (size_t c = 0; c < 3; ++c) {
    axis[c] = (static_cast<double>(colour[c] - background[c])) / 255;
    length2 += axis[c] * axis[c];
  }
  BallCentre centre;
  double x_sum = 0, y_sum = 0;
  for (int64_t y = 0; y < height; ++y) {
    for (int64_t x = 0; x < width; ++x) {
      const float* const pixel = frame + 3 * (y * width + x);
      double along = 0, square = 0;
      for (size_t c = 0; c < 3; ++c) {
        const double value = double{pixel[c]} - static_cast<double>(background[c]) / 255;
        along += value * axis[c];
        square += value * value;
      }
      const double cover = along / length2;
      const double aside = std::sqrt(std::max(0.0, square / length2 - cover * cover));
      const double weight = std::min(cover, 1.0) - 2 * aside;
      if (weight < floor) continue;
      centre.mass += weight;
      x_sum += weight * (static_cast<double>(x) + 0.5);
      y_sum += weight * (static_cast<double>(y) + 0.5);
    }
  }
  centre.found = centre.mass >= 0.5;
  if (!centre.found) return centre;
  centre.x = x_sum / centre.mass;
  centre.y = y_sum / centre.mass;
  return centre;
}

}  // namespace vitrine
