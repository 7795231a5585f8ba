// The written trace is valid JSON in Kineto's dialect, exact to the nanosecond, and never half a
// file.
#include "timeline/chrome_writer.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <zlib.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <regex>

#include "core/error.h"
#include "core/json.h"
#include "timeline/synthetic_run.h"

namespace vitrine {
namespace {

class Folder {
 public:
  Folder() {
    char pattern[] = "/tmp/vitrine_trace_XXXXXX";
    path_ = mkdtemp(pattern);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string file(const std::string& name) const { return path_ + "/" + name; }
  size_t files() const {
    return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(path_), {}));
  }

 private:
  std::string path_;
};

std::string unzip(const std::string& path) {
  gzFile file = gzopen(path.c_str(), "rb");
  std::string text;
  char block[65536];
  int n = 0;
  while ((n = gzread(file, block, sizeof(block))) > 0) text.append(block, static_cast<size_t>(n));
  gzclose(file);
  return text;
}

Json written(const RankTimeline& timeline) {
  const Folder folder;
  write_chrome_trace(timeline, folder.file("t.json.gz"));
  return parse_json(unzip(folder.file("t.json.gz")), "t.json.gz");
}

std::vector<Json> events_of(const Json& trace, const std::string& category) {
  std::vector<Json> out;
  for (const Json& event : trace["traceEvents"]) {
    if (event.value("cat", "") == category) out.push_back(event);
  }
  return out;
}

TEST(ChromeWriter, DescribesTheRankAndItsGroups) {
  const Json trace = written(sample_timeline(1));
  EXPECT_EQ(trace["schemaVersion"], 1);
  EXPECT_EQ(trace["distributedInfo"]["rank"], 1);
  EXPECT_EQ(trace["distributedInfo"]["world_size"], 2);
  EXPECT_EQ(trace["distributedInfo"]["backend"], "gloo");
  EXPECT_EQ(trace["distributedInfo"]["pg_config"].size(), 1u);
  EXPECT_EQ(trace["distributedInfo"]["pg_config"][0]["ranks"], Json({0, 1}));
  EXPECT_EQ(trace["deviceProperties"][0]["name"], "cpu");
  EXPECT_EQ(trace["displayTimeUnit"], "ms");
  EXPECT_EQ(trace["vitrine"]["device"], "cpu");
}

TEST(ChromeWriter, KeepsEveryNanosecond) {
  const RankTimeline timeline = sample_timeline();
  const Json trace = written(timeline);
  const int64_t base = trace["baseTimeNanoseconds"].get<int64_t>();
  EXPECT_EQ(base % (int64_t{86400} * 1000000000), 0);
  std::vector<std::pair<int64_t, int64_t>> expected, found;
  for (size_t i = 0; i < timeline.spans.size(); ++i) {
    expected.emplace_back(timeline.spans.start_ns[i], timeline.spans.duration_ns[i]);
  }
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "X" || !event["args"].contains("Kind")) continue;
    found.emplace_back(
        base + std::llround(event["ts"].get<double>() * 1000) - timeline.wall_anchor_ns,
        std::llround(event["dur"].get<double>() * 1000));
  }
  EXPECT_EQ(found, expected);
}

TEST(ChromeWriter, WritesTimesBeforeTheAnchorWithTheirSign) {
  RankTimeline timeline;
  timeline.lanes = {{"host", false, 0}};
  add_span(timeline, -1500, 2001, SpanKind::kHost, "early", 0, -1);
  const Json trace = written(timeline);
  const Json event = events_of(trace, "user_annotation").at(0);
  const int64_t base = trace["baseTimeNanoseconds"].get<int64_t>();
  EXPECT_EQ(base + std::llround(event["ts"].get<double>() * 1000), -1500);
  EXPECT_EQ(event["dur"].get<double>(), 2.001);
}

TEST(ChromeWriter, GivesEveryPieceOfDeviceWorkALaunchThatDoesNotComeLater) {
  const Json trace = written(synthetic_run().ranks[0]);
  std::map<int64_t, double> launches;
  for (const Json& event : events_of(trace, "cuda_runtime")) {
    const int64_t id = event["args"]["correlation"].get<int64_t>();
    EXPECT_TRUE(launches.emplace(id, event["ts"].get<double>()).second) << id;
    EXPECT_EQ(event["name"], "cudaLaunchKernel");
  }
  size_t work = 0;
  for (const char* category : {"kernel", "gpu_memcpy"}) {
    for (const Json& event : events_of(trace, category)) {
      ++work;
      const int64_t id = event["args"]["correlation"].get<int64_t>();
      ASSERT_TRUE(launches.contains(id));
      EXPECT_LE(launches[id], event["ts"].get<double>());
      EXPECT_EQ(event["args"]["stream"], event["tid"]);
    }
  }
  EXPECT_EQ(work, launches.size());
  EXPECT_GT(work, 100u);
}

TEST(ChromeWriter, KeepsARecordedCorrelationAndItsOwnLaunch) {
  RankTimeline timeline;
  timeline.lanes = {{"stream 7", true, 7}, {"thread", false, 1}};
  add_span(timeline, 10, 5, SpanKind::kRuntime, "cudaLaunchKernelExC", 1, 0, -1, "", 99);
  add_span(timeline, 20, 50, SpanKind::kKernel, "gemm", 0, 0, -1, "", 99);
  const Json trace = written(timeline);
  ASSERT_EQ(events_of(trace, "cuda_runtime").size(), 1u);
  EXPECT_EQ(events_of(trace, "cuda_runtime")[0]["name"], "cudaLaunchKernelExC");
  EXPECT_EQ(events_of(trace, "kernel").at(0)["args"]["correlation"], 99);
}

