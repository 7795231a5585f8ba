// Medians by selection; the binomial tail by logarithms, which do not underflow.
#include "analysis/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdlib>

#include "core/quantile.h"

namespace vitrine {
int64_t median(std::vector<int64_t> values) { return sample_quantile(values, 0.5); }
double median(std::vector<double> values) { return sample_quantile(values, 0.5); }
int64_t quantile(std::vector<int64_t> values, double share) {
  return sample_quantile(values, share);
}

int64_t median_deviation(const std::vector<int64_t>& values) {
  const int64_t middle = median(values);
  std::vector<int64_t> distances;
  distances.reserve(values.size());
  for (const int64_t value : values) distances.push_back(std::abs(value - middle));
  return median(std::move(distances));
}

double binomial_tail(int64_t trials, int64_t hits, double p) {
  if (hits <= 0 || p >= 1) return 1;
  if (hits > trials || p <= 0) return 0;
  const auto n = static_cast<double>(trials);
  double sum = 0;
  for (int64_t k = hits; k <= trials; ++k) {
    const auto x = static_cast<double>(k);
    sum += std::exp(std::lgamma(n + 1) - std::lgamma(x + 1) - std::lgamma(n - x + 1) +
                    x * std::log(p) + (n - x) * std::log1p(-p));
  }
  return std::min(sum, 1.0);
}

}  // namespace vitrine
