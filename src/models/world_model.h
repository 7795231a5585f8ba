// A video world model: patches of frames and actions in, the next frame at every position out.
#pragma once

#include <string>
#include <vector>

#include "core/json_fwd.h"
#include "nn/model.h"
#include "ops/fp8.h"

namespace vitrine {

// Dimensions: B batch, T window in frames, S patches of a frame, C = 3 patch² values of a patch,
// D width, H heads, d head size, F MLP width.
struct WorldModelConfig {
  // kPatchify: input tokens are a linear map of [z_t ; z_t - z_(t-1)], z the patches themselves.
  // kLinear: of [e_t ; e_t - e_(t-1)], e = gelu(W z + b) trained with the rest. Targets are pixels
  // in both cases: with learned targets the loss would fall by making every frame look alike.
  enum class Encoder { kPatchify, kLinear };
  // kResidual: z + W h. The untrained model (W = 0) predicts the frame it sees, exactly;
  // predictions are unbounded, and fed back they drift. kGatedSigmoid: sigmoid(gain (z + W h - 0.5)
  // + offset), bounded. With the starting gain 6 and offset 0 the untrained model is within 0.059
  // of the frame it sees for every z in [0, 1].
  enum class Head { kGatedSigmoid, kResidual };
  // kLearned: tables over places and times. kRope: rotary over time instead of the table of times
  // (space keeps its table), which lets later windows be longer.
  enum class Positions { kLearned, kRope };

  std::string name = "custom";
  int64_t height = 0, width = 0, patch = 0;
  int64_t hidden = 0, layers = 0, heads = 0, head_dim = 0;
  int64_t ffn = 0;
  int64_t window = 0;        // T
  int64_t action_count = 1;  // actions are 0 ... action_count - 1
  Encoder encoder = Encoder::kPatchify;
  int64_t encoder_width = 0;  // of e; 0 = hidden
  Head head = Head::kGatedSigmoid;
  Positions positions = Positions::kLearned;
  bool qk_norm = false;
  double rms_eps = 1e-6;
  // Passes of the unrolled graph; pass j sees the predictions of the passes before it.
  int64_t rollout_steps = 1;
  // Weight of a later pass's loss against the first's; weights are scaled to a sum of 1.
  double rollout_weight = 1;
  double init_std = 0;                // 0 = sqrt(2 / (5 hidden)) (Nguyen and Salazar, 2019)
  Fp8Linears fp8 = Fp8Linears::kOff;  // as DecoderConfig::fp8

  int64_t patches() const { return (height / patch) * (width / patch); }
  int64_t patch_values() const { return 3 * patch * patch; }
  int64_t clip_frames() const { return window + rollout_steps; }
  void validate() const;  // throws ConfigError naming the field
};

// "tiny" (two CPU cores, a minute), "demo", "small" (one GPU), "1b", "8b". Throws ConfigError.
WorldModelConfig world_model_size(const std::string& size);
const std::vector<std::string>& world_model_sizes();

// {"size": name, any field above}: fields given override the size's. Unknown keys throw.
WorldModelConfig world_model_from_json(const Json& section, const std::string& where);
Json world_model_to_json(const WorldModelConfig& config);

// Batch: frames f32 [B, T + k, height, width, 3] in [0, 1] and actions i32 [B, T + k], k =
// rollout_steps; action t drives frame t -> t + 1, so the last one is not read.
//
// Blocks of pass 0: "encode" (windows and targets in patches), "stem" (input tokens), "body.N"
// (space attention, causal time attention, MLP), "predict", "loss", "picture". Pass j = 1 ... k - 1
// has "window@j" (the window moved on by one frame: the last prediction enters) and twins "stem@j",
// "body.N@j", "predict@j", "loss@j" tied to pass 0's parameters; its actions and targets are j
// frames later. Results: "prediction" f32 [B, T, height, width, 3], whose frame t is the prediction
// of frame t + 1; "patches" the same as [B, T, S, C]; "loss" [1] of pass 0.
//
// Parameters: stem  [w_encode [E, C], b_encode [E],] w_in [D, 2 C or 2 E], position_space [S, D],
//                   [position_time [T, D],] actions [action_count, D]
//             body  space_norm, space_wqkv [3 H d, D], space_wo [D, H d], time_norm, time_wqkv,
//             time_wo,
//                   mlp_norm, w_gate_up [2F, D], w_down [D, F], [space_q_norm, ... [d]]
//             predict  norm [D], w_out [C, D] (starts at zero), [gain [C], offset [C]]
Model build_world_model(const WorldModelConfig& config);
BatchTypes world_model_batch(const WorldModelConfig& config, int64_t micro_batch);

}  // namespace vitrine
