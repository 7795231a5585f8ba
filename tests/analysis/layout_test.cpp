// The parallel layout inferred from descriptions and from traffic, on hand-made facts.
#include <gtest/gtest.h>

#include "analysis/bandwidth.h"
#include "analysis/finding.h"
#include "analysis/group_roles.h"
#include "analysis/hand_made_job.h"

namespace vitrine {
namespace {

CollectiveUse& phase_use(RankFacts& rank, const std::string& name, Phase phase, int64_t at) {
  CollectiveUse& use = add_use(rank, name, at, at + 10 * kUs, 1 << 20, 1);
  use.phase = phase;
  return use;
}

TEST(GroupRoles, AreReadFromTheWordsOfFrameworks) {
  EXPECT_EQ(role_of_description("TENSOR_MODEL_PARALLEL_GROUP"), "tensor");
  EXPECT_EQ(role_of_description("PIPELINE_MODEL_PARALLEL_GROUP"), "pipeline");
  EXPECT_EQ(role_of_description("DATA_PARALLEL_GROUP"), "data");
  EXPECT_EQ(role_of_description("DATA_PARALLEL_GROUP_WITH_CP"), "data_context");
  EXPECT_EQ(role_of_description("CONTEXT_PARALLEL_GROUP"), "context");
  EXPECT_EQ(role_of_description("EXPERT_MODEL_PARALLEL_GROUP"), "expert");
  EXPECT_EQ(role_of_description("EXPERT_DATA_PARALLEL_GROUP"), "expert_data");
  EXPECT_EQ(role_of_description("TENSOR_AND_DATA_PARALLEL_GROUP"), "combined");
  EXPECT_EQ(role_of_description("MODEL_PARALLEL_GROUP"), "combined");
  EXPECT_EQ(role_of_description("EMBEDDING_GROUP"), "embedding");
  EXPECT_EQ(role_of_description("mesh_dp_shard"), "data");
  EXPECT_EQ(role_of_description("mesh_dp_shard_cp"), "data_context");
  EXPECT_EQ(role_of_description("mesh_tp"), "tensor");
  EXPECT_EQ(role_of_description("tp:0"), "tensor");
  EXPECT_EQ(role_of_description("default_pg"), "world");
  EXPECT_EQ(role_of_description("undefined"), "");
  EXPECT_EQ(role_of_description(""), "");
}

TEST(Layout, DescriptionsGiveTheDegreesThoughRanksAreElided) {
  RankFacts rank = hand_made_rank(0, 64);
  rank.groups = {{"0", "default_pg", {}, 64},
                 {"7", "TENSOR_MODEL_PARALLEL_GROUP", {}, 4},
                 {"9", "PIPELINE_MODEL_PARALLEL_GROUP", {}, 8},
                 {"12", "DATA_PARALLEL_GROUP", {}, 2}};
  const LayoutFacts layout = measure_job({rank}, {}, {}).layout;
  EXPECT_EQ(layout.tensor, 4);
  EXPECT_EQ(layout.pipeline, 8);
  EXPECT_EQ(layout.data, 2);
  EXPECT_TRUE(layout.known);
  EXPECT_EQ(layout.confidence, "certain");
}

// A mesh of two replicas whose sharding dimension has `size` ranks, `name` its description.
JobFacts sharded_over(int32_t size, const std::string& name) {
  RankFacts rank = hand_made_rank(0, 2);
  rank.groups = {{"1", "mesh_dp_replicate", {}, 2}, {"2", name, {}, size}};
  add_step(rank, 1, 0, 100 * kMs);
  phase_use(rank, "all_gather", Phase::kForward, 0).group = 1;
  phase_use(rank, "reduce_scatter", Phase::kBackward, kMs).group = 1;
  phase_use(rank, "all_reduce", Phase::kBackward, 2 * kMs).group = 0;
  return measure_job({rank}, {}, {});
}

bool says_without_effect(const JobFacts& job) {
  const std::vector<Finding> findings = diagnose(job).findings;
  return std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.rule == "sharding_without_effect";
  });
}

TEST(Layout, ShardingOverADimensionOfOneIsSeenAndSaid) {
  const JobFacts alone = sharded_over(1, "mesh_dp_shard");
  EXPECT_TRUE(alone.layout.sharded_alone);
  EXPECT_FALSE(alone.layout.data_sharded);
  EXPECT_TRUE(says_without_effect(alone));
  const JobFacts two = sharded_over(2, "mesh_dp_shard");
  EXPECT_FALSE(two.layout.sharded_alone);
  EXPECT_FALSE(says_without_effect(two));
  // With context parallelism the shards lie over its ranks as well: one data rank is no fault.
  EXPECT_FALSE(says_without_effect(sharded_over(2, "mesh_dp_shard_cp")));
  EXPECT_FALSE(says_without_effect(sharded_over(1, "mesh_tp")));
}

