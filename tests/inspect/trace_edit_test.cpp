// Cutting and merging: what stays is untouched, what goes is gone, and ranks are kept apart.
#include "inspect/trace_edit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "core/error.h"
#include "core/json.h"
#include "readers/kineto.h"
#include "readers/text_source.h"
#include "support/scratch.h"

namespace vitrine {
namespace {

using testing::HasSubstr;

// Two steps of 100 us; step 2's kernel runs after its step's window, step 1's inside its own.
const char* const kTrace = R"({"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "X"}],
"distributedInfo": {"rank": 0, "world_size": 2},
"traceEvents": [
{"ph":"M","name":"process_name","pid":7,"tid":0,"args":{"name":"python"}},
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#1","pid":7,"tid":7,"ts":1000.000,"dur":100.000,"args":{}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":7,"tid":7,"ts":1010.001,"dur":5.000,"args":{"correlation":11}},
{"ph":"X","cat":"kernel","name":"first \"quoted\"","pid":0,"tid":3,"ts":1020.000,"dur":50.123,"args":{"correlation":11,"stream":3,"odd":[1,{"a":2}]}},
{"ph":"s","cat":"ac2g","id":11,"name":"ac2g","pid":7,"tid":7,"ts":1010.001},
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#2","pid":7,"tid":7,"ts":1100.000,"dur":100.000,"args":{}},
{"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":7,"tid":7,"ts":1190.000,"dur":5.000,"args":{"correlation":12}},
{"ph":"X","cat":"kernel","name":"second","pid":0,"tid":3,"ts":1250.000,"dur":10.000,"args":{"correlation":12,"stream":3}},
{"ph":"s","cat":"ac2g","id":12,"name":"ac2g","pid":7,"tid":7,"ts":1190.000},
{"ph":"i","cat":"user","name":"mark","pid":7,"tid":7,"ts":1180.000,"s":"t"}
],
"baseTimeNanoseconds": 5000000})";

class TraceEdit : public testing::Test {
 protected:
  std::string write(const std::string& name, const std::string& text) {
    write_text_file(folder_ / name, text);
    return folder_ / name;
  }
  static Json read(const std::string& path) {
    std::string text(1 << 20, '\0');
    text.resize(open_text_source(path)->read(text.data(), text.size()));
    return parse_json(text, path);
  }
  static std::multiset<std::string> names(const Json& trace) {
    std::multiset<std::string> out;
    for (const Json& event : trace["traceEvents"]) out.insert(event["name"].get<std::string>());
    return out;
  }
  ScratchFolder folder_;
};

TEST_F(TraceEdit, ATimeCutKeepsWhatOverlapsAndEveryArgument) {
  CutOptions options;
  options.from_ns = 0, options.to_ns = 60000;  // 1000.000 .. 1060.000 us
  const CutResult result = cut_trace(write("a.json", kTrace), options, folder_ / "b.json");
  EXPECT_EQ(result.events_total, 10);
  EXPECT_EQ(result.events_kept, 5);
  const Json cut = read(folder_ / "b.json");
  EXPECT_EQ(names(cut),
            (std::multiset<std::string>{
                "process_name", "ProfilerStep#1", "cudaLaunchKernel", "first \"quoted\"", "ac2g"}));
  EXPECT_EQ(cut["baseTimeNanoseconds"], 5000000);
  EXPECT_EQ(cut["distributedInfo"]["world_size"], 2);
  for (const Json& event : cut["traceEvents"]) {
    if (event.value("cat", "") != "kernel") continue;
    EXPECT_EQ(event["args"]["odd"][1]["a"], 2);
  }
}

TEST_F(TraceEdit, AStepCutFollowsTheLaunchesOfTheStepBeyondItsWindow) {
  CutOptions options;
  options.first_step = options.last_step = 2;
  cut_trace(write("a.json", kTrace), options, folder_ / "b.json.gz");
  EXPECT_EQ(names(read(folder_ / "b.json.gz")),
            (std::multiset<std::string>{
                "process_name", "ProfilerStep#2", "cudaLaunchKernel", "second", "ac2g", "mark"}));
}

