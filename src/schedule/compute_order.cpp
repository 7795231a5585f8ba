// Cutting of blocks into pipeline stages, and the order of compute actions in one stage.
#include <algorithm>

#include "core/error.h"
#include "schedule/action.h"
#include "schedule/pipeline_order.h"

namespace vitrine {

std::vector<std::vector<int>> cut_stages(const Graph& graph, int stages) {
  const int count = static_cast<int>(graph.blocks.size());
  if (stages > count) {
    throw ConfigError("pipeline of " + std::to_string(stages) + " stages: the model has only " +
                      std::to_string(count) + " blocks");
  }
  std::vector<double> cost;
  double total = 0;
  for (const GraphBlock& block : graph.blocks) {
    const Cost forward = block.tape->forward_cost();
    cost.push_back(forward.flops + forward.bytes);
    total += cost.back();
  }
  std::vector<std::vector<int>> cut(static_cast<size_t>(stages));
  double done = 0;
  size_t stage = 0;
  for (int b = 0; b < count; ++b) {
    const auto at = static_cast<size_t>(b);
    // Go on to the next stage when this one has its share, or when the rest needs one block each.
    const bool share = done + cost[at] / 2 > total * static_cast<double>(stage + 1) / stages;
    const bool must = count - b <= stages - static_cast<int>(stage) - 1;
    if (!cut[stage].empty() && stage + 1 < cut.size() && (share || must)) ++stage;
    cut[stage].push_back(b);
    done += cost[at];
  }
  return cut;
}

std::vector<ComputeOp> compute_order(const std::vector<int>& blocks,
                                     const Graph& graph,
                                     int stage,
                                     const Strategy& strategy,
                                     bool forward_only) {
  std::vector<ComputeOp> order;
  const auto forward = [&](int micro) {
    for (const int block : blocks) {
      const bool wanted = forward_only || graph.blocks[static_cast<size_t>(block)].feeds_loss;
      if (wanted) order.push_back({false, block, micro});
    }
  };
  const auto backward = [&](int micro) {
    for (size_t i = blocks.size(); i-- > 0;) {
      if (graph.blocks[static_cast<size_t>(blocks[i])].tape->needs_backward()) {
        order.push_back({true, blocks[i], micro});
      }
    }
  };
  const int micros = static_cast<int>(strategy.accumulation);
  if (forward_only) {
    for (int m = 0; m < micros; ++m) forward(m);
    return order;
  }
  const PipelineSize size{strategy.mesh.pipeline, 1, micros};
  const bool gpipe = strategy.pipeline_order == PipelineOrder::kGPipe && size.stages > 1;
  for (const PipelineItem& item :
       gpipe ? gpipe_order(size, stage) : one_f_one_b_order(size, stage)) {
    if (item.work == PipelineWork::kForward) {
      forward(item.micro);
    } else {
      backward(item.micro);
    }
  }
  return order;
}

}  // namespace vitrine
