// Every command explains itself, and the ones that answer questions answer them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cli/tiny_run.h"
#include "support/command.h"

namespace vitrine {
namespace {
namespace fs = std::filesystem;

using testing::HasSubstr;

TEST(Commands, HelpOfEachHasAnExample) {
  const std::string help = run_vitrine({"--help"}).out;
  for (const char* command : {"train", "demo", "rollout", "data", "report", "bench", "explain"}) {
    EXPECT_THAT(help, HasSubstr(command));
  }
  for (const std::vector<std::string>& command : {std::vector<std::string>{"train"},
                                                  {"demo"},
                                                  {"rollout"},
                                                  {"data", "balls"},
                                                  {"data", "video"},
                                                  {"data", "tokens"},
                                                  {"report"},
                                                  {"diagnose"},
                                                  {"compare"},
                                                  {"trace", "cut"},
                                                  {"trace", "merge"},
                                                  {"bench"},
                                                  {"explain"}}) {
    std::vector<std::string> arguments = command;
    arguments.push_back("--help");
    const CommandResult result = run_vitrine(arguments);
    EXPECT_EQ(result.code, 0) << command.back();
    EXPECT_THAT(result.out, testing::ContainsRegex("Examples?:[ \n]+vitrine " + command[0]))
        << command.back();
    EXPECT_EQ(result.error, "");
  }
  EXPECT_EQ(run_vitrine({"data", "--help"}).code, 0);
  EXPECT_EQ(run_vitrine({"--version"}).code, 0);
}

TEST(Commands, BenchZeroFindsEveryRowEqual) {
  const CommandResult result = run_vitrine({"bench", "zero", "--json"});
  ASSERT_EQ(result.code, 0) << result.error;
  const Json rows = parse_json(result.out, "bench zero")["rows"];
  EXPECT_GE(rows.size(), 2u * 4 * 4 * 4);
  for (const Json& row : rows) {
    EXPECT_TRUE(row["equal"].get<bool>()) << row.dump();
    EXPECT_EQ(row["ledger_bytes"].get<int64_t>(),
              row["expected_bytes"].get<int64_t>() + row["padding_bytes"].get<int64_t>());
  }
}

TEST(Commands, ExplainAnswersEveryExample) {
  int run_files = 0, configurations = 0;
  for (const auto& entry : fs::recursive_directory_iterator("examples")) {
    if (entry.path().extension() != ".json") continue;
    const std::string path = entry.path();
    const CommandResult words = run_vitrine({"explain", path, "--ranks", "2"});
    const CommandResult json = run_vitrine({"explain", path, "--ranks", "2", "--json"});
    const Json answer = parse_json(json.out, path);
    EXPECT_EQ(words.error, "") << path;
    EXPECT_EQ(words.code, json.code) << path;
    if (answer.contains("keys")) {
      ++configurations;
      EXPECT_GE(answer["keys"].size(), 5u) << path;
      const bool wrong = path.find("mistakes") != std::string::npos;
      EXPECT_EQ(words.code, wrong ? 1 : 0) << path << words.out;
      for (const Json& key : answer["keys"]) {
        EXPECT_THAT(words.out, HasSubstr(key["key"].get<std::string>())) << path;
      }
    } else {
      ++run_files;
      EXPECT_EQ(words.code, 0) << path << words.error;
      EXPECT_GT(answer["parameters"].get<int64_t>(), 0) << path;
      EXPECT_FALSE(answer["schedule"]["actions"].empty()) << path;
      for (const char* part :
           {"One step of rank 0", "Memory of this rank between steps", "backward"}) {
        EXPECT_THAT(words.out, HasSubstr(part)) << path;
      }
    }
  }
  EXPECT_GE(run_files, 2);
  EXPECT_GE(configurations, 4);
}

// What explain promises is what training does.
TEST(Commands, TrainingOnTwoRanksEndsInACompleteRunFolder) {
  const ScratchFolder folder;
  Json run = tiny_run();
  run["zero_optimization"] = {{"stage", 3}};
  run["train"]["trace"] = {{"wait", 0}, {"warmup", 0}, {"active", 2}};
  const std::string file = write_run(folder / "run.json", run);
  const CommandResult result =
      run_vitrine({"train", file, "--ranks", "2", "--run", folder / "out", "--json"});
  ASSERT_EQ(result.code, 0) << result.error;
  EXPECT_EQ(parse_json(result.out, "train")["steps"], 3);
  for (const char* made : {"run.json",
                           "environment.json",
                           "metrics.jsonl",
                           "result.json",
                           "report.html",
                           "log/rank1.log",
                           "trace/rank0.json.gz",
                           "trace/rank1.json.gz",
                           "checkpoints/step-000003/manifest.json"}) {
    EXPECT_TRUE(fs::exists(folder / ("out/" + std::string(made)))) << made;
  }
  // The resolved file is itself a run file and gives the same run.
  const CommandResult again = run_vitrine(
      {"train", folder / "out/run.json", "--ranks", "2", "--run", folder / "again", "--json"});
  ASSERT_EQ(again.code, 0) << again.error;
  EXPECT_EQ(parse_json(again.out, "train")["loss"], parse_json(result.out, "train")["loss"]);
}

}  // namespace
}  // namespace vitrine
