// A model compiled for one micro-batch: every block's tape, and the edges that join them.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "nn/model.h"
#include "schedule/parameters.h"

namespace vitrine {

// A value that leaves a block (or comes with the batch) and the blocks that read it.
struct Edge {
  std::string name;   // "body.3.residual", "batch.tokens"
  int producer = -1;  // block, -1 = the batch
  TensorType type;
  bool requires_grad = false;
  std::vector<int> consumers;       // blocks, ascending
  std::vector<int> grad_consumers;  // those that send a gradient back
  double loss_weight = 0;           // not 0: a loss term
};

struct GraphBlock {
  std::string name;
  std::shared_ptr<const Tape> tape;  // shared by blocks of one kind and shape
  std::vector<int> inputs;           // edges, one a port
  std::vector<int> outputs;          // edges, one a port
  bool feeds_loss = false;  // training leaves out blocks that do not (e.g. ones that draw pictures)
};

struct Graph {
  const Model* model = nullptr;
  const ParameterTable* parameters = nullptr;
  std::vector<Edge> edges;
  std::vector<GraphBlock> blocks;
  std::map<std::string, int> results;       // name -> edge
  int edge(const std::string& name) const;  // throws ConfigError
};

// Floating batch tensors become `strategy.compute_dtype`. Throws ConfigError for ports that name
// nothing and for a block that takes one value with gradient through two ports; ShapeError from the
// operations. `model` and `table` must outlive the graph.
Graph compile_graph(const Model& model,
                    const ParameterTable& table,
                    const BatchTypes& batch,
                    const Strategy& strategy);

// For backends that bring their own scratch: tapes lay out none for operations. Blocks that shared
// a tape share its replacement.
void drop_workspaces(Graph& graph);

}  // namespace vitrine
