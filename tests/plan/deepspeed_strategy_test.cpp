// DeepSpeed configurations as strategies.
#include "plan/deepspeed_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json.h"

namespace vitrine {
namespace {

using testing::AllOf;
using testing::HasSubstr;

DeepSpeedPlan read(const std::string& text, int data = 8) {
  Mesh mesh;
  mesh.data = data;
  return strategy_from_deepspeed(parse_json(text, "ds_config.json"), mesh, 2048);
}

std::string error_of(const std::string& text) {
  try {
    read(text);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

const Remark& remark(const DeepSpeedPlan& plan, const std::string& key) {
  static const Remark none;
  for (const Remark& each : plan.remarks) {
    if (each.key == key) return each;
  }
  return none;
}

TEST(DeepSpeedStrategy, HasDeepSpeedsDefaultsWhereTheFileIsSilent) {
  const ClusterStrategy s = read(R"({"train_batch_size": 64, "bf16": {"enabled": true},
               "zero_optimization": {"stage": 3, "reduce_bucket_size": "auto"}})")
                                .strategy;
  EXPECT_EQ(s.zero_stage, 3);
  EXPECT_EQ(s.micro_batch, 8);
  EXPECT_EQ(s.accumulation(), 1);
  EXPECT_EQ(s.sequence, 2048);
  EXPECT_EQ(s.precision, Precision::kBF16);
  EXPECT_EQ(s.reduce_bucket, 500'000'000);
  EXPECT_EQ(s.gather_bucket, 500'000'000);
  EXPECT_EQ(s.prefetch_elements, 50'000'000);
  EXPECT_EQ(s.state_bytes(), 2 + 2 + 4 + 8);
  EXPECT_EQ(s.reduce_bytes, 2);
  EXPECT_EQ(s.optimizer_tier, Tier::kDevice);
}

TEST(DeepSpeedStrategy, OffloadsWhatTheFileOffloads) {
  const DeepSpeedPlan plan = read(R"({
    "train_micro_batch_size_per_gpu": 2, "gradient_accumulation_steps": 4,
    "fp16": {"enabled": true}, "activation_checkpointing": {"cpu_checkpointing": true},
    "zero_optimization": {"stage": 3, "stage3_prefetch_bucket_size": 1e7, "overlap_comm": false,
      "offload_optimizer": {"device": "nvme", "nvme_path": "/local"},
      "offload_param": {"device": "cpu"}}})");
  const ClusterStrategy& s = plan.strategy;
  EXPECT_EQ(s.global_batch, 64);
  EXPECT_EQ(s.precision, Precision::kF16);
  EXPECT_EQ(s.optimizer_tier, Tier::kDisk);
  EXPECT_EQ(s.gradient_tier, Tier::kHost);
  EXPECT_EQ(s.parameter_tier, Tier::kHost);
  EXPECT_EQ(s.activation_tier, Tier::kHost);
  EXPECT_EQ(s.recompute, Recompute::kFull);
  EXPECT_EQ(s.prefetch_elements, 10'000'000);
  EXPECT_FALSE(s.overlap_reduce);
  EXPECT_EQ(remark(plan, "zero_optimization.offload_param.device").status, Remark::Status::kUsed);
}

TEST(DeepSpeedStrategy, TakesOldNamesZeroPlusPlusAndTypes) {
  const ClusterStrategy s = read(R"({
    "train_batch_size": 64, "bfloat16": {"enabled": true, "bf16_master_weights_and_grads": true,
      "bf16_optimizer_states": true}, "communication_data_type": "fp32",
    "data_types": {"grad_accum_dtype": "fp32"},
    "zero_optimization": {"stage": 3, "cpu_offload": true, "zero_hpz_partition_size": 4,
      "zero_quantized_weights": true, "zero_quantized_gradients": true}})")
                                .strategy;
  EXPECT_EQ(s.optimizer_tier, Tier::kHost);
  EXPECT_EQ(s.shard_group, 4);
  EXPECT_TRUE(s.quantized_gather);
  EXPECT_TRUE(s.quantized_reduce);
  EXPECT_EQ(s.gradient_bytes, 4);
  EXPECT_EQ(s.reduce_bytes, 4);
  EXPECT_EQ(s.master_bytes, 2);
  EXPECT_EQ(s.moment_bytes, 4);
}

TEST(DeepSpeedStrategy, WithoutMixedPrecisionHasNoMasterCopy) {
  const ClusterStrategy s = read(R"({"train_batch_size": 8})").strategy;
  EXPECT_EQ(s.precision, Precision::kF32);
  EXPECT_EQ(s.state_bytes(), 16);
  EXPECT_EQ(s.zero_stage, 0);
}

TEST(DeepSpeedStrategy, SaysWhatThePlannerDoesNotCount) {
  const DeepSpeedPlan plan = read(R"({"train_batch_size": 8, "optimizer": {"type": "Lion"},
    "zero_optimization": {"stage": 2}})");
  EXPECT_EQ(remark(plan, "optimizer.type").status, Remark::Status::kIgnored);
  EXPECT_THAT(remark(plan, "optimizer.type").note, HasSubstr("not counted"));
}

TEST(DeepSpeedStrategy, RefusesWrongFilesKeyByKey) {
  EXPECT_THAT(error_of(R"({"train_batch_size": 12, "zero_optimisation": {}})"),
              AllOf(HasSubstr("zero_optimization"), HasSubstr("8 or 16")));
  EXPECT_THAT(error_of(R"({"train_batch_size": 8, "zero_optimization": {"stage": 2,
    "offload_param": {"device": "cpu"}}})"),
              HasSubstr("only parameters of stage 3"));
  EXPECT_THAT(error_of("[]"), HasSubstr("expected an object"));
}

}  // namespace
}  // namespace vitrine
