// Memory of one rank over a step, replayed on the engine's own schedule: every buffer that the
// engine enters in its ledger, at the action that makes it and the one that lets it go.
#pragma once

#include <vector>

#include "core/memory_ledger.h"
#include "schedule/action.h"

namespace vitrine {

// An action begins, or has ended.
struct ActionMoment {
  int action = -1;
  bool end = false;
};

// One possible order of a rank's step. Within a lane actions follow each other; between lanes the
// schedule leaves freedom, which moves the peaks of pipelines (of data ranks what lanes hold is
// reserved and released in the compute lane's order):
// prompt: whatever communicates is done before the compute lane goes on;
// late: it begins as soon as it may, and ends only when something waits for it.
// simulate_engine (engine_time.h) gives the order that the costs make.
std::vector<ActionMoment> prompt_order(const Schedule& schedule);
std::vector<ActionMoment> late_order(const Schedule& schedule);

struct EngineMemory {
  MemoryByCategory between_steps{};     // model state and the tapes' scratch
  MemoryByCategory peak{};              // each category at its own highest
  MemoryByCategory at_peak{};           // the split at the moment of the highest sum
  int64_t peak_bytes = 0;               // of the sum
  int peak_action = -1;                 // index in the schedule; -1: nothing adds to between_steps
  std::vector<MemoryByCategory> curve;  // after each moment of the order
};

// What the ledger of this rank shows for one step of training, data loading (staging) left out: the
// loader is the caller's. Bytes as asked for, as the ledger counts; what the system's allocator
// rounds up and oneDNN keeps inside is in neither. `on_host`: reductions hold what they receive
// (Communicator::reduce_scratch).
EngineMemory engine_memory(const Graph& graph,
                           const Strategy& strategy,
                           const Schedule& schedule,
                           const std::vector<ActionMoment>& order,
                           bool on_host = true);

// "backward of body.2, micro-batch 1"
std::string action_words(const Action& action, const Graph& graph);

}  // namespace vitrine
