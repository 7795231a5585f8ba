// Facts of real traces against exact totals that another program computed, and what must add up.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <numeric>

#include "analysis/rank_facts.h"
#include "core/json.h"
#include "readers/kineto.h"
#include "support/shared_data.h"
#include "support/temporary_folder.h"

namespace vitrine {
namespace {

void expect_totals(const RankFacts& facts, const Json& truth) {
  EXPECT_EQ(facts.total.span_ns, truth["span_ns"].get<int64_t>());
  EXPECT_EQ(facts.total.compute_ns, truth["compute_ns"].get<int64_t>());
  EXPECT_EQ(facts.total.exposed_communication_ns, truth["exposed_comm_ns"].get<int64_t>());
  EXPECT_EQ(facts.total.exposed_copy_ns, truth["exposed_mem_ns"].get<int64_t>());
  EXPECT_EQ(facts.total.idle_ns, truth["idle_ns"].get<int64_t>());
  EXPECT_EQ(facts.total.overlap_ns, truth["overlap_comp_comm_ns"].get<int64_t>());
  ASSERT_EQ(facts.steps.size(), truth["steps"].size());
  for (size_t i = 0; i < facts.steps.size(); ++i) {
    EXPECT_EQ(facts.steps[i].name, truth["steps"][i][0].get<std::string>());
    EXPECT_EQ(facts.steps[i].duration_ns, truth["steps"][i][1].get<int64_t>());
  }
}

int64_t sum(const IdleByCause& causes) {
  return std::accumulate(causes.begin(), causes.end(), int64_t{0});
}

void expect_split(const Breakdown& time) {
  EXPECT_EQ(time.compute_ns + time.exposed_communication_ns + time.exposed_copy_ns + time.idle_ns,
            time.span_ns);
  EXPECT_EQ(time.communication_ns, time.exposed_communication_ns + time.overlap_ns);
  EXPECT_GE(time.idle_ns, 0);
}

void expect_sums(const RankFacts& facts) {
  expect_split(facts.total);
  EXPECT_EQ(sum(facts.idle_by_cause), facts.total.idle_ns);
  int64_t compute_of_kernels = 0, classes = 0;
  for (const KernelRow& row : facts.kernels) {
    if (!row.communication && !row.copy) compute_of_kernels += row.total_ns;
    EXPECT_LE(row.min_ns * row.count, row.total_ns);
    EXPECT_GE(row.max_ns * row.count, row.total_ns);
  }
  classes = std::accumulate(facts.class_ns.begin(), facts.class_ns.end(), int64_t{0});
  EXPECT_EQ(classes, compute_of_kernels);
  for (const int64_t phase : facts.phase_ns) EXPECT_LE(phase, facts.total.compute_ns);
  EXPECT_GE(std::accumulate(facts.phase_ns.begin(), facts.phase_ns.end(), int64_t{0}),
            facts.total.compute_ns);
  EXPECT_LE(facts.tensor_core_ns, facts.matmul_ns);
  int64_t exposed = 0;
  for (const CollectiveUse& use : facts.collectives) {
    EXPECT_GE(use.exposed_ns, 0);
    EXPECT_LE(use.exposed_ns, use.duration_ns);
    EXPECT_LT(use.group, static_cast<int32_t>(facts.groups.size()));
    exposed += use.exposed_ns;
  }
  EXPECT_GE(exposed, facts.total.exposed_communication_ns);  // equal unless two run at once
  EXPECT_LE(facts.work.size(), 20000u);
  for (size_t i = 0; i < facts.work.size(); ++i) {
    const WorkPiece& piece = facts.work[i];
    ASSERT_LE(piece.busy_ns, piece.end_ns - piece.begin_ns);
    if (i > 0) {
      ASSERT_LE(facts.work[i - 1].begin_ns, piece.begin_ns);
    }
  }
  for (const StepFacts& step : facts.steps) {
    SCOPED_TRACE(step.name);
    expect_split(step.time);
    expect_split(step.device);
    EXPECT_EQ(sum(step.idle_by_cause), step.time.idle_ns);
  }
  EXPECT_LE(facts.gaps.size(), 100u);
  for (size_t i = 1; i < facts.gaps.size(); ++i) {
    ASSERT_GE(facts.gaps[i - 1].duration_ns, facts.gaps[i].duration_ns);
  }
}

class MeasureRankGolden : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(MeasureRankGolden, TotalsStepsAndSumsAreExact) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference traces: set VITRINE_SHARED_DATA";
  const auto [golden, folder] = GetParam();
  const std::string base = data + "/traces/" + folder + "/";
  const TemporaryFolder unpacked;
  const std::string archive = base + "dlrm_8ranks.tar.gz";
  if (std::filesystem::exists(archive)) {
    std::filesystem::create_directory(unpacked / "dlrm_8ranks");
    const std::string command =
        "tar -xzf '" + archive + "' --strip-components 1 -C '" + (unpacked / "dlrm_8ranks") + "'";
    ASSERT_EQ(std::system(command.c_str()), 0);
  }
  const Json truth = read_json_file(data + "/golden/" + golden);
  for (const auto& [name, totals] : truth.items()) {
    SCOPED_TRACE(name);
    std::string path = base + name;
    if (!std::filesystem::exists(path)) path = unpacked / name;
    ASSERT_TRUE(std::filesystem::exists(path));
    const RankFacts facts = measure_rank(read_kineto(path));
    expect_totals(facts, totals);
    expect_sums(facts);
  }
}

INSTANTIATE_TEST_SUITE_P(Traces,
                         MeasureRankGolden,
                         testing::Values(std::pair("h200.json", "h200"),
                                         std::pair("public.json", "public")),
                         [](const auto& info) { return std::string(info.param.second); });

RankFacts of_label(const std::string& data, const std::string& label, int rank) {
  return measure_rank(
      read_kineto(data + "/traces/h200/" + label + "/rank" + std::to_string(rank) + ".json.gz"));
}

double share(const RankFacts& facts, IdleCause cause) {
  return static_cast<double>(facts.idle_by_cause[static_cast<size_t>(cause)]) /
         static_cast<double>(facts.total.span_ns);
}

// What was planted in each run (truth.json) shows in its numbers, and in no other run's.
TEST(MeasureRankReal, RecomputationIsSeenWhereItIsAndNowhereElse) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference traces: set VITRINE_SHARED_DATA";
  for (const char* label : {"fsdp_healthy",
                            "ddp_healthy",
                            "ddp_one_bucket",
                            "slow_data_loader",
                            "launch_bound",
                            "straggler_rank1",
                            "pipeline_gpipe_4mb",
                            "pipeline_1f1b_2mb",
                            "ddp_healthy_no_p2p"}) {
    EXPECT_EQ(of_label(data, label, 0).recompute_ns, 0) << label;
  }
  const RankFacts facts = of_label(data, "fsdp_checkpointed", 0);
  const auto forward = static_cast<double>(facts.phase_ns[0]);
  // Every block, but not the head and the loss.
  EXPECT_GT(static_cast<double>(facts.recompute_ns), 0.5 * forward);
  EXPECT_LT(static_cast<double>(facts.recompute_ns), forward);
  const std::string resnet =
      data + "/traces/public/tracelens__mi300__resnet_act_checkpoint.json.gz";
  if (std::filesystem::exists(resnet)) {
    EXPECT_GT(measure_rank(read_kineto(resnet)).recompute_ns, 0);
  }
}

TEST(MeasureRankReal, CausesOfIdlenessAreThePlantedOnes) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference traces: set VITRINE_SHARED_DATA";
  const RankFacts healthy = of_label(data, "ddp_healthy", 0);
  EXPECT_LT(healthy.launch.starved_share, 0.05);
  EXPECT_GT(healthy.launch.queue_mean, 50);
  EXPECT_LT(share(healthy, IdleCause::kHostLaunch), 0.03);
  for (const char* label : {"launch_bound", "ddp_one_bucket"}) {
    const RankFacts facts = of_label(data, label, 0);
    EXPECT_GT(facts.launch.starved_share, 0.6) << label;
    EXPECT_LT(facts.launch.queue_mean, 5) << label;
    EXPECT_GT(share(facts, IdleCause::kHostLaunch), 0.5) << label;
  }
  const RankFacts starved = of_label(data, "slow_data_loader", 0);
  EXPECT_GT(share(starved, IdleCause::kDataLoading), 0.5);
  for (const StepFacts& step : starved.steps) EXPECT_GT(step.data_ns, 60000000);
  EXPECT_GT(share(of_label(data, "pipeline_gpipe_4mb", 1), IdleCause::kHostLaunch), 0.6);
}

}  // namespace
}  // namespace vitrine
