// Learning-rate schedules.
#include <algorithm>
#include <cmath>

#include "optim/optim.h"

namespace vitrine {

double LearningRateSchedule::at(double lr, int64_t step, double progress) const {
  if (step < warmup_steps)
    return lr * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  double t = progress;
  if (total_steps > 0) {
    const int64_t decay_steps = std::max<int64_t>(1, total_steps - warmup_steps);
    t = static_cast<double>(step - warmup_steps) / static_cast<double>(decay_steps);
  }
  t = std::clamp(t, 0.0, 1.0);
  switch (shape) {
    case Shape::kConstant:
      return lr;
    case Shape::kLinear:
      return lr * (1 - (1 - final_ratio) * t);
    case Shape::kCosine:
      return lr *
             (final_ratio + (1 - final_ratio) * 0.5 * (1 + std::cos(3.14159265358979323846 * t)));
  }
  return lr;
}

}  // namespace vitrine
