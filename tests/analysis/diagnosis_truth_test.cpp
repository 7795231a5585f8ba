// Real traces with a known fault: the first finding must be it. And public traces that must not be
// misjudged. Skipped where the data are absent.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "analysis/compare.h"
#include "analysis/facts_builder.h"
#include "readers/kineto.h"
#include "readers/nccl_log.h"
#include "support/shared_data.h"
#include "support/temporary_folder.h"

namespace vitrine {
namespace {

std::vector<std::string> trace_files(const std::string& path) {
  if (!std::filesystem::is_directory(path)) return {path};
  std::vector<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator(path)) files.push_back(entry.path());
  std::sort(files.begin(), files.end());
  return files;
}

JobFacts job_at(const std::string& path) {
  std::vector<RankFacts> ranks;
  for (const std::string& file : trace_files(path))
    ranks.push_back(measure_rank(read_kineto(file)));
  return measure_job(std::move(ranks), {}, {});
}

struct Truth {
  const char* label;
  const char* rule;               // of the first finding; "" = no warning at all
  std::vector<int32_t> ranks;     // it must name; empty: all
  std::vector<std::string> says;  // its own words
};

// What traces/h200/truth.json calls the good diagnosis of each label.
const std::vector<Truth>& truths() {
  static const std::vector<Truth> all = {
      {"ddp_healthy", "", {}, {}},
      // Nothing planted: rank 1's host is late, rank 0 waits, and bandwidth is not to blame.
      {"fsdp_healthy", "straggler", {1}, {"by its host", "waiting, not bandwidth"}},
      {"ddp_one_bucket",
       "launch_bound",
       {},
       {"gradient synchronisation is exposed: overlap 0.0 %"}},
      {"slow_data_loader", "input_starvation", {}, {"'data'"}},
      {"launch_bound", "launch_bound", {}, {"waiting for rank 0", "not transfer"}},
      {"straggler_rank1", "straggler", {1}, {"by compute", "waiting, not bandwidth"}},
      {"pipeline_gpipe_4mb",
       "pipeline_bubble",
       {1},
       {"Pipeline of 2 stages, 4 micro-batches (gpipe)",
        "stage 1 host-bound",
        "by schedule",
        "by waiting",
        "= 0.200"}},
      {"pipeline_1f1b_2mb",
       "pipeline_bubble",
       {0},
       {"Pipeline of 2 stages, 2 micro-batches (1f1b)",
        "too few micro-batches",
        "stage 0 host-bound",
        "= 0.333"}},
      {"fsdp_checkpointed",
       "recompute_unneeded",
       {},
       {"Recomputation", "run again inside backward"}},
      {"ddp_healthy_no_p2p", "slow_collective", {}, {"Slow link", "NVLink of NVIDIA H200"}}};
  return all;
}

class TruthOf : public testing::TestWithParam<Truth> {};

TEST_P(TruthOf, IsTheFirstFinding) {
  const std::string folder = shared_data() + "/traces/h200/" + GetParam().label;
  if (shared_data().empty()) GTEST_SKIP() << "no shared data";
  const Diagnosis diagnosis = diagnose(job_at(folder));
  std::string list;
  for (const Finding& finding : diagnosis.findings) {
    list += std::string(severity_name(finding.severity)) + " " + finding.rule + "; ";
  }
  if (std::string(GetParam().rule).empty()) {
    for (const Finding& finding : diagnosis.findings) {
      EXPECT_EQ(finding.severity, Severity::kNote) << finding.rule;
    }
    EXPECT_TRUE(diagnosis.verdict.starts_with("Nothing worth changing")) << diagnosis.verdict;
    return;
  }
  ASSERT_FALSE(diagnosis.findings.empty());
  const Finding& first = diagnosis.findings.front();
  EXPECT_EQ(first.rule, GetParam().rule) << list;
  EXPECT_NE(first.severity, Severity::kNote);
  EXPECT_EQ(first.ranks, GetParam().ranks);
  for (const std::string& words : GetParam().says) {
    EXPECT_TRUE(says(first, words)) << words << "\nnot in:\n" << all_text(first);
  }
  // Each place lies within its rank's recording.
  for (const Evidence& evidence : first.evidence) EXPECT_LE(evidence.begin_ns, evidence.end_ns);
}

INSTANTIATE_TEST_SUITE_P(H200, TruthOf, testing::ValuesIn(truths()), [](const auto& info) {
  return std::string(info.param.label);
});

TEST(SlowLink, IsExplainedByTheNcclLog) {
  if (shared_data().empty()) GTEST_SKIP() << "no shared data";
  JobFacts job = job_at(shared_data() + "/traces/h200/ddp_healthy_no_p2p");
  job.nccl.push_back(read_nccl_log(shared_data() + "/logs/nccl_h200_x2_p2p_disabled.log"));
  const Diagnosis diagnosis = diagnose(job);
  EXPECT_EQ(diagnosis.findings.at(0).rule, "slow_collective");
  EXPECT_TRUE(says(diagnosis.findings[0], "NCCL_P2P_DISABLE is set"));
  EXPECT_TRUE(says(diagnosis.findings[0], "P2P 0, SHM 8"));
}

std::string public_trace(const char* name) { return shared_data() + "/traces/public/" + name; }

TEST(PublicTraces, StarvationIsFoundWithoutWorkersAndNotWithFour) {
  if (shared_data().empty()) GTEST_SKIP() << "no shared data";
  const JobFacts none = job_at(public_trace("kineto__resnet50_num_workers_0.json.gz"));
  const JobFacts four = job_at(public_trace("kineto__resnet50_num_workers_4.json.gz"));
  EXPECT_EQ(diagnose(none).findings.at(0).rule, "input_starvation");
  EXPECT_FALSE(find(diagnose(four), "input_starvation"));
  const Comparison found = compare(none, four);
  EXPECT_NE(found.summary.find("The largest cause is the data loader"), std::string::npos)
      << found.summary;
  EXPECT_EQ(found.host.front().name, "data loader");
}

TEST(PublicTraces, WithoutDeviceWorkOrFullOfItAreLeftAlone) {
  if (shared_data().empty()) GTEST_SKIP() << "no shared data";
  for (const char* name : {"hta__distributed_info_unavailable__distributed_info_not_found.json.gz",
                           "hta__rank_unavailable__rank_not_found.json.gz"}) {
    EXPECT_TRUE(diagnose(job_at(public_trace(name))).verdict.starts_with("Not judged")) << name;
  }
  const Diagnosis replay = diagnose(
      job_at(public_trace("tracelens__inference__vllm_decode_full__graph_execution.json.gz")));
  EXPECT_TRUE(replay.verdict.starts_with("Nothing worth changing")) << replay.verdict;
}

TEST(PublicTraces, RankSevenOfEightIsTheOneWaitedFor) {
  if (shared_data().empty()) GTEST_SKIP() << "no shared data";
  TemporaryFolder folder;
  const std::string command = "tar -xzf '" + public_trace("dlrm_8ranks.tar.gz") + "' -C '" +
                              folder.path() + "' --strip-components=1";
  ASSERT_EQ(std::system(command.c_str()), 0);
  const std::optional<Finding> found = warned(diagnose(job_at(folder.path())), "collective_wait");
  ASSERT_TRUE(found.has_value());
  EXPECT_TRUE(says(*found, "for rank 7")) << all_text(*found);
  EXPECT_TRUE(says(*found, "waiting, not bandwidth"));
}

TEST(PublicTraces, ClaimNoMoreThanTheStep) {
  if (shared_data().empty()) GTEST_SKIP() << "no shared data";
  for (const char* name :
       {"tracelens__mi300__resnet_act_checkpoint.json.gz",
        "hta__df_index_resolver__df_index_resolver.json.gz",
        "hta__timeline_analysis__sampled_rank-0.json.gz",
        "hta__large_integer_trace__rank-70.Mar_25_20_48_12.2861.pt.trace.json.gz"}) {
    double communication = 0;
    for (const Finding& finding : diagnose(job_at(public_trace(name))).findings) {
      EXPECT_LE(finding.share, 1.0) << name << " " << finding.rule;
      if (finding.rule.starts_with("exposed_g") || finding.rule.starts_with("exposed_comm") ||
          finding.rule == "slow_collective") {
        communication += finding.share;
      }
    }
    EXPECT_LE(communication, 1.0) << name;
  }
}

}  // namespace
}  // namespace vitrine
