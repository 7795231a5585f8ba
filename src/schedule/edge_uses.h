// Who reads the values that flow along edges, and the scratch of a rank's tapes: the rules by which
// the engine allocates and the planner counts.
#pragma once

#include <cstdint>
#include <vector>

#include "schedule/action.h"

namespace vitrine {

// Which reads of a block's backward keep its ports alive.
bool backward_keeps_input(const Tape& tape, int port, bool recompute);
bool backward_keeps_output(const Tape& tape, int port, bool recompute);

// Blocks whose forward the schedule runs, in its order.
std::vector<int> forward_blocks(const Schedule& schedule);

// By edge: uses by the forward and, in training, the backward of the blocks in `run`, and one a
// consumer of another stage that it is sent to. A value is let go when they are done.
std::vector<int> edge_readers(const Graph& graph,
                              const std::vector<int>& run,
                              bool recompute,
                              bool training);

// Bytes of the one scratch buffer that the tapes of these blocks replay in.
int64_t scratch_bytes(const Graph& graph, const std::vector<int>& blocks, bool training);

}  // namespace vitrine
