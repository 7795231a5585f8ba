// vitrine plan --ranks from the command line: the example run files, the timeline, refusals.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "cli/tiny_run.h"
#include "core/json.h"
#include "support/command.h"
#include "support/even_machine.h"

namespace vitrine {
namespace {
namespace fs = std::filesystem;

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

class PlanRanks : public testing::Test {
 protected:
  // Beside the run files: what they name is relative, and a plan reads none of it.
  PlanRanks() {
    fs::copy("examples/tiny_lm.json", folder_.path());
    fs::copy("examples/tiny_world.json", folder_.path());
    write_run(folder_ / "run.json", tiny_run());
    write_text_file(folder_ / "even.json",
                    Json{{"measured", measured_json(even_machine(2))}}.dump());
  }
  Json planned(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "plan");
    arguments.push_back("--json");
    const CommandResult result = run_vitrine(arguments, folder_.path());
    EXPECT_EQ(result.code, 0) << result.error;
    return parse_json(result.out, "vitrine plan --ranks --json");
  }
  std::string refused(std::vector<std::string> arguments, int code) {
    arguments.insert(arguments.begin(), "plan");
    const CommandResult result = run_vitrine(arguments, folder_.path());
    EXPECT_EQ(result.code, code) << result.out << result.error;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.error, Not(HasSubstr("\n\n")));
    EXPECT_THAT(result.error, Not(HasSubstr("terminate")));
    return result.error;
  }
  size_t files() const {
    return static_cast<size_t>(
        std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()));
  }

  ScratchFolder folder_;
};

TEST_F(PlanRanks, SaysWhatEachRankHoldsBeforeAnythingIsMeasured) {
  const Json plan = planned({"tiny_lm.json", "--ranks", "2"});
  EXPECT_EQ(plan["format"], "vitrine plan ranks");
  EXPECT_EQ(plan["ranks"], 2);
  EXPECT_EQ(plan["global_batch"], 8);
  EXPECT_FALSE(plan.contains("step_ns"));
  ASSERT_EQ(plan["by_rank"].size(), 2u);
  for (const Json& rank : plan["by_rank"]) {
    const Json& memory = rank["memory_bytes"];
    int64_t sum = 0;
    for (const auto& [name, bytes] : memory["at_peak"].items()) sum += bytes.get<int64_t>();
    EXPECT_EQ(sum, memory["peak"]);
    EXPECT_GE(memory["most"], memory["peak"]);
    for (const auto& [name, bytes] : memory["at_peak"].items())
      EXPECT_GE(memory["by_category"][name], bytes) << name;
    // Two moments in fp32 of the half that is its own; the parameters are fp32 themselves.
    const double own = plan["parameters"].get<double>() / 2;
    EXPECT_NEAR(memory["between_steps"]["optimizer"].get<double>() / own, 8, 0.5);
    EXPECT_GT(rank["sent_bytes_per_step"]["gather"], rank["sent_bytes_per_step"]["control"]);
    EXPECT_FALSE(rank.contains("step_ns"));
  }
}

TEST_F(PlanRanks, KeysOfTheRunFileCanBeSet) {
  const Json stage3 = planned({"tiny_lm.json", "--ranks", "2"});
  const Json stage0 =
      planned({"tiny_lm.json", "--ranks", "2", "--set", "zero_optimization.stage=0"});
  const auto held = [](const Json& plan, const char* category) {
    return plan["by_rank"][0]["memory_bytes"]["between_steps"][category].get<double>();
  };
  EXPECT_NEAR(held(stage0, "optimizer") / held(stage3, "optimizer"), 2, 0.1);
  EXPECT_EQ(stage0["by_rank"][0]["sent_bytes_per_step"]["gather"], 0);
}

TEST_F(PlanRanks, TheLongestUnrollOfTheWorldModelIsPlanned) {
  const CommandResult result =
      run_vitrine({"plan", "tiny_world.json", "--ranks", "2"}, folder_.path());
  EXPECT_EQ(result.code, 0) << result.error;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("2 ranks"),
                    HasSubstr("activations"),
                    HasSubstr("optimizer"),
                    HasSubstr("longest unroll (3 steps)"),
                    HasSubstr("without a profile"),
                    HasSubstr("a rank sends")));
}

