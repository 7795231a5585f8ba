// What a block of an allocator's history was for, inferred from who asked for it, in which phase of
// a step, and how long it lived. The allocator itself does not say.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/memory_ledger.h"
#include "timeline/allocator_snapshot.h"

namespace vitrine {

enum class StepPhase : uint8_t { kUnknown, kForward, kBackward, kOptimizer, kData };

struct Allocation {
  size_t begin = 0;  // index of its event in the history
  size_t end = 0;    // of the event that requests its free; history size = never freed
  int64_t bytes = 0;
  int32_t stack = -1;
  int8_t category = -1;  // MemoryCategory, -1 = not known
};

struct AllocationHistory {
  std::vector<Allocation> allocations;  // in order of begin
  std::vector<StepPhase> phases;        // by event; kUnknown before the first known one
  bool has_backward = false, has_optimizer = false;
};

// The first rule that fits:
// - frames or annotations of an all-gather: kGathered
// - of a reduction: kGradients when it outlives the backward pass, else kCommunication
// - in the optimizer's step: kOptimizer when it outlives the step, else kWorkspace
// - recomputed in backward (torch.utils.checkpoint): kActivations
// - in backward: kGradients when it outlives the backward pass, else kWorkspace
// - in forward: kActivations when it outlives the forward pass and is freed later or the history
//   ends before the next optimizer step; kWorkspace when it does not outlive it
// - by a module's construction or conversion: kParameters
// - while data are loaded: kStaging
// - still there after an optimizer's step, from before any phase: kParameters
// Phases come from annotations (Optimizer.step#..., names with "forward" or "backward"), else from
// frames: torch/optim, the autograd engine or none at all (its threads run no Python), a module's
// forward.
AllocationHistory categorise(const AllocatorSnapshot& snapshot, size_t device);

}  // namespace vitrine
