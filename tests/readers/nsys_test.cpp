// Nsight exports: hand-made databases with exact expectations, and real ones against plain SQL.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include "analysis/intervals.h"
#include "core/error.h"
#include "core/json.h"
#include "readers/nsys_ranges.h"
#include "readers/nsys_sqlite.h"
#include "support/shared_data.h"
#include "support/temporary_folder.h"
#include "support/text_files.h"

namespace vitrine {
namespace {

constexpr int64_t kProcess = int64_t{77} << 24;  // globalPid of process 77

// A database from SQL; {P} stands for the process, {T} for its thread 5.
std::string database(const std::string& path, std::string sql) {
  const auto replace = [&](const std::string& what, int64_t by) {
    for (size_t at = sql.find(what); at != std::string::npos; at = sql.find(what, at)) {
      sql.replace(at, what.size(), std::to_string(by));
    }
  };
  replace("{P}", kProcess);
  replace("{T}", kProcess + 5);
  sqlite3* db = nullptr;
  sqlite3_open(path.c_str(), &db);
  char* error = nullptr;
  EXPECT_EQ(sqlite3_exec(db, sql.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
  sqlite3_close(db);
  return path;
}

const std::string kNames =
    "CREATE TABLE StringIds(id INTEGER PRIMARY KEY, value TEXT);"
    "INSERT INTO StringIds VALUES (1,'gemm'),(2,'ncclDevKernel_SendRecv(x)'),"
    "(3,'cudaLaunchKernel_v7000'),(4,'iteration 7'),(5,'python3');";
const std::string kKernelTable =
    "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(start INTEGER, end INTEGER, deviceId INTEGER, "
    "streamId INTEGER, correlationId INTEGER, globalPid INTEGER, demangledName INTEGER, "
    "graphNodeId INTEGER);";

TEST(Nsys, ASmallExportIsReadExactly) {
  TemporaryFolder folder;
  const std::string path = database(
      folder / "rank3.sqlite",
      kNames + kKernelTable +
          "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100,150,0,7,11,{P},1,NULL),"
          "(160,300,0,9,12,{P},2,5);"
          "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INTEGER, end INTEGER, deviceId INTEGER, "
          "streamId INTEGER, correlationId INTEGER, globalPid INTEGER, copyKind INTEGER, bytes "
          "INTEGER);"
          "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES (310,320,0,7,13,{P},1,4096);"
          "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER, end INTEGER, globalTid INTEGER, "
          "correlationId INTEGER, nameId INTEGER);"
          "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (90,95,{T},11,3),(96,99,{T},12,3);"
          "CREATE TABLE NVTX_EVENTS(start INTEGER, end INTEGER, globalTid INTEGER, text TEXT, "
          "textId "
          "INTEGER, jsonText TEXT);"
          "INSERT INTO NVTX_EVENTS VALUES (80,400,{T},NULL,4,NULL),"
          "(85,96,{T},'aten::mm, op_id = 5, sizes = [[4, 8], []]',NULL,NULL),"
          "(96,98,{T},'nccl:all_to_all, op_id = 6',NULL,NULL),(99,NULL,{T},'mark',NULL,NULL);"
          "CREATE TABLE TARGET_INFO_SESSION_START_TIME(utcEpochNs INTEGER);"
          "INSERT INTO TARGET_INFO_SESSION_START_TIME VALUES (1779630014975716426);"
          "CREATE TABLE TARGET_INFO_GPU(id INTEGER, name TEXT, totalMemory INTEGER, smCount "
          "INTEGER);"
          "INSERT INTO TARGET_INFO_GPU VALUES (0,'NVIDIA H100',85000000000,132);"
          "CREATE TABLE DIAGNOSTIC_EVENT(severity INTEGER, text TEXT);"
          "INSERT INTO DIAGNOSTIC_EVENT VALUES (1,'fine'),(2,'events were lost');");
  const auto ranks = read_nsys(path);
  ASSERT_EQ(ranks.size(), 1u);
  const RankTimeline& t = ranks[0];
  EXPECT_EQ(t.rank, 3);
  EXPECT_EQ(t.wall_anchor_ns, 1779630014975716426);
  EXPECT_EQ(t.info.at("device"), "NVIDIA H100");
  EXPECT_EQ(t.info.at("device.memory_bytes"), "85000000000");
  const auto names = [&] {
    std::vector<std::string> out;
    for (const StringId id : t.spans.name) out.push_back(t.strings[id]);
    return out;
  }();
  EXPECT_EQ(names,
            (std::vector<std::string>{"iteration 7",
                                      "aten::mm",
                                      "cudaLaunchKernel_v7000",
                                      "cudaLaunchKernel_v7000",
                                      "nccl:all_to_all",
                                      "gemm",
                                      "ncclDevKernel_SendRecv(x)",
                                      "Memcpy HtoD"}));
  const Spans& s = t.spans;
  EXPECT_EQ(s.kind[0], SpanKind::kStep);
  EXPECT_EQ(s.step[0], 7);
  EXPECT_EQ(s.kind[1], SpanKind::kOperation);
  EXPECT_EQ(t.strings[s.shapes[1]], "[[4, 8], []]");
  EXPECT_EQ(s.kind[5], SpanKind::kKernel);
  EXPECT_EQ(s.step[5], 7);
  EXPECT_EQ(s.correlation[5], 11);
  EXPECT_EQ(s.duration_ns[5], 50);
  EXPECT_EQ(t.lanes[static_cast<size_t>(s.lane[5])].name, "stream 7");
  EXPECT_TRUE(t.lanes[static_cast<size_t>(s.lane[5])].device);
  EXPECT_TRUE(is_communication(s.kind[6]));
  ASSERT_EQ(t.collectives.size(), 1u);
  EXPECT_EQ(t.strings[t.collectives[0].name], "all_to_all");  // by the range of its launch
  EXPECT_EQ(s.bytes[7], 4096);
  EXPECT_EQ(s.step[7], -1);  // its launch is not recorded
  EXPECT_EQ(t.info.at("reader.graph_kernels"), "1");
  const auto warned = [&](const std::string& part) {
    return std::any_of(t.warnings.begin(), t.warnings.end(), [&](const std::string& warning) {
      return warning.find(part) != std::string::npos;
    });
  };
  EXPECT_TRUE(warned("the profiler says: events were lost"));
  EXPECT_FALSE(warned("fine"));
  EXPECT_TRUE(warned("steps are the 1 NVTX ranges named \"iteration N\""));
  EXPECT_TRUE(warned("1 NVTX entries have no end"));
}

TEST(Nsys, StepsWhoseNumbersBeginAnewAreNumberedInOrder) {
  TemporaryFolder folder;
  const auto ranks = read_nsys(database(
      folder / "a.sqlite",
      kNames + "CREATE TABLE NVTX_EVENTS(start INTEGER, end INTEGER, globalTid INTEGER, text TEXT);"
               "INSERT INTO NVTX_EVENTS VALUES (10,20,{T},'step 5'),(30,40,{T},'step 6'),"
               "(50,60,{T},'step 5'),(52,54,{T},'inside'),(70,80,{T},'step 9');"));
  ASSERT_EQ(ranks.size(), 1u);
  const RankTimeline& t = ranks[0];
  std::vector<std::pair<std::string, int32_t>> steps;
  for (size_t i = 0; i < t.spans.size(); ++i)
    steps.emplace_back(t.strings[t.spans.name[i]], t.spans.step[i]);
  EXPECT_EQ(steps,
            (std::vector<std::pair<std::string, int32_t>>{
                {"step 5", 0}, {"step 6", 1}, {"step 5", 2}, {"inside", 2}, {"step 9", 3}}));
  EXPECT_NE(testing::PrintToString(t.warnings)
                .find("named \\\"step N\\\", whose numbers begin anew: numbered in order"),
            std::string::npos)
      << testing::PrintToString(t.warnings);
}

TEST(Nsys, BytesThatCannotBeAreBounded) {
  TemporaryFolder folder;
  const auto ranks = read_nsys(database(
      folder / "a.sqlite",
      kNames + "CREATE TABLE CUPTI_ACTIVITY_KIND_MEMCPY(start INTEGER, end INTEGER, deviceId "
               "INTEGER, streamId INTEGER, correlationId INTEGER, globalPid INTEGER, copyKind "
               "INTEGER, bytes INTEGER);"
               "INSERT INTO CUPTI_ACTIVITY_KIND_MEMCPY VALUES "
               "(10,20,0,7,1,{P},1,9223372036854775807),(30,40,0,7,2,{P},1,-1),"
               "(50,60,0,7,3,{P},1,64);"));
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_EQ(ranks[0].spans.bytes, (std::vector<int64_t>{int64_t{1} << 44, 0, 64}));
  EXPECT_NE(ranks[0].warnings.back().find("2 numbers of bytes"), std::string::npos);
}

TEST(Nsys, WhatTheExportLacksIsSaid) {
  TemporaryFolder folder;
  const auto ranks = read_nsys(
      database(folder / "a.sqlite",
               kNames + kKernelTable +
                   "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (100,90,1,7,11,{P},1,NULL),"
                   "(200,210,0,7,12,{P},1,NULL);"
                   "CREATE TABLE CUPTI_ACTIVITY_KIND_GRAPH_TRACE(start INTEGER, end INTEGER, "
                   "deviceId INTEGER, "
                   "streamId INTEGER, correlationId INTEGER, globalPid INTEGER, graphId INTEGER);"
                   "INSERT INTO CUPTI_ACTIVITY_KIND_GRAPH_TRACE VALUES (300,400,0,7,13,{P},2);"));
  ASSERT_EQ(ranks.size(), 2u);  // two devices of one process
  EXPECT_EQ(ranks[1].rank, 1);
  EXPECT_EQ(ranks[1].spans.duration_ns[0], 0);
  EXPECT_EQ(ranks[1].info.at("reader.negative_durations"), "1");
  EXPECT_EQ(ranks[0].strings[ranks[0].spans.name[1]], "CUDA graph 2");
  std::string all;
  for (const std::string& warning : ranks[0].warnings) all += warning + "\n";
  EXPECT_NE(all.find("no table NVTX_EVENTS"), std::string::npos);
  EXPECT_NE(all.find("--cuda-graph-trace=node"), std::string::npos);
  EXPECT_NE(all.find("numbered by device"), std::string::npos);
}

TEST(Nsys, KernelsWithoutTimesAreNamedAsNotRead) {
  TemporaryFolder folder;
  const auto ranks = read_nsys(database(
      folder / "a.sqlite",
      kNames + "CREATE TABLE CUPTI_ACTIVITY_KIND_KERNEL(deviceId INTEGER, streamId INTEGER);"
               "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (0,7);"
               "CREATE TABLE CUPTI_ACTIVITY_KIND_RUNTIME(start INTEGER, end INTEGER, "
               "globalTid INTEGER, correlationId INTEGER, nameId INTEGER);"
               "INSERT INTO CUPTI_ACTIVITY_KIND_RUNTIME VALUES (1,2,{T},1,3);"));
  ASSERT_FALSE(ranks.empty());
  std::string all;
  for (const std::string& warning : ranks[0].warnings) all += warning + "\n";
  EXPECT_NE(all.find("CUPTI_ACTIVITY_KIND_KERNEL has no columns"), std::string::npos) << all;
}

TEST(Nsys, NamesOfRangesAreUnderstood) {
  EXPECT_EQ(step_name("ProfilerStep#12").number, 12);
  EXPECT_EQ(step_name("Train Step: 3").family, "train step");
  EXPECT_EQ(step_name("step").number, -1);
  EXPECT_EQ(step_name("stepwise 3").family, "");
  EXPECT_EQ(step_name("layer 3").family, "");
  EXPECT_EQ(nvtx_name("FSDP::pre_forward (a.0), op_id = 4").name, "FSDP::pre_forward (a.0)");
  EXPECT_EQ(nvtx_name("FSDP::pre_forward (a.0), op_id = 4").kind, SpanKind::kRegion);
  EXPECT_EQ(nvtx_name("MmBackward0, seq = 7, op_id = 4").kind, SpanKind::kOperation);
  EXPECT_EQ(collective_of_range("ncclAllReduce"), "all_reduce");
  EXPECT_EQ(collective_of_range("nccl:_all_gather_base"), "all_gather");
  EXPECT_EQ(collective_of_range("nccl:send 0->1"), "send");
  EXPECT_EQ(collective_of_range("nccl:recv 0<-1"), "receive");
  EXPECT_EQ(collective_of_range("ncclGroupEnd"), "");
  EXPECT_EQ(message_bytes(R"({"Message size [bytes]": "4096"})"), 4096);
  EXPECT_EQ(message_bytes(R"({"Message size [bytes]":})"), 0);
}

std::string refusal(const std::string& path) {
  try {
    read_nsys(path);
  } catch (const IoError& error) {
    return error.what();
  }
  return "read";
}

TEST(Nsys, DamagedAndForeignDatabasesAreOneClearError) {
  TemporaryFolder folder;
  const auto expect = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect(refusal(folder / "absent"), "cannot read");
  expect(refusal(folder.path()), "is a folder");
  expect(refusal(write_file(folder / "empty", "")), "is empty");
  expect(refusal(write_file(folder / "text", "hello, this is no database")), "no SQLite database");
  expect(refusal(write_gzip(folder / "a.sqlite.gz", "SQLite format 3")), "gunzip it first");
  expect(refusal(database(folder / "other", "CREATE TABLE notes(a INTEGER);")), "none of Nsight");
  expect(refusal(database(folder / "nothing", kNames + kKernelTable)), "holds no kernel");
  // A view in a table's place is not run.
  expect(refusal(database(folder / "view",
                          kNames +
                              "CREATE VIEW CUPTI_ACTIVITY_KIND_KERNEL AS WITH RECURSIVE c(x) AS "
                              "(SELECT 1 UNION ALL SELECT x+1 FROM c) SELECT x AS start FROM c;")),
         "none of Nsight");
  std::string rows = kNames + kKernelTable + "BEGIN;";
  for (int i = 0; i < 3000; ++i) {
    rows += "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1,2,0,7," + std::to_string(i) +
            ",{P},1,NULL);";
  }
  const std::string whole = file_content(database(folder / "whole", rows + "COMMIT;"));
  EXPECT_EQ(refusal(write_file(folder / "copy", whole)), "read");
  expect(refusal(write_file(folder / "cut", whole.substr(0, whole.size() / 2))), "damaged");
  expect(refusal(write_file(folder / "stub", whole.substr(0, 50))), "damaged");
  for (size_t i = 16; i < whole.size(); i += whole.size() / 150) {
    std::string flipped = whole;
    flipped[i] = static_cast<char>(flipped[i] ^ 0x7f);
    refusal(write_file(folder / "flipped", flipped));  // read or refused, never a crash
  }
}

TEST(Nsys, AFileWithAJournalsLeftoversIsReadAsItStands) {
  TemporaryFolder folder;
  const std::string path =
      database(folder / "odd name #1 %20?.sqlite",
               kNames + kKernelTable +
                   "INSERT INTO CUPTI_ACTIVITY_KIND_KERNEL VALUES (1,2,0,7,1,{P},1,NULL);");
  write_file(path + "-journal", "left over");
  EXPECT_EQ(read_nsys(path).size(), 1u);
  EXPECT_EQ(file_content(path + "-journal"), "left over");
}

struct Total {
  std::vector<Interval> intervals;
  int64_t sum = 0;
};

void expect_total(const Total& total, const Json& truth, const char* what) {
  SCOPED_TRACE(what);
  EXPECT_EQ(total.intervals.size(), truth[what]["count"].get<size_t>());
  EXPECT_EQ(total.sum, truth[what]["sum_ns"].get<int64_t>());
  EXPECT_EQ(IntervalSet(total.intervals).length(), truth[what]["union_ns"].get<int64_t>());
}

void expect_rank(const RankTimeline& t, const Json& truth) {
  Total compute, communication, copies, calls, syncs, ranges;
  int64_t bytes = 0;
  for (size_t i = 0; i < t.spans.size(); ++i) {
    const SpanKind kind = t.spans.kind[i];
    Total& total = kind == SpanKind::kKernel    ? compute
                   : kind == SpanKind::kCopy    ? copies
                   : kind == SpanKind::kRuntime ? calls
                   : kind == SpanKind::kSync    ? syncs
                   : is_communication(kind)     ? communication
                                                : ranges;
    total.intervals.push_back({t.spans.start_ns[i], t.spans.start_ns[i] + t.spans.duration_ns[i]});
    total.sum += t.spans.duration_ns[i];
    if (kind == SpanKind::kCopy) bytes += t.spans.bytes[i];
  }
  expect_total(compute, truth, "compute");
  expect_total(communication, truth, "communication");
  expect_total(copies, truth, "copies");
  expect_total(calls, truth, "calls");
  expect_total(syncs, truth, "syncs");
  expect_total(ranges, truth, "ranges");
  EXPECT_EQ(bytes, truth["copied_bytes"].get<int64_t>());
  EXPECT_EQ(t.wall_anchor_ns, truth["wall_anchor_ns"].get<int64_t>());
  EXPECT_EQ(t.info.at("process"), std::to_string(truth["process"].get<int64_t>()));
}

TEST(NsysReal, TotalsEqualThoseOfPlainSql) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference exports: set VITRINE_SHARED_DATA";
  const Json golden = read_json_file("tests/readers/data/nsys_golden.json");
  ASSERT_EQ(golden.size(), 3u);
  for (const auto& [name, ranks] : golden.items()) {
    SCOPED_TRACE(name);
    const auto timelines = read_nsys(data + "/nsys/" + name);
    ASSERT_EQ(timelines.size(), ranks.size());
    for (size_t i = 0; i < timelines.size(); ++i) expect_rank(timelines[i], ranks[i]);
  }
}

TEST(NsysReal, KernelsOfSendsAndReceivesAreKnownAsAllToAll) {
  const std::string data = shared_data();
  if (data.empty()) GTEST_SKIP() << "no reference exports: set VITRINE_SHARED_DATA";
  for (const RankTimeline& t : read_nsys(data + "/nsys/mfu_2gpu_before.sqlite")) {
    ASSERT_EQ(t.collectives.size(), 33u);
    int known = 0;
    for (const Collective& c : t.collectives) known += t.strings[c.name] == "all_to_all";
    EXPECT_GE(known, 31);  // the launches of the first lie before the recording
  }
}

}  // namespace
}  // namespace vitrine
