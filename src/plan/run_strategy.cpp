// From the engine's strategy to the planner's, and back.
#include "plan/run_strategy.h"

#include "core/json.h"

namespace vitrine {

ClusterStrategy strategy_of_run(const RunConfig& config) {
  const Strategy& in = config.strategy;
  const auto bytes = [](DType dtype) { return static_cast<int>(dtype_bytes(dtype)); };
  ClusterStrategy s;
  s.own_engine = true;
  s.mesh = in.mesh;
  s.zero_stage = in.shard.stage();
  s.pipeline =
      in.pipeline_order == PipelineOrder::kGPipe ? PipelineKind::kGPipe : PipelineKind::k1F1B;
  s.recompute = in.recompute ? Recompute::kFull : Recompute::kNone;
  s.micro_batch = in.micro_batch;
  s.global_batch = in.global_batch();
  s.sequence = parse_json(config.model, "model").value("sequence_length", int64_t{0});
  s.precision = config.fp8                        ? Precision::kF8
                : in.compute_dtype == DType::kF32 ? Precision::kF32
                : in.compute_dtype == DType::kF16 ? Precision::kF16
                                                  : Precision::kBF16;
  s.weight_bytes = bytes(in.compute_dtype);
  s.gradient_bytes = s.reduce_bytes = bytes(in.gradient_dtype);
  s.master_bytes = in.separate_masters() ? 4 : 0;
  s.moment_bytes = 2 * bytes(in.moment_dtype);
  s.loss_form = LossForm::kFused;
  s.reduce_each_micro_batch = in.shard.gradients;
  s.reduce_bucket = in.reduce_bucket;
  s.gather_bucket = in.gather_bucket;
  s.prefetch_elements = in.prefetch_elements;
  s.persistence_threshold = in.persistence_threshold;
  s.persistent = in.persistent;
  s.frozen = in.frozen;
  s.overlap_gather = s.overlap_reduce = in.overlap;
  s.arena = s.recompute_needed = true;
  return s;
}

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
  out.persistence_threshold = s.persistence_threshold;
  out.persistent = s.persistent;
  out.frozen = s.frozen;
  out.max_live_elements = std::max(out.max_live_elements, 8 * s.prefetch_elements);
  out.overlap = s.overlap_gather || s.overlap_reduce;
  return out;
}

}  // namespace vitrine
