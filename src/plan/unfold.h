// The predicted step unfolded: every block of every micro-batch, every collective and every message
// an event on a lane of its stage. The oracle of the folded prediction, and the predicted timeline.
#pragma once

#include <vector>

#include "plan/predict.h"
#include "timeline/timeline.h"

namespace vitrine {

enum class StepLane : uint8_t { kCompute, kData, kSend };
enum class StepWork : uint8_t {
  kForward,
  kBackward,
  kWeight,
  kGather,   // of ZeRO-3's parameters
  kReduce,   // of gradients
  kSlow,     // what the last backward loses beside the reduction
  kUpdate,   // optimizer
  kOffload,  // copies to the host, and its optimizer
  kPublish,  // new weights
  kSend,     // activations, or their gradients, to another stage
};

struct StepEvent {
  int stage = 0;
  StepLane lane{};
  StepWork work{};
  int block = -1, micro = -1;  // -1: of the step
  int peer = -1;               // stage that a message goes to
  bool forward = true;         // of gathers and messages
  double begin_ns = 0, end_ns = 0;
};

struct UnfoldedStep {
  double step_ns = 0;
  // By stage: its step's begin (0 where stages end together), its last forward, backward or weight
  // gradient.
  std::vector<double> begin_ns, work_end_ns;
  std::vector<StepEvent> events;  // by stage, then lane, then time
};

// Runs the pieces of one step as events, lane by lane in order, each when what it reads is there.
// Where nothing of ZeRO-3's communication sticks out between passes it ends when the folded
// prediction says, to 0.1 %. Throws ConfigError where the events would be over 20 million.
UnfoldedStep unfold_step(const ClusterStrategy& strategy, const StepPieces& pieces);

// `steps` equal steps as one timeline a pipeline stage: the first rank of each. Lanes: "compute",
// "tensor", "context", "expert" (what of their communication sticks out), "data", "pipeline",
// "host"; memory by category at each stage's peak.
std::vector<RankTimeline> predicted_timelines(Planner& planner,
                                              const ClusterStrategy& strategy,
                                              int steps = 3);

}  // namespace vitrine
