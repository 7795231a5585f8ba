// What the probe's numbers mean, from numbers made up.
#include <gtest/gtest.h>

#include "gpu/probe.h"

namespace vitrine {
namespace {

ProductProbe product(const std::string& dtype, double tflops, double error = 1e-6) {
  ProductProbe p;
  p.dtype = dtype;
  p.flops_per_s = tflops * 1e12;
  p.error = error;
  p.tolerance = 1e-3;
  return p;
}

TEST(ProbeVerdict, ADtypeThatIsNoFasterThanF32IsEmulated) {
  std::vector<ProductProbe> all = {
      product("f32", 50), product("tf32", 400), product("bf16", 52), product("f16", 780)};
  judge_products(all);
  EXPECT_FALSE(all[0].emulated);
  EXPECT_FALSE(all[1].emulated);
  EXPECT_TRUE(all[2].emulated);
  EXPECT_FALSE(all[3].emulated);
}

TEST(ProbeVerdict, WithoutARightF32NothingIsCalledEmulated) {
  std::vector<ProductProbe> all = {product("f32", 50, 0.5), product("bf16", 40)};
  judge_products(all);
  EXPECT_FALSE(all[1].emulated);
}

TEST(ProbeVerdict, ChoosesTheFirstNativeOfBf16F16F32) {
  GpuProbe probe;
  probe.products = {product("f32", 50), product("bf16", 780), product("f16", 790)};
  EXPECT_EQ(choose_precision(probe), "bf16");
  probe.products[1].emulated = true;
  EXPECT_EQ(choose_precision(probe), "f16");
  probe.products[2].error = 0.1;
  EXPECT_EQ(choose_precision(probe), "f32");
  probe.products[0].refused = "no such product";
  EXPECT_EQ(choose_precision(probe), "");
}

TEST(ProbeVerdict, AProductThatWasNotCheckedIsNotRight) {
  ProductProbe p;
  EXPECT_FALSE(p.right());
}

}  // namespace
}  // namespace vitrine
