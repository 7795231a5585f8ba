// The replay of a planned job.
#include "plan/engine_stage_memory.h"

#include <algorithm>
#include <map>

#include "comm/peer_window.h"
#include "core/format.h"
#include "core/json.h"
#include "models/registry.h"
#include "plan/engine_memory.h"
#include "plan/run_strategy.h"
#include "schedule/fp8_linears.h"

namespace vitrine {
bool engine_runs(const ModelShape& model, const ClusterStrategy& s) {
  const bool order = s.pipeline == PipelineKind::kGPipe || s.pipeline == PipelineKind::k1F1B;
  const bool here = s.optimizer_tier == Tier::kDevice && s.gradient_tier == Tier::kDevice &&
                    s.parameter_tier == Tier::kDevice && s.activation_tier == Tier::kDevice;
  return !model.engine_section.empty() && s.mesh.tensor == 1 && s.mesh.context == 1 &&
         s.expert == 1 && s.shard_group == 0 && order && here &&
         s.recompute != Recompute::kSelective && s.precision != Precision::kF4;
}

namespace {

// Windows for peers' terms, one a lane that reduces, where the data ranks share a host
// (LaneCommunicators::share).
int64_t windows_bytes(const Graph& graph,
                      const Strategy& strategy,
                      const Schedule& schedule,
                      const Cluster& cluster) {
  const auto ranks = static_cast<size_t>(strategy.mesh.data);
  if (ranks < 2 || place_group(cluster, strategy.mesh.data, 1).nodes() > 1) return 0;
  std::map<LaneId, int64_t> most;  // elements of one reduction
  for (const Action& action : schedule.actions) {
    if (action.kind != ActionKind::kReduce) continue;
    int64_t elements = 0;
    for (const int u : action.units)
      elements += graph.parameters->units[static_cast<size_t>(u)].elements;
    int64_t& largest = most[action.lane];
    largest = std::max(largest, elements);
  }
  int64_t bytes = 0;
  for (const auto& [lane, elements] : most) {
    const size_t reduced = static_cast<size_t>(elements) * dtype_bytes(strategy.gradient_dtype);
    bytes += static_cast<int64_t>(peer_window_bytes(reduced, ranks));
  }
  return bytes;
}

}  // namespace

std::vector<StageMemory> engine_stage_memory(const ModelShape& model,
                                             const ClusterStrategy& s,
                                             const Cluster& cluster) {
  const Strategy strategy = engine_strategy(s);
  BuildOptions build;
  build.micro_batch = s.micro_batch;
  build.fp8 = fp8_linears(s.precision == Precision::kF8, strategy);
  const BuiltModel built = build_model(parse_json(model.engine_section, model.source), build);
  const ParameterTable table = make_parameter_table(built.model, strategy);
  Graph graph = compile_graph(built.model, table, built.batch, strategy);
  // Kernels take their scratch themselves, one piece a stream, and it stays.
  int64_t scratch = 0;
  for (const GraphBlock& block : graph.blocks) {
    for (const TapeNode& node : block.tape->nodes()) {
      scratch = std::max({scratch, node.forward_workspace, node.backward_workspace});
    }
  }
  drop_workspaces(graph);
  std::vector<StageMemory> stages;
  for (int stage = 0; stage < s.mesh.pipeline; ++stage) {
    // The first rank of a stage holds the largest pieces.
    const Schedule schedule = build_schedule(graph, strategy, stage * s.mesh.data);
    const EngineMemory replayed =
        engine_memory(graph, strategy, schedule, prompt_order(schedule), false);
    StageMemory memory;
    memory.bytes = replayed.at_peak;
    memory.bytes[static_cast<size_t>(MemoryCategory::kCommunication)] +=
        windows_bytes(graph, strategy, schedule, cluster);
    memory.context_bytes = cluster.context_bytes + static_cast<double>(scratch);
    memory.peak_moment =
        replayed.peak_action < 0
            ? "between steps"
            : action_words(schedule.actions[static_cast<size_t>(replayed.peak_action)], graph);
    for (const Unit& unit : table.units) {
      for (const int block : schedule.blocks) {
        if (unit.block == block) memory.parameters += unit.elements;
      }
    }
    stages.push_back(std::move(memory));
  }
  return stages;
}

}  // namespace vitrine
