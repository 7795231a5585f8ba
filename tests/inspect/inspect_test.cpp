// From files to facts: which file belongs to what, and what one bad file among good ones does.
#include "inspect/inspect.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "core/error.h"
#include "core/json.h"
#include "inspect/job_sums.h"
#include "inspect/trace_edit.h"
#include "report/analysis_json.h"
#include "support/scratch.h"
#include "support/shared_data.h"

namespace vitrine {
namespace {
namespace fs = std::filesystem;

using testing::Contains;
using testing::HasSubstr;

std::string small_trace(int rank, int kernel_us) {
  return R"({"distributedInfo": {"rank": )" + std::to_string(rank) +
         R"(, "world_size": 3}, "traceEvents": [
{"ph":"X","cat":"kernel","name":"gemm","pid":0,"tid":7,"ts":10,"dur":)" +
         std::to_string(kernel_us) + R"(,"args":{"stream":7}}]})";
}

class Inspect : public testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) {
    write_text_file(folder_ / name, text);
  }
  ScratchFolder folder_;
};

TEST_F(Inspect, RanksComeInOrderWhateverTheirFilesAreCalled) {
  write("b.json", small_trace(0, 30));
  write("a.json", small_trace(2, 50));
  write("c.json", small_trace(1, 40));
  std::atomic<int> visited{0};
  InspectOptions options;
  options.visit = [&](const RankTimeline&, const Input&) { ++visited; };
  const JobFacts job = inspect_job({folder_.path()}, options);
  ASSERT_EQ(job.ranks.size(), 3u);
  EXPECT_EQ(visited, 3);
  for (int rank = 0; rank < 3; ++rank) {
    EXPECT_EQ(job.ranks[static_cast<size_t>(rank)].rank, rank);
    EXPECT_EQ(job.ranks[static_cast<size_t>(rank)].total.compute_ns, 30000 + 10000 * rank);
  }
  EXPECT_EQ(job.world_size, 3);
}

TEST_F(Inspect, OneFileThatCannotBeReadBesideOthersIsAWarning) {
  write("rank0.json", small_trace(0, 30));
  write("rank1.json", "{\"traceEvents\": 7}");
  const JobFacts job = inspect_job({folder_.path()});
  ASSERT_EQ(job.ranks.size(), 1u);
  EXPECT_THAT(job.warnings, Contains(HasSubstr("rank1.json")));
}

TEST_F(Inspect, NothingThatCanBeReadIsAnErrorThatNamesThePath) {
  EXPECT_THAT(message_of<IoError>([&] { inspect_job({folder_ / "absent"}); }), HasSubstr("absent"));
  write("only.json", "{\"traceEvents\": [");
  EXPECT_THAT(message_of<IoError>([&] { inspect_job({folder_ / "only.json"}); }),
              HasSubstr("only.json"));
}

TEST_F(Inspect, WhatTheVisitorThrowsEndsTheInspection) {
  write("rank0.json", small_trace(0, 30));
  InspectOptions options;
  options.visit = [](const RankTimeline&, const Input&) { throw IoError("stop"); };
  EXPECT_EQ(message_of<IoError>([&] { inspect_job({folder_.path()}, options); }), "stop");
}

TEST_F(Inspect, TheJsonHoldsTheDocumentedKeys) {
  write("rank0.json", small_trace(0, 30));
  const JobFacts job = inspect_job({folder_.path()});
  const Json json = analysis_json(job, diagnose(job));
  const Json& totals = json["ranks"][0]["totals"];
  EXPECT_EQ(totals["compute_ns"], 30000);
  for (const char* key :
       {"span_ns", "exposed_comm_ns", "exposed_mem_ns", "idle_ns", "overlap_comp_comm_ns"}) {
    EXPECT_TRUE(totals.contains(key)) << key;
  }
  for (const char* key : {"layout", "findings", "warnings", "verdict", "abstained", "pipeline"}) {
    EXPECT_TRUE(json.contains(key)) << key;
  }
  EXPECT_TRUE(json["pipeline"].is_null()) << "what is not known is null";
}

Json analysis_of(const std::vector<std::string>& paths) {
  const JobFacts job = inspect_job(paths);
  return analysis_json(job, diagnose(job));
}

