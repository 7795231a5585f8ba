// After a card ran out of memory: which changes of the run would have fitted.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "config/run_config.h"

namespace vitrine {

struct Fitting {
  std::string change;      // "train_micro_batch_size_per_gpu 8 with gradient_accumulation_steps 2"
  int64_t peak_bytes = 0;  // of the fullest rank, by the engine's own arithmetic
};

// Changes that keep the global batch, least costly first, the smallest of each kind that fits into
// `capacity_bytes`: smaller micro-batches, recomputation, the next ZeRO stages, then together.
// Empty when none does. `asked` gets the peak of the run as it is.
std::vector<Fitting> what_fits(const RunConfig& config,
                               int ranks,
                               int64_t capacity_bytes,
                               int64_t* asked = nullptr);

// The same as sentences for an error's end.
std::string what_fits_text(const RunConfig& config, int ranks, int64_t capacity_bytes);

}  // namespace vitrine
