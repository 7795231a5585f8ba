// Small robust statistics of integer samples: medians, spreads, and the chance of a count.
#pragma once

#include <cstdint>
#include <vector>

namespace vitrine {

// Of the middle two the lower; 0 of none.
int64_t median(std::vector<int64_t> values);
double median(std::vector<double> values);
// The value below which `share` (0 .. 1) of the samples lie; 0 of none.
int64_t quantile(std::vector<int64_t> values, double share);
// Median of the distances from the median.
int64_t median_deviation(const std::vector<int64_t>& values);
// Chance of at least `hits` hits in `trials` trials of chance `p` each.
double binomial_tail(int64_t trials, int64_t hits, double p);

}  // namespace vitrine
