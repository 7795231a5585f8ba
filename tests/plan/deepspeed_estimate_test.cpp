// DeepSpeed's estimators against what DeepSpeed printed, and by hand.
#include "plan/deepspeed_estimate.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/format.h"

namespace vitrine {
namespace {

using testing::HasSubstr;

std::string gib(const DeepSpeedEstimate& e) {
  return format("%.2f / %.2f", e.cpu_bytes / (1 << 30), e.gpu_bytes / (1 << 30));
}

DeepSpeedJob three_billion(int nodes) {
  return {.parameters = 2851e6, .largest_layer = 32e6, .gpus_per_node = 8, .nodes = nodes};
}

// By DeepSpeed's formulas, outside of this project.
TEST(DeepSpeedEstimate, OfThreeBillionParametersOnOneAndFourNodes) {
  const DeepSpeedJob one = three_billion(1), four = three_billion(4);
  EXPECT_EQ(gib(deepspeed_zero2(one, true)), "127.45 / 5.31");
  EXPECT_EQ(gib(deepspeed_zero2(four, true)), "509.80 / 5.31");
  EXPECT_EQ(gib(deepspeed_zero2(one, false)), "127.45 / 11.28");
  EXPECT_EQ(gib(deepspeed_zero2(four, false)), "127.45 / 6.80");
  EXPECT_EQ(gib(deepspeed_zero3(one, true, true, true)), "71.69 / 0.12");
  EXPECT_EQ(gib(deepspeed_zero3(four, true, true, true)), "17.92 / 0.12");
  EXPECT_EQ(gib(deepspeed_zero3(one, true, true, false)), "127.45 / 0.12");
  EXPECT_EQ(gib(deepspeed_zero3(four, true, true, false)), "127.45 / 0.12");
  EXPECT_EQ(gib(deepspeed_zero3(one, true, false, true)), "63.72 / 0.78");
  EXPECT_EQ(gib(deepspeed_zero3(four, true, false, true)), "15.93 / 0.29");
  EXPECT_EQ(gib(deepspeed_zero3(one, true, false, false)), "127.45 / 0.78");
  EXPECT_EQ(gib(deepspeed_zero3(four, true, false, false)), "127.45 / 0.29");
  EXPECT_EQ(gib(deepspeed_zero3(one, false, false, true)), "1.43 / 6.09");
  EXPECT_EQ(gib(deepspeed_zero3(four, false, false, true)), "1.43 / 1.61");
  EXPECT_EQ(gib(deepspeed_zero3(one, false, false, false)), "127.45 / 6.09");
  EXPECT_EQ(gib(deepspeed_zero3(four, false, false, false)), "127.45 / 1.61");
}

// What DeepSpeed printed for bigscience/T0_3B on one card (documentation of Transformers). The
// model has 2,783,959,040 parameters, its largest layer is 32128 x 2048.
TEST(DeepSpeedEstimate, TableOfStage3IsWhatDeepSpeedPrints) {
  const DeepSpeedJob t0 = {.parameters = 2'783'959'040, .largest_layer = 32128.0 * 2048};
  EXPECT_EQ(deepspeed_estimate_table(t0, 3),
            "Estimated memory needed for params, optim states and gradients for a:\n"
            "HW: Setup with 1 node, 1 GPU per node.\n"
            "SW: Model with 2783M total params, 65M largest layer params.\n"
            "  per CPU  |  per GPU |   Options\n"
            "   70.00GB |   0.25GB | offload_param=cpu , offload_optimizer=cpu , zero_init=1\n"
            "   70.00GB |   0.25GB | offload_param=cpu , offload_optimizer=cpu , zero_init=0\n"
            "   62.23GB |   5.43GB | offload_param=none, offload_optimizer=cpu , zero_init=1\n"
            "   62.23GB |   5.43GB | offload_param=none, offload_optimizer=cpu , zero_init=0\n"
            "    0.37GB |  46.91GB | offload_param=none, offload_optimizer=none, zero_init=1\n"
            "   15.56GB |  46.91GB | offload_param=none, offload_optimizer=none, zero_init=0\n");
}

// T5-3B (2,851,598,336) on eight cards. DeepSpeed's documentation still has 15.93 for the last
// figure, from an older formula (4 P + 16 P / N); its code gives 11.29.
TEST(DeepSpeedEstimate, TableOfStage2IsWhatDeepSpeedPrints) {
  const DeepSpeedJob t5 = {.parameters = 2'851'598'336, .gpus_per_node = 8};
  EXPECT_EQ(deepspeed_estimate_table(t5, 2),
            "Estimated memory needed for params, optim states and gradients for a:\n"
            "HW: Setup with 1 node, 8 GPUs per node.\n"
            "SW: Model with 2851M total params.\n"
            "  per CPU  |  per GPU |   Options\n"
            "  127.48GB |   5.31GB | offload_optimizer=cpu \n"
            "  127.48GB |  11.29GB | offload_optimizer=none\n");
}

TEST(DeepSpeedEstimate, RefusesImpossibleJobs) {
  const auto error = [](DeepSpeedJob job, int stage) -> std::string {
    try {
      deepspeed_estimate_table(job, stage);
    } catch (const ConfigError& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_THAT(error({}, 2), HasSubstr("parameters is at least 1"));
  EXPECT_THAT(error({.parameters = 10, .nodes = -1}, 3), HasSubstr("nodes"));
  EXPECT_THAT(error({.parameters = 10, .largest_layer = 11}, 3), HasSubstr("largest_layer"));
  EXPECT_THAT(error({.parameters = 10}, 1), HasSubstr("got 1; nearest: 2"));
  EXPECT_THROW(deepspeed_zero3({.parameters = 10}, false, true, true), ConfigError);
}

}  // namespace
}  // namespace vitrine
