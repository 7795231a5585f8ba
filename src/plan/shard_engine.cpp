// Tapes of the engine's own blocks.
#include "plan/shard_engine.h"

#include <map>

#include "config/run_config.h"
#include "core/json.h"
#include "models/registry.h"
#include "schedule/graph.h"

namespace vitrine {

ShardModel engine_model(const ModelShape& shape, const ClusterStrategy& strategy) {
  const BuiltModel built = build_model(
      parse_json(shape.engine_section, shape.source),
      {.micro_batch = strategy.micro_batch,
       .fp8 = strategy.precision == Precision::kF8 ? Fp8Linears::kAllKept : Fp8Linears::kOff});
  Strategy plain;
  plain.micro_batch = strategy.micro_batch;
  plain.compute_dtype = strategy.precision == Precision::kF32 ? DType::kF32 : DType::kBF16;
  const ParameterTable table = make_parameter_table(built.model, plain);
  const Graph graph = compile_graph(built.model, table, built.batch, plain);
  ShardModel model;
  std::map<const Tape*, int> known;
  double flops = 0;
  for (size_t b = 0; b < graph.blocks.size(); ++b) {
    const GraphBlock& block = graph.blocks[b];
    if (!block.feeds_loss) continue;
    // Parameters belong to the owner alone: twins share a tape but own nothing.
    int64_t own = 0;
    for (const Unit& unit : table.units) {
      if (unit.block == static_cast<int>(b)) own += unit.elements;
    }
    int kind = -1;
    for (size_t k = 0; k < model.kinds.size(); ++k) {
      if (model.kinds[k].tape == block.tape && model.kinds[k].parameters == own) {
        kind = static_cast<int>(k);
      }
    }
    if (kind < 0) {
      ShardBlock made;
      made.name = block.name;
      made.tape = block.tape;
      made.parameters = own;
      for (const int edge : block.outputs) {
        made.output_bytes += graph.edges[static_cast<size_t>(edge)].type.bytes();
      }
      made.trains = block.tape->needs_backward();
      kind = static_cast<int>(model.kinds.size());
      model.kinds.push_back(std::move(made));
    }
    model.blocks.push_back(kind);
    for (const TapeNode& node : block.tape->nodes()) {
      std::vector<TensorType> in;
      for (const int slot : node.in) {
        in.push_back(slot < 0 ? TensorType{} : block.tape->slots()[static_cast<size_t>(slot)].type);
      }
      const Cost cost = node.op->forward_cost(node.attrs, in);
      // Backward has two products for one of forward, unless forward does their work too.
      const bool all_there = node.attrs.integer("gradient_in_forward", 0) != 0;
      if (cost.matmul) flops += (all_there ? 1 : 3) * cost.flops;
    }
  }
  model.tokens = static_cast<int64_t>(built.model.units_per_sample);
  model.model_flops = flops / static_cast<double>(strategy.micro_batch);
  return model;
}

}  // namespace vitrine
