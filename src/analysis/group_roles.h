// What a process group's description says about its role.
#pragma once

#include <string>

namespace vitrine {

// "data", "tensor", "pipeline", "expert", "context", "world"; "data_context" (data ranks together
// with context ranks), "expert_data", "expert_tensor" (the same for the experts' weights),
// "combined" (several directions at once), "embedding"; "" when it says nothing. Words of
// Megatron-LM ("TENSOR_MODEL_PARALLEL_GROUP"), of meshes ("mesh_dp_shard", "dp", "tp"), of
// DeepSpeed and vLLM ("tp:0").
std::string role_of_description(const std::string& description);
// Of data groups: the part of a mesh that copies, or that shards ("mesh_dp_replicate").
bool says_replicate(const std::string& description);
bool says_shard(const std::string& description);

}  // namespace vitrine
