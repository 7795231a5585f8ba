// Files that several ranks were merged into: each rank is read as if it stood alone.
#include <gtest/gtest.h>

#include "readers/kineto.h"

namespace vitrine {
namespace {

std::vector<RankTimeline> read(const std::string& events, const std::string& head = "") {
  return read_kineto_ranks_text("{" + head + "\"traceEvents\": [" + events + "]}", "merged.json");
}

std::string name_of_process(const std::string& key,
                            const std::string& pid,
                            const std::string& text) {
  return R"({"ph":"M","name":")" + key + R"(","pid":)" + pid + R"(,"tid":0,"args":{")" +
         (key == "process_name" ? "name" : "labels") + R"(":")" + text + "\"}}";
}
std::string launch(const std::string& pid, int ts, int correlation) {
  return R"({"ph":"X","cat":"cuda_runtime","name":"cudaLaunchKernel","pid":)" + pid +
         R"(,"tid":9,"ts":)" + std::to_string(ts) + R"(,"dur":1,"args":{"correlation":)" +
         std::to_string(correlation) + "}}";
}
std::string kernel(const std::string& pid,
                   const std::string& name,
                   int ts,
                   int correlation,
                   const std::string& more = "") {
  return R"({"ph":"X","cat":"kernel","name":")" + name + R"(","pid":)" + pid + R"(,"tid":7,"ts":)" +
         std::to_string(ts) + R"(,"dur":2,"args":{"correlation":)" + std::to_string(correlation) +
         more + "}}";
}
std::string announced(const std::string& pid, int ts, int rank) {
  return R"({"ph":"X","cat":"cpu_op","name":"record_param_comms","pid":)" + pid +
         R"(,"tid":9,"ts":)" + std::to_string(ts) +
         R"(,"dur":3,"args":{"Collective name":"allreduce","dtype":"Float","In msg nelems":4,)"
         R"("Out msg nelems":4,"Group size":2,"Process Group Name":"0",)"
         R"("Process Group Ranks":"[4, 5]","Rank":)" +
         std::to_string(rank) + "}}";
}

std::vector<std::string> names(const RankTimeline& t) {
  std::vector<std::string> out;
  for (const StringId name : t.spans.name) out.push_back(t.strings[name]);
  return out;
}
using Names = std::vector<std::string>;

bool warned(const RankTimeline& t, const std::string& words) {
  for (const std::string& text : t.warnings) {
    if (text.find(words) != std::string::npos) return true;
  }
  return false;
}

TEST(KinetoMerged, NamesOfProcessesTellTheirRanks) {
  const std::string events = launch("100", 1, 1) + "," + launch("200", 2, 1) + "," +
                             kernel("10", "a", 5, 1) + "," + kernel("20", "b", 6, 1);
  for (const char* key : {"process_name", "process_labels"}) {
    const auto ranks = read(events + "," + name_of_process(key, "100", "rank 1: python") + "," +
                            name_of_process(key, "10", "Rank_1 GPU 0") + "," +
                            name_of_process(key, "200", "[Rank-0] python") + "," +
                            name_of_process(key, "20", "rank0"));
    ASSERT_EQ(ranks.size(), 2u) << key;
    EXPECT_EQ(ranks[0].rank, 0);
    EXPECT_EQ(ranks[1].rank, 1);
    EXPECT_EQ(names(ranks[0]), (Names{"cudaLaunchKernel", "b"}));
    EXPECT_EQ(names(ranks[1]), (Names{"cudaLaunchKernel", "a"}));
    EXPECT_TRUE(warned(ranks[0], "holds 2 ranks, merged by another tool: told apart by the names"));
  }
  const auto by_number = read(launch("\"rank0_9\"", 1, 1) + "," + launch("\"rank1_9\"", 2, 1));
  ASSERT_EQ(by_number.size(), 2u);
  EXPECT_EQ(by_number[1].rank, 1);
}

// All ranks' cards have number 0, and all began to count their launches at 1.
TEST(KinetoMerged, WorkOfASharedCardGoesWithItsLaunch) {
  const auto ranks =
      read(name_of_process("process_name", "100", "rank 0") + "," +
           name_of_process("process_name", "200", "rank 1") + "," + launch("100", 10, 1) + "," +
           kernel("0", "a", 20, 1) + "," + launch("200", 50, 1) + "," + kernel("0", "b", 60, 1) +
           "," + launch("200", 70, 2) + "," + kernel("0", "c", 80, 2));
  ASSERT_EQ(ranks.size(), 2u);
  EXPECT_EQ(names(ranks[0]), (Names{"cudaLaunchKernel", "a"}));
  EXPECT_EQ(names(ranks[1]), (Names{"cudaLaunchKernel", "b", "cudaLaunchKernel", "c"}));
}

TEST(KinetoMerged, CollectivesTellTheirRanksWhereNamesAreSilent) {
  const std::string events = announced("100", 1, 0) + "," + launch("100", 2, 1) + "," +
                             announced("200", 1, 1) + "," + launch("200", 2, 2) + "," +
                             kernel("0", "ncclDevKernel_AllReduce", 5, 1) + "," +
                             kernel("1", "ncclDevKernel_AllReduce", 6, 2);
  const auto ranks = read(
      events,
      R"("distributedInfo": [{"rank": 4, "world_size": 8, "pg_config": [{"pg_name": "0", "pg_desc": "four", "pg_size": 2, "ranks": [4, 5]}]},
          {"rank": 5, "world_size": 8, "pg_config": [{"pg_name": "0", "pg_desc": "five", "pg_size": 2, "ranks": [4, 5]}]}],)");
  ASSERT_EQ(ranks.size(), 2u);
  for (const size_t i : {0, 1}) {
    EXPECT_EQ(ranks[i].rank, static_cast<int32_t>(4 + i));
    EXPECT_EQ(ranks[i].world_size, 8);
    ASSERT_EQ(ranks[i].groups.size(), 1u);
    EXPECT_EQ(ranks[i].groups[0].description, i == 0 ? "four" : "five");
    ASSERT_EQ(ranks[i].collectives.size(), 1u);
    EXPECT_EQ(ranks[i].collectives[0].ranks, (std::vector<int32_t>{4, 5}));
  }
}

