// Counts of readers and scratch.
#include "schedule/edge_uses.h"

#include <algorithm>

namespace vitrine {

bool backward_keeps_input(const Tape& tape, int port, bool recompute) {
  return tape.needs_backward() && tape.backward_reads_input(port, recompute);
}

bool backward_keeps_output(const Tape& tape, int port, bool recompute) {
  if (!tape.needs_backward()) return false;
  if (recompute) return true;  // a node that is run again may write its port again
  for (size_t s = 0; s < tape.slots().size(); ++s) {
    if (tape.slots()[s].output == port)
      return tape.backward_reads_input(static_cast<int>(s), false);
  }
  return false;
}

std::vector<int> forward_blocks(const Schedule& schedule) {
  std::vector<int> blocks;
  for (const Action& action : schedule.actions) {
    if (action.kind == ActionKind::kForward && action.micro_batch == 0)
      blocks.push_back(action.block);
  }
  return blocks;
}

std::vector<int> edge_readers(const Graph& graph,
                              const std::vector<int>& run,
                              bool recompute,
                              bool training) {
  std::vector<bool> local(graph.blocks.size(), false);
  std::vector<int> count(graph.edges.size(), 0);
  for (const int b : run) {
    local[static_cast<size_t>(b)] = true;
    const GraphBlock& block = graph.blocks[static_cast<size_t>(b)];
    for (size_t port = 0; port < block.inputs.size(); ++port) {
      int& readers = count[static_cast<size_t>(block.inputs[port])];
      ++readers;
      if (training && backward_keeps_input(*block.tape, static_cast<int>(port), recompute))
        ++readers;
    }
    for (size_t port = 0; port < block.outputs.size(); ++port) {
      if (training && backward_keeps_output(*block.tape, static_cast<int>(port), recompute))
        ++count[static_cast<size_t>(block.outputs[port])];
    }
  }
  for (size_t e = 0; e < graph.edges.size(); ++e) {
    const Edge& edge = graph.edges[e];
    if (edge.producer < 0 || !local[static_cast<size_t>(edge.producer)]) continue;
    for (const int consumer : edge.consumers) {
      const auto c = static_cast<size_t>(consumer);
      const bool left_out = training && !graph.blocks[c].feeds_loss;
      // Of another stage: sends are released one by one; one a consumer is the most there can be.
      if (!local[c] && !left_out) ++count[e];
    }
  }
  return count;
}

int64_t scratch_bytes(const Graph& graph, const std::vector<int>& blocks, bool training) {
  int64_t bytes = 64;
  for (const int block : blocks) {
    const TapeLayout& layout = graph.blocks[static_cast<size_t>(block)].tape->layout();
    bytes = std::max(bytes, layout.forward_scratch_bytes);
    if (training) bytes = std::max(bytes, layout.backward_scratch_bytes);
  }
  return bytes;
}

}  // namespace vitrine
