// Angles in double, so that long sequences keep their phase.
#include "ops/cpu/fast/rotary_table.h"

#include <cmath>
#include <vector>

namespace vitrine::fast {

RotaryTable rotary_table(int64_t length, int64_t half, double base) {
  struct Kept {
    int64_t length = 0, half = 0;
    double base = 0;
    std::vector<float> cosine, sine;
  };
  thread_local Kept kept;
  if (kept.half != half || kept.base != base || kept.length < length) {
    kept.length = length;
    kept.half = half;
    kept.base = base;
    kept.cosine.resize(static_cast<size_t>(length * half));
    kept.sine.resize(static_cast<size_t>(length * half));
    for (int64_t c = 0; c < half; ++c) {
      const double frequency = std::pow(base, -static_cast<double>(c) / static_cast<double>(half));
      for (int64_t p = 0; p < length; ++p) {
        const double angle = static_cast<double>(p) * frequency;
        kept.cosine[static_cast<size_t>(p * half + c)] = static_cast<float>(std::cos(angle));
        kept.sine[static_cast<size_t>(p * half + c)] = static_cast<float>(std::sin(angle));
      }
    }
  }
  return {kept.cosine.data(), kept.sine.data()};
}

}  // namespace vitrine::fast
