// Real traces with known properties measured as jobs; skipped where they are not there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>

#include "analysis/job_facts.h"
#include "readers/kineto.h"
#include "support/shared_data.h"
#include "support/temporary_folder.h"

namespace vitrine {
namespace {

JobFacts h200(const std::string& label) {
  const std::string folder = shared_data() + "/traces/h200/" + label;
  std::vector<RankFacts> ranks;
  for (const char* name : {"/rank0.json.gz", "/rank1.json.gz"}) {
    ranks.push_back(measure_rank(read_kineto(folder + name)));
  }
  return measure_job(std::move(ranks), {}, {});
}

const CollectiveKind* kind_of(const JobFacts& job, const std::string& name) {
  for (const CollectiveKind& kind : job.collective_kinds) {
    if (kind.name == name && kind.count > 0) return &kind;
  }
  return nullptr;
}

class JobTraces : public testing::Test {
 protected:
  void SetUp() override {
    if (shared_data().empty()) GTEST_SKIP() << "no shared data (VITRINE_SHARED_DATA)";
  }
};

TEST_F(JobTraces, TheHealthyRunIsFastAndHasNoStraggler) {
  const JobFacts job = h200("ddp_healthy");
  EXPECT_LT(std::abs(job.clocks[1].offset_ns), 50'000);
  EXPECT_EQ(job.clocks[1].method, "collectives end together");
  EXPECT_EQ(job.layout.data, 2);
  EXPECT_FALSE(job.layout.data_sharded);
  EXPECT_TRUE(job.straggler.stragglers.empty());
  EXPECT_TRUE(job.outliers.empty());
  const CollectiveKind* kind = kind_of(job, "all_reduce");
  ASSERT_NE(kind, nullptr);
  EXPECT_GT(kind->bus_bytes_per_s, 0.7 * kind->expected_bytes_per_s);
}

TEST_F(JobTraces, WithoutPeerToPeerTheBusBandwidthIsFarUnderTheLinks) {
  const JobFacts job = h200("ddp_healthy_no_p2p");
  const CollectiveKind* kind = kind_of(job, "all_reduce");
  ASSERT_NE(kind, nullptr);
  EXPECT_EQ(kind->expected_from, "NVLink of NVIDIA H200");
  EXPECT_LT(kind->bus_bytes_per_s, 0.2 * kind->expected_bytes_per_s);
  EXPECT_GT(kind->bus_bytes_per_s, 0);
}

TEST_F(JobTraces, TheStragglerIsRank1ByItsExtraKernels) {
  const JobFacts job = h200("straggler_rank1");
  ASSERT_EQ(job.straggler.stragglers.size(), 1u);
  const Straggler& straggler = job.straggler.stragglers[0];
  EXPECT_EQ(straggler.rank, 1);
  EXPECT_EQ(straggler.steps, 3);
  EXPECT_EQ(straggler.reason, "compute");
  ASSERT_FALSE(straggler.more.empty());
  EXPECT_NE(straggler.more[0].find("25 calls against 0"), std::string::npos);
}

TEST_F(JobTraces, LongKernelsOfTheLaunchBoundRunWaitForRank0) {
  const JobFacts job = h200("launch_bound");
  ASSERT_FALSE(job.waits[1].waited_for.empty());
  EXPECT_EQ(job.waits[1].waited_for[0].first, 0);
  EXPECT_GT(job.waits[1].exposed_wait_ns, 20 * job.waits[1].exposed_transfer_ns);
}

TEST_F(JobTraces, FullyShardedRunsAreShardedData) {
  for (const char* label : {"fsdp_healthy", "fsdp_checkpointed"}) {
    const JobFacts job = h200(label);
    EXPECT_EQ(job.layout.data, 2) << label;
    EXPECT_TRUE(job.layout.data_sharded) << label;
    EXPECT_EQ(job.layout.tensor * job.layout.pipeline, 1) << label;
  }
}

TEST_F(JobTraces, InTheShardedRunTheHostOfRank1IsLate) {
  const JobFacts job = h200("fsdp_healthy");
  ASSERT_FALSE(job.straggler.stragglers.empty());
  for (const Straggler& straggler : job.straggler.stragglers) {
    EXPECT_EQ(straggler.rank, 1);
    EXPECT_EQ(straggler.reason, "host");
  }
  EXPECT_GT(job.waits[0].exposed_wait_ns, 5 * job.waits[0].exposed_transfer_ns);
}

TEST_F(JobTraces, GPipeOfFourMicroBatchesWaitsForItsHostBoundStage) {
  const JobFacts job = h200("pipeline_gpipe_4mb");
  ASSERT_TRUE(job.pipeline.has_value());
  EXPECT_EQ(job.layout.pipeline, 2);
  EXPECT_EQ(job.pipeline->stages, 2);
  EXPECT_EQ(job.pipeline->micro_batches, 4);
  EXPECT_EQ(job.pipeline->order, "gpipe");
  EXPECT_NEAR(job.pipeline->ideal_bubble, 0.2, 1e-12);
  EXPECT_EQ(job.pipeline->cells.size(), 48u);  // 3 steps, 2 stages, 4 micro-batches, both ways
  const PipelineStage& first = job.pipeline->by_stage.at(0);
  const PipelineStage& last = job.pipeline->by_stage.at(1);
  EXPECT_GT(first.waiting_ns, 10 * first.schedule_ns);
  EXPECT_GT(last.host_bound_ns, last.step_ns / 2);
  for (const PipelineStage& s : {first, last}) {
    EXPECT_EQ(s.compute_ns + s.bubble_ns + s.host_bound_ns + s.transfer_ns + s.other_ns, s.step_ns);
    EXPECT_GE(s.other_ns, 0);
  }
}

TEST_F(JobTraces, OneForwardOneBackwardOfTwoMicroBatches) {
  const JobFacts job = h200("pipeline_1f1b_2mb");
  ASSERT_TRUE(job.pipeline.has_value());
  EXPECT_EQ(job.pipeline->micro_batches, 2);
  EXPECT_EQ(job.pipeline->order, "1f1b");
  EXPECT_NEAR(job.pipeline->ideal_bubble, 1.0 / 3, 1e-12);
  EXPECT_EQ(job.pipeline->cells.size(), 24u);
  EXPECT_GT(job.pipeline->by_stage.at(0).host_bound_ns, job.pipeline->by_stage.at(0).step_ns / 2);
  EXPECT_GT(job.pipeline->by_stage.at(1).waiting_ns, job.pipeline->by_stage.at(1).schedule_ns);
}

TEST_F(JobTraces, EightRanksOfDlrmNameTheLatestArrivals) {
  const std::string archive = shared_data() + "/traces/public/dlrm_8ranks.tar.gz";
  if (!std::filesystem::exists(archive)) GTEST_SKIP() << "no " << archive;
  const TemporaryFolder folder;
  const std::string command =
      "tar -xzf '" + archive + "' --strip-components 1 -C '" + folder.path() + "'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::vector<RankFacts> ranks;
  for (const auto& entry : std::filesystem::directory_iterator(folder.path())) {
    ranks.push_back(measure_rank(read_kineto(entry.path().string())));
  }
  ASSERT_EQ(ranks.size(), 8u);
  const JobFacts job = measure_job(std::move(ranks), {}, {});
  ASSERT_EQ(job.collectives.size(), 8u);
  std::map<int32_t, int64_t> last;
  for (const CollectiveKind& kind : job.collective_kinds) {
    EXPECT_EQ(kind.unmatched, 0);
    for (const auto& [rank, times] : kind.last_arrivals) last[rank] += times;
  }
  EXPECT_EQ(last, (std::map<int32_t, int64_t>{{7, 5}, {5, 2}, {4, 1}}));
  EXPECT_NEAR(static_cast<double>(job.collectives[0].arrival_skew_ns), 7.6e6, 1e5);
  for (const MatchedCollective& collective : job.collectives) {
    EXPECT_TRUE(collective.whole);
    EXPECT_LE(collective.end_skew_ns, 8'000);
  }
  for (const RankClock& clock : job.clocks) EXPECT_LE(std::abs(clock.offset_ns), 7'000);
}

TEST_F(JobTraces, OneRankOfABlackwellServerIsTensorParallel) {
  const std::string path = shared_data() + "/traces/public/tracelens__b200__eager_trace.json.gz";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no " << path;
  const JobFacts job = measure_job({measure_rank(read_kineto(path))}, {}, {});
  EXPECT_EQ(job.layout.world_size, 8);
  EXPECT_EQ(job.layout.tensor, 8);
  EXPECT_EQ(job.layout.data, 1);
  EXPECT_FALSE(job.straggler.tested);
}

}  // namespace
}  // namespace vitrine
