// The replay of a planned job.
#include "plan/engine_stage_memory.h"

#include <algorithm>

#include "core/format.h"
#include "core/json.h"
#include "models/registry.h"
#include "plan/engine_memory.h"

namespace vitrine {
namespace {

Strategy engine_strategy(const ClusterStrategy& s) {
  Strategy out;
  out.mesh.data = s.mesh.data;
  out.mesh.pipeline = s.mesh.pipeline;
  out.shard = Sharding::stage(s.zero_stage);
  out.pipeline_order =
      s.pipeline == PipelineKind::kGPipe ? PipelineOrder::kGPipe : PipelineOrder::k1F1B;
  out.recompute = s.recompute == Recompute::kFull;
  out.micro_batch = s.micro_batch;
  out.accumulation = s.accumulation();
  out.compute_dtype = s.precision == Precision::kF32   ? DType::kF32
                      : s.precision == Precision::kF16 ? DType::kF16
                                                       : DType::kBF16;
  out.gradient_dtype = s.gradient_bytes == 2 ? out.compute_dtype : DType::kF32;
  if (s.master_bytes == 0 && out.mixed()) {
    out.master_dtype = DType::kBF16;
    if (s.moment_bytes == 4) out.moment_dtype = DType::kBF16;
  }
  out.reduce_bucket = s.reduce_bucket;
  out.gather_bucket = s.gather_bucket;
  out.prefetch_elements = s.prefetch_elements;
  out.max_live_elements = std::max(out.max_live_elements, 8 * s.prefetch_elements);
  out.overlap = s.overlap_gather || s.overlap_reduce;
  return out;
}

}  // namespace

bool engine_runs(const ModelShape& model, const ClusterStrategy& s) {
  const bool order = s.pipeline == PipelineKind::kGPipe || s.pipeline == PipelineKind::k1F1B;
  const bool here = s.optimizer_tier == Tier::kDevice && s.gradient_tier == Tier::kDevice &&
                    s.parameter_tier == Tier::kDevice && s.activation_tier == Tier::kDevice;
  return !model.engine_section.empty() && s.mesh.tensor == 1 && s.mesh.context == 1 &&
         s.expert == 1 && s.shard_group == 0 && order && here &&
         s.recompute != Recompute::kSelective && s.precision != Precision::kF8 &&
         s.precision != Precision::kF4;
}

std::vector<StageMemory> engine_stage_memory(const ModelShape& model,
                                             const ClusterStrategy& s,
                                             const Cluster& cluster) {
  const Strategy strategy = engine_strategy(s);
  BuildOptions build;
  build.micro_batch = s.micro_batch;
  const BuiltModel built = build_model(parse_json(model.engine_section, model.source), build);
  const ParameterTable table = make_parameter_table(built.model, strategy);
  const Graph graph = compile_graph(built.model, table, built.batch, strategy);
  std::vector<StageMemory> stages;
  for (int stage = 0; stage < s.mesh.pipeline; ++stage) {
    // The first rank of a stage holds the largest pieces.
    const Schedule schedule = build_schedule(graph, strategy, stage * s.mesh.data);
    const EngineMemory replayed = engine_memory(graph, strategy, schedule, prompt_order(schedule));
    StageMemory memory;
    memory.bytes = replayed.at_peak;
    memory.context_bytes = cluster.context_bytes;
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
