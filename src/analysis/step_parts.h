// The parts of a step that may make it longer than another: one list for stragglers and outliers.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "analysis/rank_facts.h"

namespace vitrine {

struct StepPart {
  const char* cause;  // "compute", "host", "input", "copy", "allocator", "collective"
  const char* words;  // for evidence: "compute", "idle because of the host", ...
  int64_t ns = 0;
};

// Always the same parts in the same order. Device times are those of the work launched in the step;
// idleness by cause is taken from its window on the host.
std::vector<StepPart> step_parts(const StepFacts& step);

// Of every part the median over the steps; of no step: nothing.
std::vector<StepPart> median_parts(const std::vector<const StepFacts*>& steps);

}  // namespace vitrine
