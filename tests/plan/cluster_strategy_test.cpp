// Strategies: names, batch arithmetic, and what is refused with the nearest valid value.
#include "plan/cluster_strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>
#include <regex>

#include "core/error.h"
#include "machines/cluster.h"
#include "plan/model_shape.h"

namespace vitrine {
namespace {

using testing::HasSubstr;

ClusterStrategy valid() {
  ClusterStrategy s;
  s.mesh = {.data = 4, .tensor = 8, .pipeline = 2, .context = 1};
  s.micro_batch = 1;
  s.global_batch = 64;
  s.sequence = 8192;
  return s;
}

std::string refusal(const std::function<void(ClusterStrategy&)>& change,
                    const std::string& model = "llama3-8b",
                    const std::string& gpus = "64xH100") {
  ClusterStrategy s = valid();
  change(s);
  try {
    check_strategy(s, model_shape(model), make_cluster(gpus));
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "";
}

TEST(ClusterStrategy, ThatFitsIsTaken) {
  EXPECT_EQ(refusal([](ClusterStrategy&) {}), "");
  EXPECT_EQ(valid().accumulation(), 16);
  EXPECT_EQ(valid().world(), 64);
}

TEST(ClusterStrategy, NamesGoBothWays) {
  for (const char* name : {"none", "selective", "full"}) {
    EXPECT_STREQ(recompute_name(recompute_from_name(name)), name);
  }
  for (const char* name : {"device", "host", "disk"}) {
    EXPECT_STREQ(tier_name(tier_from_name(name)), name);
  }
  for (const char* name :
       {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-h2", "zb-v", "zb-1p", "zb-2p"}) {
    EXPECT_STREQ(pipeline_name(pipeline_from_name(name)), name);
  }
  for (const char* name : {"fp32", "fp16", "bf16", "fp8", "fp4"}) {
    EXPECT_STREQ(precision_name(precision_from_name(name)), name);
  }
  EXPECT_EQ(pipeline_from_name("ZB-H1"), PipelineKind::kZbH1);
  EXPECT_THROW(tier_from_name("nvme"), ConfigError);
  try {
    pipeline_from_name("2f2b");
    FAIL();
  } catch (const ConfigError& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("gpipe, 1f1b, interleaved, zb-h1, zb-h2, zb-v, zb-1p, zb-2p"));
  }
}

TEST(ClusterStrategy, RefusesSizesBelowTheirLeast) {
  EXPECT_THAT(refusal([](auto& s) { s.mesh.tensor = 0; }), HasSubstr("tensor: is at least 1"));
  EXPECT_THAT(refusal([](auto& s) { s.mesh.data = -4; }), HasSubstr("data: is at least 1, got -4"));
  EXPECT_THAT(refusal([](auto& s) { s.micro_batch = 0; }), HasSubstr("micro_batch"));
  EXPECT_THAT(refusal([](auto& s) { s.global_batch = -1; }), HasSubstr("global_batch"));
  EXPECT_THAT(refusal([](auto& s) { s.sequence = -8; }), HasSubstr("sequence"));
  EXPECT_THAT(refusal([](auto& s) { s.sequence = 0; }), HasSubstr("sequence: is at least 1"));
  EXPECT_THAT(refusal([](auto& s) { s.zero_stage = 4; }), HasSubstr("got 4; nearest: 3"));
  EXPECT_THAT(refusal([](auto& s) { s.imbalance = 0.5; }), HasSubstr("imbalance"));
  EXPECT_THAT(refusal([](auto& s) { s.moment_bytes = -8; }), HasSubstr("moment_bytes"));
}

TEST(ClusterStrategy, RefusesAMeshThatIsNotTheCards) {
  EXPECT_THAT(refusal([](auto& s) { s.mesh.data = 8; }), HasSubstr("data 4 would fit"));
  EXPECT_THAT(refusal([](auto& s) { s.mesh.pipeline = 3; }),
              HasSubstr("= 24 does not divide; nearest product that does: 16"));
  EXPECT_THAT(refusal([](auto&) {}, "llama3-8b", "60xH100"), HasSubstr("nearest: 56 or 64"));
}

TEST(ClusterStrategy, RefusesABatchThatDoesNotDivide) {
  EXPECT_THAT(refusal([](auto& s) { s.global_batch = 66; }), HasSubstr("nearest: 64 or 68"));
  EXPECT_THAT(refusal([](auto& s) { s.global_batch = 3; }), HasSubstr("nearest: 4"));
}

TEST(ClusterStrategy, RefusesTensorDegreesThatDoNotDivideHeads) {
  const auto tensor = [](int degree) {
    return [degree](ClusterStrategy& s) {
      s.mesh = {.data = 1, .tensor = degree, .pipeline = 1, .context = 1};
    };
  };
  EXPECT_THAT(refusal(tensor(24), "llama3-8b", "24xH100"),
              HasSubstr("heads (32); nearest that does: 16"));
  EXPECT_THAT(refusal(tensor(8), "qwen2.5-7b", "8xH100"), HasSubstr("nearest that does: 4"));
  EXPECT_EQ(refusal(tensor(16), "llama3-8b", "16xH100"), "");  // key heads twice
  EXPECT_THAT(refusal(tensor(3), "gpt-13b", "3xH100"), HasSubstr("heads (40)"));
}

TEST(ClusterStrategy, RefusesStagesWithoutALayer) {
  const auto stages = [](int pipeline, PipelineKind kind, int interleave) {
    return [=](ClusterStrategy& s) {
      s.mesh = {.data = 1, .tensor = 1, .pipeline = pipeline, .context = 1};
      s.pipeline = kind;
      s.interleave = interleave;
    };
  };
  EXPECT_THAT(refusal(stages(64, PipelineKind::k1F1B, 1)),
              HasSubstr("more stages than the 32 layers; nearest: 32"));
  EXPECT_THAT(refusal(stages(16, PipelineKind::kInterleaved, 3), "llama3-8b", "16xH100"),
              HasSubstr("nearest: interleave 2"));
  EXPECT_THAT(refusal(stages(24, PipelineKind::kZbV, 1), "llama3-8b", "24xH100"),
              HasSubstr("nearest: pipeline 16"));
  EXPECT_THAT(refusal(stages(8, PipelineKind::kInterleaved, 1), "llama3-8b", "8xH100"),
              HasSubstr("at least 2 chunks"));
  EXPECT_THAT(refusal(stages(8, PipelineKind::k1F1B, 2), "llama3-8b", "8xH100"),
              HasSubstr("is for pipeline \"interleaved\""));
  // Llama-3 405B as it was trained: 126 layers, tables counted as two more.
  EXPECT_EQ(refusal(stages(16, PipelineKind::kInterleaved, 8), "llama3-405b", "16xH100"), "");
}

TEST(ClusterStrategy, RefusesFewerMicroBatchesThanInterleavedStages) {
  const std::string message = refusal(
      [](ClusterStrategy& s) {
        s.mesh = {.data = 2, .tensor = 1, .pipeline = 8, .context = 1};
        s.pipeline = PipelineKind::kInterleaved;
        s.interleave = 2;
        s.global_batch = 8;
      },
      "llama3-8b",
      "16xH100");
  EXPECT_THAT(message, HasSubstr("nearest: 16"));
}

TEST(ClusterStrategy, RefusesExpertGroupsThatDoNotFit) {
  EXPECT_THAT(refusal([](auto& s) { s.expert = 2; }), HasSubstr("has no experts; nearest: 1"));
  EXPECT_THAT(refusal([](auto& s) { s.expert = 3; }, "mixtral-8x7b"),
              HasSubstr("experts (8); nearest that does: 2"));
  EXPECT_EQ(refusal([](auto& s) { s.expert = 8; }, "mixtral-8x7b"), "");
  EXPECT_THAT(refusal([](auto& s) { s.expert = 64; }, "qwen3-235b-a22b"),
              HasSubstr("data x context x tensor ranks (32); nearest that does: 32"));
}

TEST(ClusterStrategy, RefusesSequencesThatTheModelHasNotOrContextDoesNotDivide) {
  EXPECT_THAT(refusal([](auto& s) { s.sequence = 4096; }, "gpt-13b"), HasSubstr("nearest: 2048"));
  EXPECT_THAT(refusal([](auto& s) {
                s.mesh = {.data = 2, .tensor = 8, .pipeline = 1, .context = 4};
                s.sequence = 8190;
              }),
              HasSubstr("context 4 does not divide the sequence (8190)"));
  const auto world = [](int64_t sequence) {
    return [sequence](ClusterStrategy& s) {
      s.mesh = {.data = 64, .tensor = 1, .pipeline = 1, .context = 1};
      s.sequence = sequence;
    };
  };
  EXPECT_EQ(refusal(world(0), "world-1b"), "");
  EXPECT_EQ(refusal(world(4096), "world-1b"), "");
  EXPECT_THAT(refusal(world(1000), "world-1b"), HasSubstr("has 4096 tokens, got 1000"));
}

TEST(ClusterStrategy, RefusesWhatDoesNotCombine) {
  EXPECT_THAT(refusal([](auto& s) { s.parameter_tier = Tier::kHost; }),
              HasSubstr("needs zero_stage 3"));
  EXPECT_THAT(refusal([](auto& s) { s.quantized_gather = true; }), HasSubstr("zero_stage 3"));
  EXPECT_THAT(refusal([](auto& s) { s.shard_group = 3; }), HasSubstr("nearest that does: 2"));
  EXPECT_EQ(refusal([](auto& s) {
              s.zero_stage = 3;
              s.parameter_tier = Tier::kDisk;
              s.quantized_gather = s.quantized_reduce = true;
              s.shard_group = 2;
            }),
            "");
}

TEST(ClusterStrategy, RefusesPrecisionsThatTheCardHasNot) {
  const auto precision = [](Precision value) {
    return [value](ClusterStrategy& s) { s.precision = value; };
  };
  EXPECT_THAT(refusal(precision(Precision::kF8), "llama3-8b", "64xA100"),
              HasSubstr("nearest: \"bf16\""));
  EXPECT_THAT(refusal(precision(Precision::kBF16), "llama3-8b", "64xV100"),
              HasSubstr("nearest: \"fp16\""));
  EXPECT_THAT(refusal(precision(Precision::kF4)), HasSubstr("nearest: \"fp8\""));
  EXPECT_EQ(refusal(precision(Precision::kF4), "llama3-8b", "64xB200"), "");
}

// The nearest value of a message is itself taken, for every tensor degree.
TEST(ClusterStrategy, NearestTensorDegreeIsValid) {
  const std::regex nearest("nearest that does: ([0-9]+)");
  for (const char* name : {"gpt-13b", "qwen2.5-7b", "llama2-70b", "qwen2.5-1.5b"}) {
    const ModelShape model = model_shape(name);
    for (int degree = 1; degree <= 40; ++degree) {
      ClusterStrategy s = valid();
      s.sequence = 2048;
      const auto run = [&](int tensor) -> std::string {
        s.mesh = {.data = 1, .tensor = tensor, .pipeline = 1, .context = 1};
        Cluster cluster = make_cluster("H100");
        cluster.gpus = cluster.gpus_per_node = tensor;
        try {
          check_strategy(s, model, cluster);
        } catch (const ConfigError& error) {
          return error.what();
        }
        return "";
      };
      const std::string message = run(degree);
      std::smatch found;
      if (message.empty()) continue;
      ASSERT_TRUE(std::regex_search(message, found, nearest)) << message;
      EXPECT_EQ(run(std::atoi(found[1].str().c_str())), "") << name << " " << message;
    }
  }
}

}  // namespace
}  // namespace vitrine
