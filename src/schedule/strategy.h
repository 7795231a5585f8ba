// How a model is spread over ranks and memory: one struct, with DeepSpeed's words in the comments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/dtype.h"

namespace vitrine {

// Their product is the world size. Global rank = (stage * data + data index) * tensor * context +
// ...
struct Mesh {
  int data = 1, tensor = 1, pipeline = 1, context = 1;
  int world() const { return data * tensor * pipeline * context; }
};

// ZeRO 1 = {1,0,0}, 2 = {1,1,0}, 3 = {1,1,1}.
struct Sharding {
  bool optimizer = false, gradients = false, parameters = false;
  static Sharding stage(int zero_stage);
  int stage() const { return parameters ? 3 : gradients ? 2 : optimizer ? 1 : 0; }
};

enum class PipelineOrder : uint8_t { kGPipe, k1F1B };

struct Strategy {
  Mesh mesh;
  Sharding shard;
  PipelineOrder pipeline_order = PipelineOrder::k1F1B;
  bool recompute = false;    // full recomputation of every block that needs a backward
  int64_t micro_batch = 1;   // samples a rank and micro-step
  int64_t accumulation = 1;  // micro-steps a step
  DType compute_dtype =
      DType::kF32;  // parameters, activations; fp32 master copies under bf16 and f16
  DType gradient_dtype = DType::kF32;  // of parameter gradients: accumulation and reduction payload
  // bf16 under bf16 parameters, rounded stochastically: such masters are the parameters themselves
  // (bf16_master_weights_and_grads); moments are exp_avg and exp_avg_sq (bf16_optimizer_states).
  DType master_dtype = DType::kF32, moment_dtype = DType::kF32;
  // Elements:
  int64_t reduce_bucket = 1'000'000;          // reduce_bucket_size
  int64_t gather_bucket = 1'000'000;          // allgather_bucket_size
  int64_t prefetch_elements = 50'000'000;     // stage3_prefetch_bucket_size
  int64_t persistence_threshold = 10'000;     // stage3_param_persistence_threshold
  int64_t max_live_elements = 1'000'000'000;  // stage3_max_live_parameters
  int64_t max_reuse_distance = 0;             // stage3_max_reuse_distance
  bool overlap = true;                        // overlap_comm: communication on lanes of its own
  std::vector<std::string> frozen;            // parameter names or prefixes ending in '*'
  // Likewise, of parameters that stage 3 keeps whole on every rank whatever their size.
  std::vector<std::string> persistent;

  bool mixed() const { return compute_dtype == DType::kBF16 || compute_dtype == DType::kF16; }
  // fp32 copies of trainable parameters beside those that compute.
  bool separate_masters() const { return mixed() && master_dtype == DType::kF32; }
  int64_t global_batch() const { return micro_batch * accumulation * mesh.data; }
  // Throws ConfigError for combinations that cannot run.
  void validate() const;
};

// This rank's place in the mesh.
struct MeshPlace {
  int rank = 0, data_index = 0, stage = 0;
  std::vector<int> data_group;      // global ranks with the same stage, by data index
  std::vector<int> pipeline_group;  // global ranks with the same data index, by stage
};
MeshPlace place_in_mesh(const Mesh& mesh, int rank);

}  // namespace vitrine
