// What a layer keeps, against Korthikanti et al. 2022 (arXiv 2205.05198), table 2: bytes of
// activations of one layer of a GPT, s b h (34 + 5 a s / h) and its parallel forms.
#include <gtest/gtest.h>

#include "machines/cluster.h"
#include "plan/block_cost.h"

namespace vitrine {
namespace {

double kept_per_sbh(const ModelShape& model, int tensor, bool split, Recompute recompute) {
  ClusterStrategy s;
  s.mesh.tensor = tensor;
  s.micro_batch = s.global_batch = 2;
  s.sequence = 2048;
  s.sequence_parallel = split;
  s.recompute = recompute;
  s.flash_attention = false;
  s.precision = Precision::kF16;
  const Cluster cluster = make_cluster("8xA100");
  const ShardModel shard = shard_model(model, s);
  const CardModel card = card_model(cluster, s);
  for (const ShardBlock& block : shard.kinds) {
    if (block.name != "dense") continue;
    const BlockCost cost = block_cost(block, s, cluster, card);
    int64_t statistics = 0;  // means and deviations of the norms: 4 bytes a row, left out there
    for (const TapeSlot& slot : block.tape->slots()) {
      if (slot.kind == SlotKind::kSaved && slot.type.dtype == DType::kF32) {
        statistics += slot.type.bytes();
      }
    }
    if (recompute == Recompute::kFull) statistics = 0;
    const double sbh = 2048.0 * 2 * static_cast<double>(model.stack.hidden);
    return static_cast<double>(cost.kept_bytes + cost.input_bytes - statistics) / sbh;
  }
  return 0;
}

TEST(Activations, OfOneLayerAreKorthikantisFormulas) {
  ModelShape model = model_shape("gpt-175b");
  model.stack.dropout = 0.1;
  const double t = 8, h = static_cast<double>(model.stack.hidden);
  const double scores = 5.0 * static_cast<double>(model.stack.heads) * 2048 / h;  // 5 a s / h
  using R = Recompute;
  EXPECT_DOUBLE_EQ(kept_per_sbh(model, 1, false, R::kNone), 34 + scores);
  EXPECT_DOUBLE_EQ(kept_per_sbh(model, 8, false, R::kNone), 10 + 24 / t + scores / t);
  EXPECT_DOUBLE_EQ(kept_per_sbh(model, 8, true, R::kNone), (34 + scores) / t);
  EXPECT_DOUBLE_EQ(kept_per_sbh(model, 8, false, R::kSelective), 10 + 24 / t);
  EXPECT_DOUBLE_EQ(kept_per_sbh(model, 8, true, R::kSelective), 34 / t);
  EXPECT_DOUBLE_EQ(kept_per_sbh(model, 8, false, R::kFull), 2);
}

}  // namespace
}  // namespace vitrine
