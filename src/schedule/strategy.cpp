// Strategy checks and places in the mesh.
#include "schedule/strategy.h"

#include <utility>

#include "core/error.h"
#include "schedule/fp8_linears.h"

namespace vitrine {

Sharding Sharding::stage(int zero_stage) {
  if (zero_stage < 0 || zero_stage > 3) {
    throw ConfigError("zero_optimization.stage: expected 0, 1, 2 or 3, got " +
                      std::to_string(zero_stage));
  }
  return {zero_stage >= 1, zero_stage >= 2, zero_stage >= 3};
}

void Strategy::validate() const {
  if (mesh.data < 1 || mesh.pipeline < 1) throw ConfigError("mesh: every degree is at least 1");
  if (mesh.tensor != 1 || mesh.context != 1) {
    throw ConfigError(
        "mesh: tensor and context parallelism are not available yet; set tensor and context to 1");
  }
  if (micro_batch < 1 || accumulation < 1) {
    throw ConfigError("micro-batch and accumulation are at least 1, got " +
                      std::to_string(micro_batch) + " and " + std::to_string(accumulation));
  }
  if (!mixed() && gradient_dtype != compute_dtype) {
    throw ConfigError(std::string("gradients of a ") + dtype_name(compute_dtype) +
                      " model have the same dtype, got " + dtype_name(gradient_dtype));
  }
  if (mixed() && gradient_dtype != DType::kF32 && gradient_dtype != compute_dtype) {
    throw ConfigError(std::string("gradients of a ") + dtype_name(compute_dtype) + " model are " +
                      dtype_name(compute_dtype) + " or f32, got " + dtype_name(gradient_dtype));
  }
  for (const auto& [what, dtype] :
       {std::pair("masters", master_dtype), {"moments", moment_dtype}}) {
    if (dtype == DType::kF32 || (dtype == DType::kBF16 && compute_dtype == DType::kBF16)) continue;
    throw ConfigError(std::string(what) + " of a " + dtype_name(compute_dtype) + " model are f32" +
                      (compute_dtype == DType::kBF16 ? " or bf16" : "") + ", got " +
                      dtype_name(dtype));
  }
}

MeshPlace place_in_mesh(const Mesh& mesh, int rank) {
  VITRINE_ASSERT(rank >= 0 && rank < mesh.world());
  MeshPlace place;
  place.rank = rank;
  place.stage = rank / mesh.data;
  place.data_index = rank % mesh.data;
  for (int d = 0; d < mesh.data; ++d) place.data_group.push_back(place.stage * mesh.data + d);
  for (int s = 0; s < mesh.pipeline; ++s)
    place.pipeline_group.push_back(s * mesh.data + place.data_index);
  return place;
}

Fp8Linears fp8_linears(bool enabled, const Strategy& strategy) {
  if (!enabled) return Fp8Linears::kOff;
  if (strategy.recompute) return Fp8Linears::kNothingKept;
  const bool weights = !strategy.shard.parameters && strategy.mesh.pipeline == 1;
  return weights ? Fp8Linears::kAllKept : Fp8Linears::kInputsKept;
}

}  // namespace vitrine
