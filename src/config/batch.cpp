// The batch triple.
#include "config/batch.h"

#include <string>
#include <vector>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

constexpr char kTotal[] = "train_batch_size", kMicro[] = "train_micro_batch_size_per_gpu",
               kAccumulation[] = "gradient_accumulation_steps";

std::string number(int64_t value) { return std::to_string(value); }

void check_positive(const char* key, const std::optional<int64_t>& value) {
  if (value && *value < 1) {
    throw ConfigError(std::string(key) + ": has to be at least 1, got " + number(*value));
  }
}

// Multiples of `unit` on both sides of `total`.
std::string nearest_multiples(int64_t total, int64_t unit) {
  const int64_t below = total / unit * unit;
  return below > 0 ? number(below) + " or " + number(below + unit) : number(below + unit);
}

// Numbers of data ranks up to twice `data_ranks` at which `total` divides into parts of `unit`.
std::string ranks_that_divide(int64_t total, int64_t unit, int64_t data_ranks) {
  std::vector<std::string> ranks;
  for (int64_t n = 1; n <= 2 * data_ranks; ++n) {
    if (total % (unit * n) == 0) ranks.push_back(number(n));
  }
  return ranks.empty() ? "" : "; it divides on " + join(ranks, ", ") + " data ranks";
}

[[noreturn]] void does_not_divide(int64_t total,
                                  const std::string& by,
                                  int64_t unit,
                                  int64_t data_ranks) {
  throw ConfigError(std::string(kTotal) + " " + number(total) + " is not a multiple of " + by +
                    " = " + number(unit * data_ranks) +
                    ". The nearest that are: " + nearest_multiples(total, unit * data_ranks) +
                    ranks_that_divide(total, unit, data_ranks));
}

}  // namespace

Batch3 solve_batch(const BatchSizes& given, int64_t data_ranks) {
  const auto& [total, micro, accumulation] = given;
  check_positive(kTotal, total);
  check_positive(kMicro, micro);
  check_positive(kAccumulation, accumulation);
  const std::string ranks = number(data_ranks) + " data ranks";
  if (!total && !micro) {
    throw ConfigError(std::string("give ") + kTotal + " or " + kMicro + " (or both)");
  }
  if (!total) {
    const int64_t steps = accumulation.value_or(1);
    return {*micro * steps * data_ranks, *micro, steps};
  }
  if (micro && accumulation) {
    const int64_t product = *micro * *accumulation * data_ranks;
    if (product == *total) return {*total, *micro, *accumulation};
    std::string message = std::string(kTotal) + " " + number(*total) + " is not " + kMicro + " " +
                          number(*micro) + " x " + kAccumulation + " " + number(*accumulation) +
                          " x " + ranks + " = " + number(product) + ". Set " + kTotal + " to " +
                          number(product);
    const int64_t unit = *micro * data_ranks;
    if (*total % unit == 0)
      message += std::string(" or ") + kAccumulation + " to " + number(*total / unit);
    throw ConfigError(message + ", or leave one of the three out");
  }
  if (micro) {
    if (*total % (*micro * data_ranks) != 0) {
      does_not_divide(
          *total, std::string(kMicro) + " " + number(*micro) + " x " + ranks, *micro, data_ranks);
    }
    return {*total, *micro, *total / *micro / data_ranks};
  }
  const int64_t steps = accumulation.value_or(1);
  if (*total % (steps * data_ranks) != 0) {
    does_not_divide(
        *total,
        accumulation ? std::string(kAccumulation) + " " + number(steps) + " x " + ranks : ranks,
        steps,
        data_ranks);
  }
  return {*total, *total / steps / data_ranks, steps};
}

}  // namespace vitrine
