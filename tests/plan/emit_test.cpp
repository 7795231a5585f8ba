// Emitted configurations: read back they are the same strategy.
#include "plan/emit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json.h"
#include "plan/deepspeed_strategy.h"
#include "plan/strategy_json.h"

namespace vitrine {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

std::vector<ClusterStrategy> strategies() {
  std::vector<ClusterStrategy> all;
  for (int zero = 0; zero <= 3; ++zero) {
    ClusterStrategy s;
    s.mesh = {8, 1, 1, 1};
    s.zero_stage = zero;
    s.reduce_each_micro_batch = zero >= 2;
    s.sequence = 4096;
    s.micro_batch = 2;
    s.global_batch = 64;
    s.overlap_reduce = s.overlap_gather = zero == 3;
    all.push_back(s);
    s.recompute = Recompute::kFull;
    s.gradient_bytes = s.reduce_bytes = 2;
    all.push_back(s);
    s.precision = Precision::kF16;
    all.push_back(s);
    if (zero < 1) continue;
    s.optimizer_tier = s.gradient_tier = Tier::kHost;
    s.reduce_bucket = 200'000'000;
    all.push_back(s);
    if (zero < 3) continue;
    s.parameter_tier = Tier::kDisk;
    s.optimizer_tier = Tier::kDisk;
    s.prefetch_elements = 10'000'000;
    all.push_back(s);
    s.parameter_tier = Tier::kDevice;
    s.quantized_gather = s.quantized_reduce = true;
    all.push_back(s);
    s.quantized_gather = s.quantized_reduce = false;
    s.shard_group = 4;
    all.push_back(s);
  }
  return all;
}

TEST(Emit, ADeepSpeedConfigurationReadBackIsTheSameStrategy) {
  const ModelShape model = model_shape("llama3-8b");
  for (const ClusterStrategy& s : strategies()) {
    const Emitted emitted = emit_deepspeed(model, s);
    const ClusterStrategy back =
        strategy_from_deepspeed(parse_json(emitted.text, "emitted"), s.mesh, s.sequence).strategy;
    EXPECT_EQ(strategy_json(back).dump(), strategy_json(s).dump()) << emitted.text;
  }
}

TEST(Emit, ReadingBackTellsStrategiesApart) {
  const ModelShape model = model_shape("llama3-8b");
  std::vector<std::string> seen;
  for (const ClusterStrategy& s : strategies()) seen.push_back(emit_deepspeed(model, s).text);
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

TEST(Emit, AStrategyFileReadBackIsTheSameStrategy) {
  for (const ClusterStrategy& s : strategies()) {
    const ClusterStrategy back = strategy_from_json(strategy_json(s), "file", {});
    EXPECT_EQ(strategy_json(back).dump(), strategy_json(s).dump());
  }
  try {
    strategy_from_json(Json{{"tensr", 2}}, "file", {});
    FAIL() << "an unknown key was taken";
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("tensr"), HasSubstr("tensor")));
  }
}

TEST(Emit, WhatDeepSpeedCannotSayIsNoted) {
  ClusterStrategy s;
  s.mesh = {2, 8, 4, 1};
  s.sequence = 4096;
  s.global_batch = 32;
  s.pipeline = PipelineKind::kZbH1;
  const Emitted emitted = emit_deepspeed(model_shape("llama3-8b"), s);
  EXPECT_THAT(emitted.notes, testing::Contains(HasSubstr("tensor 8, pipeline 4")));
  EXPECT_THAT(emitted.notes, testing::Contains(HasSubstr("zb-h1")));
}

TEST(Emit, MegatronArgumentsSayModelAndLayout) {
  ClusterStrategy s;
  s.mesh = {16, 8, 16, 1};
  s.sequence = 8192;
  s.sequence_parallel = true;
  s.global_batch = 2048;
  s.pipeline = PipelineKind::kInterleaved;
  s.interleave = 2;
  s.recompute = Recompute::kFull;
  const Emitted e = emit_megatron(model_shape("llama3-405b"), s, make_cluster("2048xH100"));
  EXPECT_THAT(e.text,
              AllOf(HasSubstr("--num-layers 126"),
                    HasSubstr("--hidden-size 16384"),
                    HasSubstr("--num-query-groups 8"),
                    HasSubstr("--tensor-model-parallel-size 8"),
                    HasSubstr("--pipeline-model-parallel-size 16"),
                    HasSubstr("--num-virtual-stages-per-pipeline-rank 2"),
                    HasSubstr("--sequence-parallel"),
                    HasSubstr("--use-distributed-optimizer"),
                    HasSubstr("--recompute-granularity full"),
                    HasSubstr("--untie-embeddings-and-output-weights")));
  // 126 layers with embedding and loss are 128, which 32 positions divide.
  EXPECT_THAT(e.text, HasSubstr("--account-for-embedding-in-pipeline-split"));
  EXPECT_THAT(e.text, Not(HasSubstr("--num-experts")));
  EXPECT_THROW(emit_megatron(model_shape("world-1b"), s, make_cluster("2048xH100")), ConfigError);
}

TEST(Emit, ARunFileSectionHoldsTheMesh) {
  ClusterStrategy s;
  s.mesh = {4, 1, 2, 1};
  s.sequence = 4096;
  s.global_batch = 32;
  const Json file = parse_json(emit_vitrine(model_shape("llama3-8b"), s).text, "emitted");
  EXPECT_EQ(file["mesh"]["data"], 4);
  EXPECT_EQ(file["mesh"]["pipeline_order"], "1f1b");
  EXPECT_EQ(file["train_batch_size"], 32);
  EXPECT_EQ(file["zero_optimization"]["stage"], 1);
}

}  // namespace
}  // namespace vitrine
