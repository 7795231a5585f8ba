// Compilation of a model into tapes and edges.
#include "schedule/graph.h"

#include <algorithm>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

bool floating(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16 ||
         dtype == DType::kF64;
}

std::string tape_key(const Block& block,
                     const std::vector<PortType>& inputs,
                     const std::vector<PortType>& parameters) {
  std::string key = block.kind();
  for (const auto* ports : {&inputs, &parameters}) {
    for (const PortType& port : *ports) {
      key += "|" + port.name + port.type.shape.str() + dtype_name(port.type.dtype) +
             (port.requires_grad ? "g" : "");
    }
  }
  return key;
}

}  // namespace

int Graph::edge(const std::string& name) const {
  std::vector<std::string> names;
  for (size_t e = 0; e < edges.size(); ++e) {
    if (edges[e].name == name) return static_cast<int>(e);
    names.push_back(edges[e].name);
  }
  const std::string near = nearest_name(name, names);
  throw ConfigError("nothing in the model is called \"" + name + "\"" +
                    (near.empty() ? "" : "; did you mean \"" + near + "\"?"));
}

Graph compile_graph(const Model& model,
                    const ParameterTable& table,
                    const BatchTypes& batch,
                    const Strategy& strategy) {
  Graph graph;
  graph.model = &model;
  graph.parameters = &table;
  for (const auto& [name, type] : batch) {
    Edge edge;
    edge.name = "batch." + name;
    edge.type = type;
    if (floating(type.dtype)) edge.type.dtype = strategy.compute_dtype;
    graph.edges.push_back(edge);
  }
  std::map<std::string, std::shared_ptr<const Tape>> tapes;
  for (size_t b = 0; b < model.blocks().size(); ++b) {
    const ModelBlock& source = model.blocks()[b];
    GraphBlock block;
    block.name = source.name;
    std::vector<PortType> inputs, parameters;
    for (const auto& [port, from] : source.inputs) {
      int e = -1;
      try {
        e = graph.edge(from.from);
      } catch (const ConfigError& error) {
        throw ConfigError("block " + source.name + ", port " + port + ": " + error.what());
      }
      Edge& edge = graph.edges[static_cast<size_t>(e)];
      const bool grad = edge.requires_grad && !from.detach;
      if (grad && !edge.grad_consumers.empty() &&
          edge.grad_consumers.back() == static_cast<int>(b)) {
        // The tape writes a port's gradient at its first contribution; two ports would write over
        // each other.
        throw ConfigError(
            "block " + source.name + ": two ports take \"" + edge.name +
            "\" with its gradient; connect it once and use the value twice in forward");
      }
      inputs.push_back({port, edge.type, grad});
      block.inputs.push_back(e);
      if (edge.consumers.empty() || edge.consumers.back() != static_cast<int>(b)) {
        edge.consumers.push_back(static_cast<int>(b));
      }
      if (grad) edge.grad_consumers.push_back(static_cast<int>(b));
    }
    ParameterList list;
    source.block->declare(list);
    for (size_t i = 0; i < list.specs().size(); ++i) {
      const ParameterUse use = table.uses[b][i];
      const bool frozen = table.units[static_cast<size_t>(use.unit)].frozen;
      parameters.push_back(
          {list.specs()[i].name, {list.specs()[i].shape, strategy.compute_dtype}, !frozen});
    }
    // Recording is cheap, so a kind() that forgot a number costs sharing, never a wrong tape.
    TapeBuilder builder(source.name, inputs, parameters);
    source.block->forward(builder);
    auto tape = std::make_shared<const Tape>(builder.finish());
    std::shared_ptr<const Tape>& known = tapes[tape_key(*source.block, inputs, parameters)];
    if (known && known->same_operations(*tape)) {
      tape = known;
    } else {
      known = tape;
    }
    block.tape = tape;
    for (const PortType& port : tape->outputs()) {
      block.outputs.push_back(static_cast<int>(graph.edges.size()));
      Edge edge;
      edge.name = source.name + "." + port.name;
      edge.producer = static_cast<int>(b);
      edge.type = port.type;
      edge.requires_grad = port.requires_grad;
      graph.edges.push_back(edge);
    }
    graph.blocks.push_back(std::move(block));
  }
  if (model.losses().empty()) throw ConfigError("the model has no loss");
  for (const LossTerm& loss : model.losses()) {
    Edge& edge = graph.edges[static_cast<size_t>(graph.edge(loss.from))];
    if (edge.type.shape.elements() != 1) {
      throw ShapeError("loss " + loss.from + " must be a single value, got " +
                       edge.type.shape.str());
    }
    if (!edge.requires_grad && table.trainable_elements > 0) {
      throw ConfigError(
          "loss " + loss.from +
          " does not depend on any trainable parameter: every path to it is detached, "
          "frozen or comes from the batch alone");
    }
    edge.loss_weight = loss.weight;
  }
  for (const auto& [name, from] : model.results()) graph.results[name] = graph.edge(from);
  for (size_t b = graph.blocks.size(); b-- > 0;) {
    for (const int e : graph.blocks[b].outputs) {
      const Edge& edge = graph.edges[static_cast<size_t>(e)];
      bool feeds = edge.loss_weight != 0;
      for (const int consumer : edge.consumers) {
        feeds = feeds || graph.blocks[static_cast<size_t>(consumer)].feeds_loss;
      }
      graph.blocks[b].feeds_loss = graph.blocks[b].feeds_loss || feeds;
    }
  }
  return graph;
}

void drop_workspaces(Graph& graph) {
  std::map<const Tape*, std::shared_ptr<const Tape>> replaced;
  for (GraphBlock& block : graph.blocks) {
    std::shared_ptr<const Tape>& without = replaced[block.tape.get()];
    if (!without) without = std::make_shared<const Tape>(block.tape->without_workspaces());
    block.tape = without;
  }
}

}  // namespace vitrine
