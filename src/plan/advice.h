// What limits a predicted step, and which small changes would help: each of them really predicted.
#pragma once

#include <string>
#include <vector>

#include "plan/predict.h"

namespace vitrine {

// Parts of the step that add up to it, largest first: "matrix products", "pipeline bubble", ...
struct StepPart {
  std::string name;
  double ns = 0;
};
std::vector<StepPart> step_parts(const Prediction& prediction);

// One sentence: the largest cost beyond products that run at the card's peak, or what does not fit.
std::string limit_sentence(const Planner& planner,
                           const ClusterStrategy& strategy,
                           const Prediction& prediction);

struct Change {
  std::string what;  // "full recomputation", "micro-batch 2"
  ClusterStrategy strategy;
  Prediction prediction;
  double speed = 0;         // tokens/s after / before
  double memory_bytes = 0;  // of the fullest card, after - before
};

// Neighbours of the strategy (one knob turned, batch and sequence kept) that fit and are faster by
// at least 0.5 % - or, where the strategy does not fit, that fit at all - fastest first. Where none
// fits, those that come nearest, smallest first.
std::vector<Change> nearest_changes(Planner& planner,
                                    const ClusterStrategy& strategy,
                                    const Prediction& prediction);

}  // namespace vitrine