TEST_F(PlanRanks, AProfileGivesTimesAndATimelineThatDiagnoseReads) {
  fs::create_directory(folder_ / "t");
  const Json plan = planned(
      {"tiny_lm.json", "--ranks", "2", "--profile", "even.json", "--timeline", "t/step.json.gz"});
  EXPECT_GT(plan["step_ns"], 0);
  EXPECT_GT(plan["tokens_per_s"], 0);
  EXPECT_EQ(plan["threads_per_rank"], 1);
  for (const Json& rank : plan["by_rank"]) {
    double sum = 0;
    for (const auto& [name, ns] : rank["parts"].items()) sum += ns.get<double>();
    EXPECT_NEAR(sum, rank["step_ns"].get<double>(), 1);
  }
  EXPECT_TRUE(fs::exists(folder_ / "t/step.rank0.json.gz"));
  EXPECT_TRUE(fs::exists(folder_ / "t/step.rank1.json.gz"));
  const CommandResult read = run_vitrine({"diagnose", "t", "--json"}, folder_.path());
  ASSERT_EQ(read.code, 0) << read.error;
  const Json facts = parse_json(read.out, "vitrine diagnose");
  ASSERT_EQ(facts["ranks"].size(), 2u);
  for (size_t r = 0; r < 2; ++r) {
    ASSERT_EQ(facts["ranks"][r]["steps"].size(), 1u);
    EXPECT_NEAR(facts["ranks"][r]["steps"][0]["duration_ns"].get<double>(),
                plan["by_rank"][r]["step_ns"].get<double>(),
                2);
  }
  EXPECT_EQ(run_vitrine({"report", "t", "-o", "t.html"}, folder_.path()).code, 0);
}

TEST_F(PlanRanks, WrongUseExitsWithTwoAndSaysWhatToGive) {
  const std::vector<std::string> job = {"tiny_lm.json", "--ranks", "2"};
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.begin(), job.begin(), job.end());
    return refused(more, 2);
  };
  const size_t before = files();
  EXPECT_THAT(with({"--gpus", "8xH100"}), AllOf(HasSubstr("--gpus cannot"), HasSubstr("--ranks")));
  EXPECT_THAT(with({"--search"}), HasSubstr("--search cannot"));
  EXPECT_THAT(with({"--zero", "1", "--seq", "64"}), HasSubstr("--zero, --seq cannot"));
  EXPECT_THAT(with({"--report", "p.html"}), HasSubstr("--report cannot"));
  EXPECT_THAT(with({"--timeline", "s.json"}), HasSubstr("vitrine calibrate"));
  EXPECT_THAT(with({"--profile", "even.json", "--timeline", "s.txt"}), HasSubstr(".json.gz"));
  EXPECT_THAT(refused({"llama3-8b", "--ranks", "2"}, 2), HasSubstr("model's name"));
  EXPECT_THAT(refused({"--ranks", "2"}, 2), HasSubstr("run file is required"));
  EXPECT_THAT(refused({"tiny_lm.json", "--ranks", "0"}, 2), HasSubstr("at least 1"));
  EXPECT_THAT(refused({"tiny_lm.json", "--ranks", "-2"}, 2), HasSubstr("at least 1"));
  refused({"tiny_lm.json", "--ranks", "two"}, 2);
  EXPECT_THAT(refused({"tiny_lm.json", "--gpus", "8xH100", "--set", "train.steps=1"}, 2),
              HasSubstr("--ranks"));
  EXPECT_EQ(files(), before);
}

TEST_F(PlanRanks, ImpossibleInputIsRefusedWithTheReason) {
  EXPECT_THAT(refused({"none.json", "--ranks", "2"}, 1), HasSubstr("none.json"));
  EXPECT_THAT(refused({"tiny_lm.json", "--ranks", "3"}, 1), HasSubstr("train_batch_size"));
  EXPECT_THAT(refused({"run.json", "--ranks", "2", "--set", "mesh.pipeline=3"}, 1),
              HasSubstr("pipeline"));
  write_text_file(folder_ / "config.json", R"({"model_type": "llama"})");
  EXPECT_THAT(refused({"config.json", "--ranks", "2"}, 1), HasSubstr("--gpus"));
  EXPECT_THAT(refused({"run.json", "--ranks", "2", "--profile", "none.json"}, 1),
              HasSubstr("none.json"));
  EXPECT_THAT(refused({"run.json", "--ranks", "2", "--profile", "run.json"}, 1),
              HasSubstr("vitrine calibrate"));
  EXPECT_THAT(
      refused({"run.json", "--ranks", "1", "--profile", "even.json", "--timeline", "no/t.json"}, 1),
      HasSubstr("no/t.json"));
}

}  // namespace
}  // namespace vitrine
