// Runs a compiled model's forward in fp32 on the reference backend, block by block: for model
// tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "models/registry.h"
#include "schedule/graph.h"

namespace vitrine {

// A model with its table, graph and values; everything lives as long as this.
class TestModel {
 public:
  explicit TestModel(BuiltModel built) : built_(std::move(built)) {
    strategy_.persistence_threshold = 0;
    table_ = make_parameter_table(built_.model, strategy_);
    graph_ = compile_graph(built_.model, table_, built_.batch, strategy_);
    for (const Unit& unit : table_.units) {
      for (const UnitParameter& parameter : unit.parameters) {
        std::vector<float>& values = parameters_[parameter.name];
        values.resize(static_cast<size_t>(parameter.elements));
        initial_values(parameter.init, 1, parameter.name, 0, parameter.elements, values.data());
      }
    }
    for (const Edge& edge : graph_.edges) {
      edges_.emplace_back(static_cast<size_t>(edge.type.bytes()) / 4 + 16);
    }
  }
  TestModel(const TestModel&) = delete;
  TestModel& operator=(const TestModel&) = delete;

  const Graph& graph() const { return graph_; }
  const ParameterTable& table() const { return table_; }
  std::vector<float>& parameter(const std::string& name) { return parameters_.at(name); }
  // Elements of an edge ("batch.frames", "head.loss") or of a result.
  float* values(const std::string& name) { return edges_[index(name)].data(); }
  int32_t* ids(const std::string& name) { return reinterpret_cast<int32_t*>(values(name)); }
  int64_t elements(const std::string& name) const {
    return graph_.edges[index(name)].type.shape.elements();
  }
  Shape shape(const std::string& name) const { return graph_.edges[index(name)].type.shape; }

  void forward() {
    for (size_t b = 0; b < graph_.blocks.size(); ++b) {
      const GraphBlock& block = graph_.blocks[b];
      std::vector<TensorView> inputs, outputs, parameters;
      for (const int edge : block.inputs) inputs.push_back(view(edge));
      for (const int edge : block.outputs) outputs.push_back(view(edge));
      for (const ParameterUse use : table_.uses[b]) {
        const UnitParameter& parameter = table_.of(use);
        parameters.push_back({parameters_.at(parameter.name).data(), parameter.shape, DType::kF32});
      }
      const TapeLayout& layout = block.tape->layout();
      std::vector<double> saved(static_cast<size_t>(layout.saved_bytes) / 8 + 16);
      std::vector<double> scratch(static_cast<size_t>(layout.forward_scratch_bytes) / 8 + 16);
      TapeBindings bindings;
      bindings.inputs = inputs;
      bindings.outputs = outputs;
      bindings.parameters = parameters;
      bindings.saved = saved.data();
      bindings.scratch = scratch.data();
      block.tape->forward(reference_backend(), bindings, nullptr);
    }
  }

 private:
  size_t index(const std::string& name) const {
    const auto result = graph_.results.find(name);
    return static_cast<size_t>(result == graph_.results.end() ? graph_.edge(name) : result->second);
  }
  TensorView view(int edge) {
    const TensorType& type = graph_.edges[static_cast<size_t>(edge)].type;
    return {edges_[static_cast<size_t>(edge)].data(), type.shape, type.dtype};
  }

  BuiltModel built_;
  Strategy strategy_;
  ParameterTable table_;
  Graph graph_;
  std::map<std::string, std::vector<float>> parameters_;
  std::vector<std::vector<float>> edges_;
};

// Every row of every parameter of `model` but those in `without` is covered exactly once, and
// shapes agree.
inline std::string uncovered(const TestModel& model,
                             const NameTable& names,
                             const std::vector<std::string>& without = {}) {
  for (const Unit& unit : model.table().units) {
    for (const UnitParameter& parameter : unit.parameters) {
      if (std::find(without.begin(), without.end(), parameter.name) != without.end()) continue;
      std::vector<int> covered(static_cast<size_t>(parameter.shape[0]));
      int64_t elements = 0;
      for (const ExternalName& name : names) {
        if (name.parameter != parameter.name) continue;
        elements += name.external_shape.elements();
        for (int64_t row = name.first_row; row < name.first_row + name.rows; ++row) {
          ++covered.at(static_cast<size_t>(row));
        }
      }
      for (const int count : covered) {
        if (count != 1) return parameter.name;
      }
      if (elements != parameter.elements) return parameter.name + " (elements)";
    }
  }
  return "";
}

// Element `i` of external tensor `name`: the formula of tools/make_decoder_golden.py.
inline float golden_weight(const std::string& name, int64_t i) {
  int phase = 0;
  for (const char c : name) phase += c;
  const bool norm_weight = name.find("norm") != std::string::npos && !name.ends_with(".bias");
  return static_cast<float>((norm_weight ? 1 : 0) +
                            0.3 * std::sin(0.7 * static_cast<double>(i) + phase % 97));
}

inline void set_golden_weights(TestModel& model, const NameTable& names) {
  for (const ExternalName& name : names) {
    std::vector<float>& values = model.parameter(name.parameter);
    const Shape& shape = name.external_shape;
    const int64_t count = shape.elements(), first = name.first_row * count / name.rows;
    for (int64_t i = 0; i < count; ++i) {
      int64_t at = first + i;
      if (name.layout == ExternalLayout::kConvPatch) {  // [D, C, P, P] -> [D, (y, x, c)]
        const int64_t row = shape[1] * shape[2] * shape[3], area = shape[2] * shape[3];
        at = i / row * row + i % area * shape[1] + i % row / area;
      }
      values.at(static_cast<size_t>(at)) = golden_weight(name.external, i);
    }
  }
}

}  // namespace vitrine