TEST_F(TraceEdit, AStepThatIsNotThereIsRefusedAndNothingIsWritten) {
  CutOptions options;
  options.first_step = options.last_step = 9;
  const std::string error = message_of<ConfigError>(
      [&] { cut_trace(write("a.json", kTrace), options, folder_ / "b.json"); });
  EXPECT_THAT(error, HasSubstr("steps 1, 2"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "b.json"));
}

TEST_F(TraceEdit, AnEmptyPartIsRefused) {
  CutOptions options;
  options.from_ns = 1000000;
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { cut_trace(write("a.json", kTrace), options, folder_ / "b.json"); }),
              HasSubstr("260.0 us"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "b.json"));
}

TEST_F(TraceEdit, ACutFileIsReadByTheReaderAsThePartItWas) {
  CutOptions options;
  options.first_step = options.last_step = 1;
  cut_trace(write("a.json", kTrace), options, folder_ / "b.json");
  const RankTimeline timeline = read_kineto(folder_ / "b.json");
  EXPECT_EQ(timeline.world_size, 2);
  EXPECT_EQ(timeline.wall_anchor_ns, 5000000);
  int64_t kernel_ns = 0;
  for (size_t i = 0; i < timeline.spans.size(); ++i) {
    if (timeline.spans.kind[i] == SpanKind::kKernel) kernel_ns += timeline.spans.duration_ns[i];
  }
  EXPECT_EQ(kernel_ns, 50123);
}

TEST_F(TraceEdit, MergedRanksShareNoNumbersAndStandOnOneClock) {
  std::string other = kTrace;
  other.replace(other.find("5000000"), 7, "5002000");  // its times mean 2 us later
  const std::string a = write("a.json", kTrace), b = write("b.json", other);
  const int64_t events = merge_traces({{a, 0, 0}, {b, 1, 2000 - 500}}, folder_ / "all.json").events;
  const Json merged = read(folder_ / "all.json");
  EXPECT_EQ(static_cast<int64_t>(merged["traceEvents"].size()), events);
  std::map<int64_t, std::set<int64_t>> pids_of_correlation;
  std::map<int64_t, int64_t> rank_of_pid;
  for (const Json& event : merged["traceEvents"]) {
    ASSERT_TRUE(event["pid"].is_number_integer());
    const int64_t rank = event["pid"].get<int64_t>() / 10000 - 1;
    if (event["name"] == "process_name") {
      EXPECT_THAT(event["args"]["name"].get<std::string>(),
                  testing::StartsWith("rank " + std::to_string(rank) + ":"));
    }
    if (event["ph"] == "X" && event["args"].contains("correlation")) {
      pids_of_correlation[event["args"]["correlation"].get<int64_t>()].insert(rank);
    }
    // 2000 ns later by its base, 500 earlier by its clock; the decimals stay.
    if (event["name"] == "second") {
      EXPECT_DOUBLE_EQ(event["ts"].get<double>(), rank == 0 ? 1250.0 : 1251.5);
    }
    if (event["name"] == "first \"quoted\"") {
      EXPECT_DOUBLE_EQ(event["dur"].get<double>(), 50.123);
    }
  }
  EXPECT_EQ(pids_of_correlation.size(), 4u);
  for (const auto& [correlation, ranks] : pids_of_correlation) EXPECT_EQ(ranks.size(), 1u);
  EXPECT_FALSE(merged.contains("distributedInfo")) << "it is one rank's";
}

