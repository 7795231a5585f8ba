// train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x data ranks.
#pragma once

#include <cstdint>
#include <optional>

namespace vitrine {

struct BatchSizes {
  std::optional<int64_t> train_batch_size, micro_batch, accumulation;
};

struct Batch3 {
  int64_t train_batch_size = 1, micro_batch = 1, accumulation = 1;
};

// Fills in what is missing, as DeepSpeed does; but sizes that do not divide are an error in every
// case, with the nearest ones that do. Throws ConfigError when neither of the first two is given,
// when one is below 1, and when the product is wrong.
Batch3 solve_batch(const BatchSizes& given, int64_t data_ranks);

}  // namespace vitrine