TEST(ChromeWriter, OnlyInnermostSpansOfALaneAreKernels) {
  RankTimeline timeline;
  timeline.lanes = {{"compute", true, 0}};
  add_span(timeline, 0, 100, SpanKind::kForward, "forward body.0", 0, 0, 0, "body.0");
  add_span(timeline, 0, 40, SpanKind::kOperation, "linear", 0, 0, 0, "body.0");
  add_span(timeline, 50, 50, SpanKind::kOperation, "attention", 0, 0, 0, "body.0");
  add_span(timeline, 100, 10, SpanKind::kBackward, "backward body.0", 0, 0, 0, "body.0");
  const Json trace = written(timeline);
  EXPECT_EQ(events_of(trace, "kernel").size(), 3u);
  ASSERT_EQ(events_of(trace, "gpu_user_annotation").size(), 1u);
  EXPECT_EQ(events_of(trace, "gpu_user_annotation")[0]["name"], "forward body.0");
}

TEST(ChromeWriter, CollectivesCarryTheArgumentsOfKinetoOnKernelAndOperator) {
  const Json trace = written(sample_timeline());
  const Json kernel = events_of(trace, "kernel").at(0);
  EXPECT_EQ(kernel["name"], "vitrine_all_gather(ncclKernel_AllGather)");
  // The expression by which Holistic Trace Analysis finds communication.
  const std::regex hta("(^nccl.*)|(^hip)|(^hccl)|(.*ncclKernel.*)");
  EXPECT_TRUE(std::regex_match(kernel["name"].get<std::string>(), hta));
  Json operators = Json::array();
  for (const Json& event : events_of(trace, "cpu_op")) {
    if (event["name"] == "record_param_comms") operators.push_back(event);
  }
  ASSERT_EQ(operators.size(), 2u);
  for (const Json& event : {kernel, operators[0]}) {
    const Json& args = event["args"];
    EXPECT_EQ(args["Collective name"], "_allgather_base");
    EXPECT_EQ(args["In msg nelems"], 500);
    EXPECT_EQ(args["Out msg nelems"], 1000);
    EXPECT_EQ(args["Group size"], 2);
    EXPECT_EQ(args["dtype"], "BFloat16");
    EXPECT_EQ(args["Process Group Name"], "data");
    EXPECT_EQ(args["Process Group Ranks"], "[0, 1]");
    EXPECT_EQ(args["Seq"], 0);
  }
}

TEST(ChromeWriter, WritesStepsMemoryAndCounters) {
  const Json trace = written(sample_timeline());
  EXPECT_EQ(events_of(trace, "user_annotation").at(0)["name"], "ProfilerStep#0");
  int64_t allocated = 0;
  const auto instants = events_of(trace, "cpu_instant_event");
  ASSERT_EQ(instants.size(), 4u);
  for (const Json& event : instants) {
    EXPECT_EQ(event["name"], "[memory]");
    allocated += event["args"]["Bytes"].get<int64_t>();
    EXPECT_EQ(event["args"]["Total Allocated"], allocated);
  }
  size_t by_category = 0, loss = 0;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] != "C") continue;
    by_category += event["name"] == "memory by category";
    loss += event["name"] == "loss";
  }
  EXPECT_EQ(by_category, 4u);
  EXPECT_EQ(loss, 2u);
}

TEST(ChromeWriter, EscapesNamesAndReplacesBadUtf8) {
  RankTimeline timeline;
  timeline.lanes = {{"host \"a\"", false, 0}};
  add_span(timeline, 0, 1, SpanKind::kHost, "quote \" back\\slash\nline \xff end", 0, -1);
  const Json trace = written(timeline);
  EXPECT_EQ(events_of(trace, "user_annotation").at(0)["name"],
            "quote \" back\\slash\nline \xef\xbf\xbd end");
}

TEST(ChromeWriter, AnEmptyTimelineIsStillATrace) {
  EXPECT_TRUE(written(RankTimeline{})["traceEvents"].is_array());
}

TEST(ChromeWriter, WritesPlainTextWhenTheNameDoesNotEndInGz) {
  const Folder folder;
  write_chrome_trace(sample_timeline(), folder.file("t.json"));
  EXPECT_EQ(read_json_file(folder.file("t.json"))["schemaVersion"], 1);
}

TEST(ChromeWriter, SaysWhyItCannotWriteAndLeavesNothingBehind) {
  EXPECT_THROW(write_chrome_trace(sample_timeline(), "/nowhere/t.json.gz"), IoError);
  const Folder folder;
  rlimit old{};
  getrlimit(RLIMIT_FSIZE, &old);
  const rlimit tiny{4096, old.rlim_max};
  std::signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &tiny);
  std::string message;
  try {
    write_chrome_trace(synthetic_run().ranks[0], folder.file("t.json"));
  } catch (const IoError& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &old);
  EXPECT_NE(message.find("File too large"), std::string::npos) << message;
  EXPECT_EQ(folder.files(), 0u);
}

}  // namespace
}  // namespace vitrine
