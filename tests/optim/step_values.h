// Values for tests of the optimizer: normal numbers over many powers of two.
#pragma once

#include <cmath>
#include <vector>

#include "core/philox.h"

namespace vitrine::test {

inline std::vector<float> spread_values(int64_t count, uint64_t seed, double scale = 1) {
  const Philox random(seed, stream_of("optim tests"));
  std::vector<float> values(static_cast<size_t>(count));
  for (size_t i = 0; i < values.size(); ++i) {
    const int power = static_cast<int>(i * 7 % 31) - 20;
    values[i] = static_cast<float>(std::ldexp(scale * random.normal(i), power));
  }
  return values;
}

}  // namespace vitrine::test
