// Tapes of one rank's blocks, recorded from a model's shape.
#pragma once

#include <string>
#include <vector>

#include "nn/ops.h"
#include "plan/shard_blocks.h"

namespace vitrine {

// `model` and `strategy` must outlive it. Throws ShapeError for shapes that do not go together.
class BlockRecorder {
 public:
  BlockRecorder(const ModelShape& model, const ClusterStrategy& strategy)
      : m_(model),
        s_(strategy),
        t_(strategy.mesh.tensor),
        c_(strategy.mesh.context),
        split_(strategy.sequence_parallel && strategy.mesh.tensor > 1),
        dtype_(strategy.precision == Precision::kF32 ? DType::kF32 : DType::kBF16) {}

  ShardBlock embed(bool pictures);
  ShardBlock layer(const StackShape& stack, const std::string& name, int64_t tokens, bool experts);
  ShardBlock head();

 private:
  template <typename F>
  ShardBlock record(const std::string& name, std::vector<PortType> inputs, F&& forward);

  Value parameter(TapeBuilder& tape, const std::string& name, Shape shape, bool expert = false);
  Value norm(TapeBuilder& tape, const StackShape& k, const std::string& name, Value x);
  // sum and norm of x + delta: one pass where fused.
  nn::Residual add_norm(
      TapeBuilder& tape, const StackShape& k, const std::string& name, Value x, Value delta);
  Value linear(TapeBuilder& tape, const std::string& name, Value x, int64_t out, bool bias);
  // Around the products of a tensor group.
  Value enter(TapeBuilder& tape, Value x);
  Value leave(TapeBuilder& tape, Value x);
  Value attention(TapeBuilder& tape, const StackShape& k, Value normed);
  Value latent_attention(TapeBuilder& tape, const StackShape& k, Value normed);
  Value dense_mlp(
      TapeBuilder& tape, const StackShape& k, Value normed, int64_t ffn, const char* at);
  Value expert_mlp(TapeBuilder& tape, const StackShape& k, Value normed);
  Value act(TapeBuilder& tape, const StackShape& k, Value x);

  const ModelShape& m_;
  const ClusterStrategy& s_;
  int64_t t_, c_;
  bool split_;
  DType dtype_;
  int64_t parameters_ = 0, expert_parameters_ = 0;  // elements, of the block being recorded
};

}  // namespace vitrine
