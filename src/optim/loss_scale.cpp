// Dynamic loss scaling.
#include <algorithm>

#include "core/error.h"
#include "core/format.h"
#include "optim/optim.h"

namespace vitrine {

bool LossScaler::update(bool overflow) {
  if (!overflow) {
    ++good_steps;
    if (consecutive_hysteresis) hysteresis_left = hysteresis;
    if (dynamic && good_steps >= window) {
      scale *= 2;
      good_steps = 0;
      hysteresis_left = hysteresis;
    }
    return true;
  }
  ++skipped_steps;
  good_steps = 0;
  if (!dynamic) return false;
  if (hysteresis_left > 1) {
    --hysteresis_left;
    return false;
  }
  if (scale <= min_scale) {
    throw NumericError(
        format("gradients overflow at the smallest loss scale (%g) after %lld skipped "
               "steps: lower the learning rate, clip gradients, or train in bf16 or fp32",
               min_scale,
               static_cast<long long>(skipped_steps)));
  }
  scale = std::max(min_scale, scale / 2);
  return false;
}

}  // namespace vitrine