// Merged, and as the two files: all the same but the files' names, to the nanosecond.
TEST(InspectMerged, AMergedFileSaysWhatItsRanksFilesSay) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference traces here (VITRINE_SHARED_DATA)";
  for (const std::string label :
       {"ddp_healthy", "pipeline_1f1b_2mb", "straggler_rank1", "fsdp_checkpointed"}) {
    SCOPED_TRACE(label);
    const std::string folder = data + "/traces/h200/" + label;
    const ScratchFolder scratch;
    const JobFacts apart = inspect_job({folder});
    std::vector<MergeInput> inputs;
    for (size_t i = 0; i < apart.ranks.size(); ++i)
      inputs.push_back({apart.ranks[i].path, apart.ranks[i].rank, apart.clocks[i].offset_ns});
    ASSERT_EQ(inputs.size(), 2u);
    merge_traces(inputs, scratch / "all.json.gz");
    Json merged = analysis_of({scratch / "all.json.gz"});
    Json separate = analysis_json(apart, diagnose(apart));
    for (Json& rank : merged["ranks"]) rank.erase("source");
    for (Json& rank : separate["ranks"]) rank.erase("source");
    EXPECT_EQ(merged["ranks"].size(), 2u);
    EXPECT_FALSE(merged["findings"].is_null());
    EXPECT_EQ(Json::diff(separate, merged).dump(), "[]");
  }
}

TEST_F(Inspect, RanksWhoseSumsWouldNotFitAreLeftOutWithAWarning) {
  // Each is at the bound of one file; 2^61 / 2^56 of them fit.
  std::string events;
  for (int i = 0; i < 5000; ++i) {
    events +=
        std::string(i > 0 ? "," : "") +
        R"({"ph":"i","name":"[memory]","pid":0,"tid":1,"ts":1,"args":{"Bytes":17592186044416}})";
  }
  for (int rank = 0; rank < 40; ++rank) {
    write("rank" + std::to_string(rank) + ".json",
          R"({"distributedInfo": {"rank": )" + std::to_string(rank) +
              R"(, "world_size": 40}, "traceEvents": [)" + events + "]}");
  }
  const JobFacts job = inspect_job({folder_.path()});
  EXPECT_EQ(job.ranks.size(), 32u);
  EXPECT_THAT(job.warnings, Contains(HasSubstr("left out: rank 32 of")));
}

TEST(JobSums, StopAtTheirBound) {
  RankTimeline timeline;
  timeline.spans.start_ns = {INT64_MIN / 2, INT64_MAX / 2 + 1};
  timeline.spans.duration_ns = {INT64_MAX, INT64_MAX};
  timeline.spans.bytes = {INT64_MIN, INT64_MAX};
  EXPECT_EQ(sums_of(timeline).time_ns, JobSums::kMost);
  EXPECT_EQ(sums_of(timeline).bytes, JobSums::kMost);
  JobSums sums;
  EXPECT_TRUE(sums.add({JobSums::kMost - 1, 0}));
  EXPECT_FALSE(sums.add({2, 0}));
  EXPECT_TRUE(sums.add({1, JobSums::kMost}));
  EXPECT_FALSE(sums.add({0, 1}));
}

// Every number of every file against exact interval truth, through the documented interface.
void expect_golden(const std::string& golden, const std::string& folder) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference traces here (VITRINE_SHARED_DATA)";
  const Json truth = read_json_file(data + "/golden/" + golden);
  const ScratchFolder unpacked;
  const std::string archive = data + folder + "dlrm_8ranks.tar.gz";
  if (fs::exists(archive)) {
    ASSERT_EQ(std::system(("tar -xzf " + archive + " -C " + unpacked.path()).c_str()), 0);
  }
  EXPECT_GE(truth.size(), 20u);
  for (const auto& [name, want] : truth.items()) {
    SCOPED_TRACE(name);
    std::string path = data + folder + name;
    if (!fs::exists(path)) path = unpacked / ("dlrm_kineto/" + fs::path(name).filename().string());
    const JobFacts job = inspect_job({path});
    const Json json = analysis_json(job, Diagnosis{});
    const Json& rank = json["ranks"][0];
    for (const char* key : {"span_ns",
                            "compute_ns",
                            "exposed_comm_ns",
                            "exposed_mem_ns",
                            "idle_ns",
                            "overlap_comp_comm_ns"}) {
      EXPECT_EQ(rank["totals"][key], want[key]) << key;
    }
    ASSERT_EQ(rank["steps"].size(), want["steps"].size());
    for (size_t i = 0; i < want["steps"].size(); ++i) {
      EXPECT_EQ(rank["steps"][i]["name"], want["steps"][i][0]);
      EXPECT_EQ(rank["steps"][i]["duration_ns"], want["steps"][i][1]);
    }
  }
}

TEST(GoldenJson, TwoGpuRunsAreExact) { expect_golden("h200.json", "/traces/h200/"); }
TEST(GoldenJson, PublicTracesAreExact) { expect_golden("public.json", "/traces/public/"); }

}  // namespace
}  // namespace vitrine
