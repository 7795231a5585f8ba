// Which blocks stand in a model, and its FLOPs by the usual convention.
#include "plan/shard_blocks.h"

#include <algorithm>

#include "core/error.h"
#include "plan/block_recorder.h"
#include "plan/plan_ops.h"
#include "plan/shard_engine.h"

namespace vitrine {
namespace {

// Products and attention of a stack, a token, forward: 2 flops a multiply-add.
double layer_flops(const StackShape& k, double tokens, bool experts) {
  const auto d = [](int64_t v) { return static_cast<double>(v); };
  const double h = d(k.hidden);
  double flops = 0, width = 0;
  if (k.kv_rank > 0) {
    const double dq = d(k.head_dim + k.rope_head_dim), heads = d(k.heads);
    flops += k.q_rank > 0 ? 2 * (h * d(k.q_rank) + d(k.q_rank) * heads * dq) : 2 * h * heads * dq;
    flops += 2 * h * d(k.kv_rank + k.rope_head_dim);
    flops += 2 * d(k.kv_rank) * heads * d(k.head_dim + k.v_head_dim);
    flops += 2 * heads * d(k.v_head_dim) * h;
    width = heads * (dq + d(k.v_head_dim));
  } else {
    flops += 2 * h * d((k.heads + 2 * k.kv_heads) * k.head_dim) + 2 * d(k.heads * k.head_dim) * h;
    width = 2 * d(k.heads * k.head_dim);
  }
  flops += 2 * width * tokens * (k.causal ? 0.5 : 1.0);
  if (k.cross_attention) flops += 4 * h * h + 4 * h * d(k.context_tokens);
  const double matrices = k.gated ? 3 : 2;
  if (experts) {
    flops += 2 * matrices * h * d(k.experts_per_token * k.expert_ffn + k.shared_ffn);
    flops += 2 * h * d(k.experts);
  } else {
    flops += 2 * matrices * h * d(k.ffn);
  }
  return flops;
}

}  // namespace

double decoder_flops(const ModelShape& shape, int64_t tokens) {
  const auto real = [](int64_t v) { return static_cast<double>(v); };
  const StackShape& k = shape.stack;
  const int64_t expert_layers = k.experts > 0 ? k.layers - k.dense_layers : 0;
  const int64_t more = expert_layers > 0 ? shape.next_token_layers : 0;
  const double layers = real(k.layers - expert_layers) * layer_flops(k, real(tokens), false) +
                        real(expert_layers + more) * layer_flops(k, real(tokens), true);
  const double head = 2 * real(k.hidden) * real(shape.vocab) * real(1 + shape.next_token_layers);
  return 3 * real(tokens) * (layers + head);
}

ShardModel shard_model(const ModelShape& shape, const ClusterStrategy& strategy) {
  register_plan_ops();
  const bool whole = strategy.mesh.tensor == 1 && strategy.mesh.context == 1;
  if (!shape.engine_section.empty() && (whole || shape.family != "decoder")) {
    return engine_model(shape, strategy);
  }
  BlockRecorder recorder(shape, strategy);
  ShardModel model;
  const auto add = [&](ShardBlock block, int64_t count) {
    if (count <= 0) return;
    const int kind = static_cast<int>(model.kinds.size());
    model.kinds.push_back(std::move(block));
    model.blocks.insert(model.blocks.end(), static_cast<size_t>(count), kind);
  };
  const auto real = [](int64_t v) { return static_cast<double>(v); };
  double flops = 0;
  if (shape.tower.layers > 0) {
    ShardBlock patches = recorder.embed(true);
    ClusterStrategy pictures = strategy;
    pictures.micro_batch = strategy.micro_batch * shape.pictures_per_sample;
    pictures.mesh.context = 1;
    BlockRecorder tower(shape, pictures);
    ShardBlock layer = tower.layer(shape.tower, "tower", shape.picture_patches, false);
    if (shape.tower_frozen) {
      patches.frozen_parameters = patches.parameters;
      layer.frozen_parameters = layer.parameters;
      patches.trains = layer.trains = false;
    }
    add(std::move(patches), 1);
    add(std::move(layer), shape.tower.layers);
    const double seen = real(shape.picture_patches * shape.pictures_per_sample);
    flops += (shape.tower_frozen ? 1 : 3) * seen * real(shape.tower.layers) *
             layer_flops(shape.tower, real(shape.picture_patches), false);
  }
  const StackShape& k = shape.stack;
  const int64_t local = strategy.sequence / strategy.mesh.context;
  const bool words = shape.vocab > 0;
  if (words) {
    add(recorder.embed(false), 1);
  } else {
    add(recorder.embed(true), 1);
  }
  const int64_t expert_layers = k.experts > 0 ? k.layers - k.dense_layers : 0;
  const int64_t dense_layers = k.layers - expert_layers;
  if (dense_layers > 0) add(recorder.layer(k, "dense", local, false), dense_layers);
  if (expert_layers > 0) {
    add(recorder.layer(k, "experts", local, true), expert_layers + shape.next_token_layers);
  }
  if (words) add(recorder.head(), 1);
  model.tokens = strategy.sequence;
  model.model_flops = flops + decoder_flops(shape, strategy.sequence);
  return model;
}

}  // namespace vitrine