TEST_F(TraceEdit, MergedRanksAreTakenApartAgainAndCanBeCutOut) {
  std::string other = kTrace;
  other.replace(other.find("\"rank\": 0"), 9, "\"rank\": 1");
  const std::string a = write("a.json", kTrace), b = write("b.json", other);
  merge_traces({{a, 0, 0}, {b, 1, 500}}, folder_ / "all.json");
  const auto same = [](const RankTimeline& merged, const RankTimeline& alone) {
    EXPECT_EQ(merged.rank, alone.rank);
    EXPECT_EQ(merged.world_size, 2);
    EXPECT_EQ(merged.info, alone.info);
    EXPECT_EQ(merged.wall_anchor_ns, alone.wall_anchor_ns);
    EXPECT_EQ(merged.warnings, alone.warnings);
    ASSERT_EQ(merged.spans.size(), alone.spans.size());
    ASSERT_EQ(merged.lanes.size(), alone.lanes.size());
    for (size_t i = 0; i < alone.lanes.size(); ++i) {
      EXPECT_EQ(merged.lanes[i].name, alone.lanes[i].name);
      EXPECT_EQ(merged.lanes[i].device_index, alone.lanes[i].device_index);
    }
    for (size_t i = 0; i < alone.spans.size(); ++i) {
      EXPECT_EQ(merged.spans.start_ns[i], alone.spans.start_ns[i]);
      EXPECT_EQ(merged.strings[merged.spans.name[i]], alone.strings[alone.spans.name[i]]);
      EXPECT_EQ(merged.spans.step[i], alone.spans.step[i]);
      EXPECT_EQ(merged.spans.lane[i], alone.spans.lane[i]);
    }
  };
  const std::vector<RankTimeline> ranks = read_kineto_ranks(folder_ / "all.json");
  ASSERT_EQ(ranks.size(), 2u);
  same(ranks[0], read_kineto(a));
  same(ranks[1], read_kineto(b));

  CutOptions options;
  options.ranks = {1};
  cut_trace(folder_ / "all.json", options, folder_ / "one.json");
  const std::vector<RankTimeline> one = read_kineto_ranks(folder_ / "one.json");
  ASSERT_EQ(one.size(), 1u);
  same(one[0], read_kineto(b));
  options.ranks = {7};
  EXPECT_THAT(message_of<ConfigError>(
                  [&] { cut_trace(folder_ / "all.json", options, folder_ / "no.json"); }),
              HasSubstr("none of the ranks that are asked for; it has 0, 1"));
  EXPECT_THAT(message_of<ConfigError>([&] { cut_trace(a, options, folder_ / "no.json"); }),
              HasSubstr("does not say which of its events are of which rank"));
}

TEST_F(TraceEdit, AMergeOfWhatCannotStandSideBySideIsRefused) {
  const std::string a = write("a.json", kTrace), b = write("b.json", kTrace);
  EXPECT_THAT(message_of<ConfigError>([&] {
                merge_traces({{a, 0, 0}, {b, 0, 0}}, folder_ / "c.json");
              }),
              HasSubstr("are both of rank 0"));
  merge_traces({{a, 0, 0}, {b, 1, 0}}, folder_ / "all.json");
  EXPECT_THAT(message_of<ConfigError>([&] {
                merge_traces({{folder_ / "all.json", 0, 0}, {b, 1, 0}}, folder_ / "c.json");
              }),
              HasSubstr("holds several ranks already"));
  EXPECT_THROW(merge_traces({}, folder_ / "c.json"), IoError);
  EXPECT_THROW(merge_traces({{folder_.path(), 0, 0}}, folder_ / "c.json"), IoError);
  EXPECT_THROW(merge_traces({{a, 0, 0}}, folder_.path()), IoError);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "c.json"));
}