TEST(KinetoMerged, HeadersOfSeveralRanksWithoutAnythingElseAreSaid) {
  const auto ranks = read(kernel("0", "a", 1, 1),
                          R"("distributedInfo": {"rank": 3}, "distributedInfo": {"rank": 4},)");
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_EQ(ranks[0].rank, 3);
  EXPECT_TRUE(warned(ranks[0], "has distributedInfo of 2 ranks, but nothing in it says"));
}

TEST(KinetoMerged, AFileOfOneRankIsLeftWhole) {
  const std::string events = launch("100", 1, 1) + "," + kernel("0", "a", 5, 1) + "," +
                             name_of_process("process_name", "100", "train.py --rank 3");
  const auto ranks = read(events, R"("distributedInfo": {"rank": 3, "world_size": 4},)");
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_EQ(ranks[0].rank, 3);
  EXPECT_TRUE(ranks[0].warnings.empty()) << ranks[0].warnings[0];
}

TEST(KinetoMerged, ADamagedNoteOfRanksIsNoReasonToLoseEvents) {
  for (const std::string note : {"5",
                                 "[[1]]",
                                 R"([{"rank": -1, "processes": {"0": "0"}}])",
                                 R"([{"rank": 1, "processes": {"77": "0"}}])",
                                 R"([{"rank": 1}])"}) {
    const auto ranks = read(kernel("0", "a", 1, 1), "\"mergedRanks\": " + note + ",");
    ASSERT_EQ(ranks.size(), 1u) << note;
    EXPECT_EQ(ranks[0].spans.size(), 1u) << note;
  }
}

}  // namespace
}  // namespace vitrine
