// Ranks as processes: results, and what the others say of a rank that is killed, stopped or late.
#include <gtest/gtest.h>

#include <fstream>
#include <sstream>

#include "comm/launcher.h"
#include "comm/temporary_folder.h"

namespace vitrine {
namespace {

struct Ran {
  LaunchResult result;
  std::vector<std::string> logs;
};

Ran run_ranks(int ranks,
              const std::string& body,
              std::vector<std::pair<std::string, std::string>> environment = {},
              std::chrono::milliseconds grace = std::chrono::seconds(20)) {
  const testing::TemporaryFolder folder;
  LaunchOptions options;
  options.ranks = ranks;
  options.arguments = {"--rank-body", body};
  options.environment = std::move(environment);
  options.log_folder = folder.path();
  options.grace = grace;
  options.out_fd = options.error_fd = -1;
  Ran ran{launch_ranks(options), {}};
  for (int r = 0; r < ranks; ++r) {
    ran.logs.push_back(testing::read_file(folder.path() / ("rank" + std::to_string(r) + ".log")));
  }
  return ran;
}

bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// The S of "missing R after S s".
double seconds_of(const std::string& log) {
  const size_t at = log.find(" after ");
  return at == std::string::npos ? 1e9 : std::stod(log.substr(at + 7));
}

// Through shared memory as ranks of one host, and over sockets as ranks of several.
class GlooWorld : public ::testing::TestWithParam<bool> {
 protected:
  static Ran run_ranks(int ranks,
                       const std::string& body,
                       std::vector<std::pair<std::string, std::string>> environment = {},
                       std::chrono::milliseconds grace = std::chrono::seconds(20)) {
    environment.emplace_back("VITRINE_SHARED_MEMORY", GetParam() ? "1" : "0");
    return vitrine::run_ranks(ranks, body, std::move(environment), grace);
  }
};

INSTANTIATE_TEST_SUITE_P(By, GlooWorld, ::testing::Bool(), [](const auto& shared) {
  return std::string(shared.param ? "SharedMemory" : "Sockets");
});

TEST_P(GlooWorld, CollectivesEqualPlainArithmeticOnOneToFiveRanks) {
  for (int ranks = 1; ranks <= 5; ++ranks) {
    const Ran ran = run_ranks(ranks, "collectives");
    EXPECT_TRUE(ran.result.ok()) << ran.result.summary << "\n" << ran.result.log_tail;
    for (const std::string& log : ran.logs) EXPECT_EQ(log, "all collectives are right\n");
  }
}

TEST_P(GlooWorld, AKilledRankIsNamedByTheOthersWithinSeconds) {
  const Ran ran = run_ranks(4, "killed");
  EXPECT_EQ(ran.result.failed_rank, 2) << ran.result.summary;
  EXPECT_TRUE(contains(ran.result.summary, "rank 2 was killed by signal 9")) << ran.result.summary;
  for (const size_t r : {0u, 1u, 3u}) {
    const std::string& log = ran.logs[r];
    EXPECT_TRUE(contains(log, "missing 2 after")) << log;
    EXPECT_TRUE(contains(log, "reduce of body.3, step 7, group 'reduce'")) << log;
    EXPECT_TRUE(contains(log, "rank 2 is gone")) << log;
    EXPECT_TRUE(contains(log, "suspect 2: rank 2 is gone")) << log;
    EXPECT_LT(seconds_of(log), 10.0) << log;
  }
}

TEST_P(GlooWorld, AStoppedRankIsNamedWithinTheTimeout) {
  for (const std::string victim : {"2", "0"}) {  // rank 0 serves the store
    const Ran ran =
        run_ranks(3,
                  "stopped",
                  {{"VITRINE_TEST_STOPPED", victim}, {"VITRINE_TEST_TIMEOUT_MS", "3000"}},
                  std::chrono::seconds(4));  // longer than rank 0 serves those who do not leave
    for (size_t r = 0; r < 3; ++r) {
      if (std::to_string(r) == victim) continue;
      const std::string& log = ran.logs[r];
      EXPECT_TRUE(contains(log, "missing " + victim + " after")) << log;
      EXPECT_TRUE(contains(log, "gather of body.1, step 2, group 'gather'")) << log;
      EXPECT_LT(seconds_of(log), 10.0) << log;
    }
    if (victim == "2") {
      EXPECT_TRUE(contains(ran.logs[0],
                           "rank 2 has not entered gather of body.1 in step 2 (it was "
                           "last in gather of body.0, step 1)"))
          << ran.logs[0];
    } else {
      EXPECT_TRUE(contains(ran.logs[1], "rank 0 does not respond")) << ran.logs[1];
    }
  }
}

TEST_P(GlooWorld, ALateRankIsNamedWithWhereItIs) {
  const Ran ran = run_ranks(3, "late", {{"VITRINE_TEST_TIMEOUT_MS", "2000"}});
  for (const size_t r : {0u, 2u}) {
    EXPECT_TRUE(contains(ran.logs[r], "missing 1 after")) << ran.logs[r];
    EXPECT_TRUE(contains(ran.logs[r],
                         "rank 1 has not entered reduce of body.2 in step 4 (it was "
                         "last in backward of body.2, step 4)"))
        << ran.logs[r];
  }
  EXPECT_EQ(ran.result.ranks[1].exit_code, 3) << ran.logs[1];  // it may not go on alone
}

TEST_P(GlooWorld, DifferentSizesEndInAnErrorAndNotInACrash) {
  const Ran ran = run_ranks(2, "disagree", {{"VITRINE_TEST_TIMEOUT_MS", "2000"}});
  for (size_t r = 0; r < 2; ++r) {
    EXPECT_EQ(ran.result.ranks[r].exit_code, 3) << ran.result.summary;
    EXPECT_TRUE(contains(ran.logs[r], "all_gather")) << ran.logs[r];
  }
}

TEST_P(GlooWorld, AbortWakesEveryLaneOfEveryRank) {
  const Ran ran = run_ranks(3, "aborted");
  EXPECT_TRUE(contains(ran.logs[1], "aborted by rank 1: loss is not a number")) << ran.logs[1];
  for (size_t r = 0; r < 3; ++r) {
    EXPECT_EQ(ran.result.ranks[r].exit_code, 3) << ran.logs[r];
    EXPECT_LT(seconds_of(ran.logs[r]), 10.0) << ran.logs[r];
    if (r == 1) continue;
    EXPECT_TRUE(contains(ran.logs[r], "rank 1 aborted: loss is not a number")) << ran.logs[r];
    EXPECT_TRUE(contains(ran.logs[r], "group 'gather'")) << ran.logs[r];
    EXPECT_TRUE(contains(ran.logs[r], "group 'reduce'")) << ran.logs[r];
  }
}

TEST_P(GlooWorld, TellsItsListenerOnceOutsideOfAnyCall) {
  const Ran ran = run_ranks(3, "told");
  EXPECT_EQ(ran.logs[0], "told of 1: rank 1 aborted: loss is not a number\n");
  EXPECT_EQ(ran.logs[1], "told of -1: aborted by rank 1: loss is not a number\n");
  EXPECT_EQ(ran.logs[2], ran.logs[0]);
}

}  // namespace
}  // namespace vitrine