TEST_F(TraceEdit, EmptyTracesAreMergedAndNotCut) {
  const std::string empty =
      write("empty.json", R"({"traceEvents": [], "distributedInfo": {"rank": 1}})");
  const std::string a = write("a.json", kTrace);
  merge_traces({{a, 0, 0}, {empty, 1, 0}}, folder_ / "all.json.gz");
  const std::vector<RankTimeline> ranks = read_kineto_ranks(folder_ / "all.json.gz");
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(ranks[1].rank, 1);
  EXPECT_EQ(ranks[1].spans.size(), 0u);
  CutOptions options;
  options.from_ns = 0;
  EXPECT_THAT(message_of<ConfigError>([&] { cut_trace(empty, options, folder_ / "b.json"); }),
              HasSubstr("has no events: there is nothing to cut"));
  options.first_step = options.last_step = 1;
  const std::string no_steps =
      write("n.json", R"([{"ph":"X","cat":"cpu_op","name":"a","pid":1,"tid":1,"ts":1,"dur":1}])");
  EXPECT_THAT(message_of<ConfigError>([&] { cut_trace(no_steps, options, folder_ / "b.json"); }),
              HasSubstr("no step marks"));
  EXPECT_THROW(cut_trace(folder_.path(), options, folder_ / "b.json"), IoError);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "b.json"));
}

TEST_F(TraceEdit, AStepThatWasRecordedTwiceIsKeptTwiceWithoutWhatLiesBetween) {
  std::string text = kTrace;
  for (size_t at = text.find("ProfilerStep#2"); at != std::string::npos;
       at = text.find("ProfilerStep#2")) {
    text.replace(at, 14, "ProfilerStep#5");
  }
  text.insert(text.find("\n],"), R"(,
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#6","pid":7,"tid":7,"ts":1300,"dur":100,"args":{}},
{"ph":"X","cat":"cpu_op","name":"between","pid":7,"tid":7,"ts":1310,"dur":10,"args":{}},
{"ph":"X","cat":"user_annotation","name":"ProfilerStep#5","pid":7,"tid":7,"ts":1400,"dur":100,"args":{}},
{"ph":"X","cat":"cpu_op","name":"again","pid":7,"tid":7,"ts":1410,"dur":10,"args":{}})");
  CutOptions options;
  options.first_step = options.last_step = 5;
  cut_trace(write("a.json", text), options, folder_ / "b.json");
  const auto kept = names(read(folder_ / "b.json"));
  EXPECT_EQ(kept.count("ProfilerStep#5"), 2u);
  EXPECT_TRUE(kept.contains("again"));
  EXPECT_FALSE(kept.contains("between"));
}

TEST_F(TraceEdit, EventsThatWouldSpoilTheOutputAreLeftOutAndCounted) {
  std::string text = kTrace;
  text.replace(text.find("second"), 6, "sec\x01nd");
  const std::string a = write("a.json", text);
  CutOptions options;
  options.from_ns = 0;
  EXPECT_EQ(cut_trace(a, options, folder_ / "b.json").events_damaged, 1);
  EXPECT_FALSE(names(read(folder_ / "b.json")).contains("second"));
  EXPECT_EQ(merge_traces({{a, 0, 0}}, folder_ / "c.json").events_damaged, 1);
  EXPECT_GT(read(folder_ / "c.json")["traceEvents"].size(), 5u);
}

TEST_F(TraceEdit, ADeviceIsNotReplacedByAFile) {
  CutOptions options;
  options.from_ns = 0;
  EXPECT_THAT(
      message_of<IoError>([&] { cut_trace(write("a.json", kTrace), options, "/dev/full"); }),
      HasSubstr("device"));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/full"));
}

TEST_F(TraceEdit, DamagedFilesAreRefusedWithWhatToDo) {
  const std::string cut = std::string(kTrace).substr(0, 900);
  CutOptions options;
  options.from_ns = 0;
  const std::string error =
      message_of<IoError>([&] { cut_trace(write("a.json", cut), options, folder_ / "b.json"); });
  EXPECT_THAT(error, HasSubstr("a.json"));
  EXPECT_THAT(error, HasSubstr("diagnose"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "b.json"));
  EXPECT_THAT(message_of<IoError>(
                  [&] { cut_trace(write("c.json", "{\"a\": 1}"), options, folder_ / "b.json"); }),
              HasSubstr("traceEvents"));
}

}  // namespace
}  // namespace vitrine
