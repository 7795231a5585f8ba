// DeepSpeed's own estimators of ZeRO memory, digit by digit, so that users can compare.
#pragma once

#include <cstdint>
#include <string>

namespace vitrine {

// What estimate_zero{2,3}_model_states_mem_needs take (deepspeed/runtime/zero, v0.19).
struct DeepSpeedJob {
  double parameters = 0;     // total_params
  double largest_layer = 0;  // largest_layer_params: of the largest module's own weights
  int gpus_per_node = 1, nodes = 1;
  double buffer_factor = 1.5;  // additional_buffer_factor
};

// Whole bytes, cut off as DeepSpeed does. Model states alone: no activations, buckets, contexts.
struct DeepSpeedEstimate {
  double cpu_bytes = 0;  // a node
  double gpu_bytes = 0;  // a card
};

// The CPU figure with offload grows with all cards of the job although it is a node's: with several
// nodes DeepSpeed is that many times too high.
DeepSpeedEstimate deepspeed_zero2(const DeepSpeedJob& job, bool offload_optimizer);
// `offload_parameters` only with `offload_optimizer`; `zero_init`: the model is built in shards
// (deepspeed.zero.Init). Throws ConfigError otherwise.
DeepSpeedEstimate deepspeed_zero3(const DeepSpeedJob& job,
                                  bool offload_optimizer,
                                  bool offload_parameters,
                                  bool zero_init);

// What estimate_zero2_model_states_mem_needs_all_cold and ..._zero3_... print ("GB" are GiB), lines
// ending in '\n'. Throws ConfigError for stages other than 2 and 3 and for sizes below 1.
std::string deepspeed_estimate_table(const DeepSpeedJob& job, int stage);

}  // namespace vitrine