TEST(Bandwidth, FactorsAreThoseOfNcclTests) {
  const std::pair<const char*, double> table[] = {{"all_reduce", 1.5},
                                                  {"all_gather", 0.75},
                                                  {"reduce_scatter", 0.75},
                                                  {"all_to_all", 0.75},
                                                  {"all_to_all_v", 0.75},
                                                  {"gather", 0.75},
                                                  {"scatter", 0.75},
                                                  {"broadcast", 1},
                                                  {"reduce", 1},
                                                  {"send", 1},
                                                  {"send_receive", 1},
                                                  {"barrier", 0},
                                                  {"", 0}};
  for (const auto& [name, factor] : table) EXPECT_DOUBLE_EQ(bus_factor(name, 4), factor) << name;
  EXPECT_DOUBLE_EQ(bus_factor("all_reduce", 1), 0);
}

TEST(Clocks, OfARankWithoutAnythingRecordedSayNothing) {
  constexpr int64_t kDay = int64_t{86'400'000} * kMs;
  std::vector<RankFacts> ranks;
  for (int32_t i = 0; i < 3; ++i) {
    ranks.push_back(hand_made_rank(i, 3));
    if (i == 0) continue;  // nothing recorded: begins and ends at 0
    add_use(ranks.back(), "all_reduce", kDay, kDay + kMs, 1 << 20);
    ranks.back().begin_ns = kDay;
  }
  const auto hour_apart = [](const JobFacts& job) {
    return std::any_of(job.warnings.begin(), job.warnings.end(), [](const std::string& warning) {
      return warning.find("hour apart") != std::string::npos;
    });
  };
  EXPECT_FALSE(hour_apart(measure_job(ranks, {}, {})));
  ranks[2].begin_ns += kDay;
  ranks[2].end_ns += kDay;
  EXPECT_TRUE(hour_apart(measure_job(ranks, {}, {})));
}

TEST(Layout, MeshesOfReplicasAndShardsMultiply) {
  RankFacts rank = hand_made_rank(0, 16);
  rank.groups = {
      {"1", "mesh_dp_replicate", {}, 2}, {"2", "mesh_dp_shard", {}, 4}, {"3", "mesh_tp", {}, 2}};
  phase_use(rank, "all_gather", Phase::kForward, 0).group = 1;
  phase_use(rank, "reduce_scatter", Phase::kBackward, kMs).group = 1;
  const LayoutFacts layout = measure_job({rank}, {}, {}).layout;
  EXPECT_EQ(layout.data, 8);
  EXPECT_EQ(layout.tensor, 2);
  EXPECT_TRUE(layout.data_sharded);
  EXPECT_EQ(layout.confidence, "certain");
}

TEST(Layout, AllReducesOnlyInBackwardAreDataParallelism) {
  RankFacts rank = hand_made_rank(0, 8);
  for (int64_t i = 0; i < 6; ++i) phase_use(rank, "all_reduce", Phase::kBackward, i * kMs);
  const LayoutFacts layout = measure_job({rank}, {}, {}).layout;
  EXPECT_EQ(layout.data, 8);
  EXPECT_EQ(layout.tensor, 1);
  EXPECT_FALSE(layout.data_sharded);
  EXPECT_EQ(layout.confidence, "likely");
}

TEST(Layout, ManyAllReducesInForwardAreTensorParallelism) {
  RankFacts rank = hand_made_rank(0, 8);
  rank.groups = {{"1", "undefined", {0, 1}, 2}, {"2", "undefined", {0, 2, 4, 6}, 4}};
  rank.phase_ns[static_cast<size_t>(Phase::kBackward)] = kMs;
  for (int64_t i = 0; i < 12; ++i) {
    phase_use(rank, "all_reduce", Phase::kForward, i * kMs);
    phase_use(rank, "all_reduce", Phase::kBackward, (20 + i) * kMs);
  }
  phase_use(rank, "all_reduce", Phase::kBackward, 40 * kMs).group = 1;
  const LayoutFacts layout = measure_job({rank}, {}, {}).layout;
  EXPECT_EQ(layout.tensor, 2);
  EXPECT_EQ(layout.data, 4);
  EXPECT_EQ(layout.confidence, "likely");
}

TEST(Layout, GathersAndScattersAreShardedData) {
  RankFacts rank = hand_made_rank(0, 4);
  for (int64_t i = 0; i < 5; ++i) {
    phase_use(rank, "all_gather", Phase::kForward, i * kMs);
    phase_use(rank, "reduce_scatter", Phase::kBackward, (10 + i) * kMs);
  }
  const LayoutFacts layout = measure_job({rank}, {}, {}).layout;
  EXPECT_EQ(layout.data, 4);
  EXPECT_TRUE(layout.data_sharded);
}

TEST(Layout, AProductThatMissesTheWorldIsSaid) {
  RankFacts rank = hand_made_rank(0, 12);
  rank.groups = {{"7", "TENSOR_MODEL_PARALLEL_GROUP", {}, 4}};
  const LayoutFacts layout = measure_job({rank}, {}, {}).layout;
  EXPECT_EQ(layout.confidence, "guess");
  EXPECT_NE(layout.reasons.back().find("12"), std::string::npos);
}

TEST(Layout, WithoutTrafficOrWordsNothingIsKnown) {
  EXPECT_FALSE(measure_job({hand_made_rank(0, 8)}, {}, {}).layout.known);
  EXPECT_EQ(measure_job({hand_made_rank(0, 1)}, {}, {}).layout.confidence, "certain");
}

}  // namespace
}  // namespace vitrine
