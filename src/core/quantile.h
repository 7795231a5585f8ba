// Quantiles of samples, the one place for all that report them.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <vector>

namespace vitrine {

// A sample itself: the one below which `share` (0 .. 1) of the others lie, of two the lower; T{} of
// none. Reorders `values`.
template <typename T>
T sample_quantile(std::vector<T>& values, double share) {
  if (values.empty()) return T{};
  const auto last = static_cast<double>(values.size() - 1);
  const auto at = static_cast<std::ptrdiff_t>(std::floor(std::clamp(share, 0.0, 1.0) * last));
  std::nth_element(values.begin(), values.begin() + at, values.end());
  return values[static_cast<size_t>(at)];
}

// On the line between the two samples around it (numpy's default); 0 of none.
inline double quantile_between(std::vector<double> values, double share) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const double at = std::clamp(share, 0.0, 1.0) * static_cast<double>(values.size() - 1);
  const auto low = static_cast<size_t>(at);
  const size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (at - static_cast<double>(low)) * (values[high] - values[low]);
}

}  // namespace vitrine
