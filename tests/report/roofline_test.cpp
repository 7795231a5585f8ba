// Utilisation and rooflines by hand-made numbers, and silence where something is not known.
#include "report/roofline.h"

#include <gtest/gtest.h>

#include "machines/accelerators.h"

namespace vitrine {
namespace {

RankFacts half_busy_h200() {
  const Accelerator* card = find_accelerator("NVIDIA H200");
  RankFacts rank;
  rank.device = "NVIDIA H200";
  rank.total.span_ns = 2000000000;
  rank.flops = card->bf16_flops_per_s;  // a second's worth in two seconds
  rank.flops_covered = 0.9;
  return rank;
}

TEST(Utilisation, IsFlopOverTimeAgainstThePeakOfTheCard) {
  const auto used = utilisation(half_busy_h200());
  ASSERT_TRUE(used.has_value());
  EXPECT_DOUBLE_EQ(used->share(), 0.5);
  EXPECT_EQ(used->peak, "dense bf16 peak of NVIDIA H200");
}

TEST(Utilisation, IsNotGuessed) {
  RankFacts rank = half_busy_h200();
  rank.device = "Some Card 9000";
  EXPECT_FALSE(utilisation(rank).has_value());
  rank = half_busy_h200();
  rank.flops_covered = 0.4;
  EXPECT_FALSE(utilisation(rank).has_value()) << "most products have no shapes";
  rank = half_busy_h200();
  rank.flops = 0;
  EXPECT_FALSE(utilisation(rank).has_value());
}

TEST(Roofline, TellsComputeFromMemory) {
  const Accelerator* card = find_accelerator("NVIDIA H200");
  OperatorRow product;
  product.flops = card->bf16_flops_per_s * 1e-3, product.bytes = 1e6, product.device_ns = 2000000;
  const auto compute = roofline(product, "NVIDIA H200");
  ASSERT_TRUE(compute.has_value());
  EXPECT_TRUE(compute->compute_bound);
  EXPECT_DOUBLE_EQ(compute->share, 0.5);
  OperatorRow thin;
  thin.flops = 1e6, thin.bytes = card->memory_bytes_per_s * 1e-3, thin.device_ns = 4000000;
  const auto memory = roofline(thin, "NVIDIA H200");
  ASSERT_TRUE(memory.has_value());
  EXPECT_FALSE(memory->compute_bound);
  EXPECT_DOUBLE_EQ(memory->share, 0.25);
  EXPECT_FALSE(roofline(thin, "").has_value());
}

}  // namespace
}  // namespace vitrine
